"""`reactifact replay`: a state in numbers, its hash, its diagram, and a check of the history."""

from __future__ import annotations

import subprocess
import sys

import anyio
import pytest
from mermaid_grammar import read
from shop import make_shop

from reactifact.audit import context_hash
from reactifact.replay import replay_context


def hash_of(store, session="user-1", version=None):
    async def find():
        return context_hash(await replay_context(store, session, version=version))

    return anyio.run(find)


def test_a_session_in_numbers(run, store):
    found = run("replay", store, "--session", "user-1")
    assert (found.code, found.err) == (0, "")
    assert found.lines == [
        "replay v2",
        "session: user-1, branch: main",
        "artifacts: 6",
        "relations: 2",
        "pending questions: 0",
        "dispatched actions: 1",
        "failed actions: 1",
        "  Order: 2",
        "  PendingAction: 2",
        "  Receipt: 2",
    ]


def test_a_version_and_a_branch(run, store):
    found = run("replay", store, "--session", "user-1", "--version", 1)
    assert found.lines[0] == "replay v1"
    assert "artifacts: 3" in found.lines
    assert "artifacts: 5" in run("replay", store, "--session", "user-1", "--branch", "plan b").lines
    assert "artifacts: 0" in run("replay", store, "--session", "user-1", "--version", 0).lines


def test_without_a_session_it_is_the_one_written_last(run, store):
    found = run("replay", store)
    assert (found.code, found.lines[1]) == (0, "session: shop, branch: main")
    assert "session shop" in found.err


def test_hash_and_verify(run, store):
    expected = hash_of(store)
    found = run("replay", store, "--session", "user-1", "--hash")
    assert f"hash: {expected}" in found.lines
    assert found.err == ""  # the models are in this process
    state = next(text.removeprefix("state: ") for text in found.lines if text.startswith("state: "))
    for right in (expected, expected.upper(), state):
        verified = run("replay", store, "--session", "user-1", "--verify", right)
        assert (verified.code, verified.lines[-1]) == (0, "verified: the hash matches")
    wrong = run("replay", store, "--session", "user-1", "--verify", hash_of(store, version=1))
    assert wrong.code == 1
    assert wrong.lines[-1].startswith("MISMATCH: expected ")
    old = run("replay", store, "--session", "user-1", "--version", 1, "--verify", hash_of(store, version=1))
    assert old.code == 0


def test_a_diagram_is_appended(run, store):
    found = run("replay", store, "--session", "user-1", "--diagram")
    assert found.code == 0
    assert found.lines[0] == "replay v2"
    diagram = read(found.out[found.out.index("flowchart TD") :])
    assert diagram.in_group("Order") == ["o1", "o2"]


def test_verify_all(run, store):
    found = run("replay", store, "--session", "user-1", "--verify-all")
    assert (found.code, found.err) == (0, "")
    assert found.lines[-1].startswith("session user-1: 8 commits and ")
    assert found.lines[-1].endswith("every State and every payload hash matches")
    for session in ("team/a", "team", "shop"):
        assert run("replay", store, "--session", session, "--branch", "main", "--verify-all").code == 0


def test_json(run, store):
    found = run("replay", store, "--session", "user-1", "--verify", "0", "--verify-all", "--json")
    assert found.code == 1
    assert found.json["hash"] == hash_of(store)
    assert (found.json["matches"], found.json["history"]["ok"], found.json["version"]) == (False, True, 2)
    assert found.json["by_type"] == {"Order": 2, "PendingAction": 2, "Receipt": 2}
    plain = run("replay", store, "--session", "user-1", "--json").json
    assert (plain["matches"], plain["history"]) == (None, None)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--session", "nobody"], 1, "holds no session 'nobody'"),
        (["--session", "nobody", "--verify-all"], 1, "holds no session 'nobody'"),
        (["--session", "user-1", "--branch", "x"], 1, "has no branch 'x'"),
        (["--session", "user-1", "--version", "9"], 1, "has no version 9: choose 0 to 2"),
        (["--session", "user-1", "--version", "-1"], 2, "-1"),
        (["--models", "no.such.module"], 1, ""),
    ],
)
def test_what_is_not_there(run, store, arguments, code, said):
    if "--models" in arguments:
        with pytest.raises(SystemExit, match=r"no\.such\.module"):
            run("replay", store, *arguments)
        return
    found = run("replay", store, *arguments)
    assert (found.code, found.out) == (code, "")
    assert said in found.err
    assert "Traceback" not in found.err


def test_a_missing_store_stays_missing(run, tmp_path):
    found = run("replay", tmp_path / "nothing")
    assert (found.code, found.out) == (2, "")
    assert "no session store" in found.err
    assert list(tmp_path.iterdir()) == []


MODELS = """\
from typing import ClassVar
from pydantic import BaseModel
print("IMPORTED")
class Seen(BaseModel):
    transient_fields: ClassVar[frozenset[str]] = frozenset({"seen"})
    text: str
    seen: int = 0
"""

MAKE = """\
import anyio
from reactifact import SessionStore
from reactifact.audit import context_hash
from their_models import Seen
async def main():
    session = await SessionStore("state.git", durability="os").open("s")
    session.context.create(Seen(text="a", seen=5), id="a")
    await session.save()
    print(context_hash(session.context))
anyio.run(main)
"""


def test_no_module_is_imported_but_those_that_are_named(tmp_path):
    (tmp_path / "their_models.py").write_text(MODELS)

    def python(*arguments):
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    expected = python("-c", MAKE).stdout.splitlines()[-1]
    replay = ("-m", "reactifact", "replay", "state.git", "--hash")
    alone = python(*replay)
    assert alone.returncode == 0, alone.stderr
    assert "IMPORTED" not in alone.stdout
    assert "1 type not imported" in alone.stderr
    assert expected not in alone.stdout
    named = python(*replay, "--models", "their_models")
    assert f"hash: {expected}" in named.stdout.splitlines()
    assert named.stderr == ""


def test_nothing_is_written(run, tmp_path):
    path = tmp_path / "state.git"
    make_shop(path)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    run("replay", path, "--session", "user-1", "--verify-all", "--hash", "--diagram")
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
