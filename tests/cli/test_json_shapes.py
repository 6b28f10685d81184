"""`--json`: every verb prints one object, with the keys that its help names and no other."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import anyio
import click
import pytest
from shop import Order
from support import git

from reactifact import PendingQuestion, SessionStore
from reactifact.cli import cli

INNER = re.compile(r"\[[^][{}]*\]|\{[^][{}]*\}")
LOG = "the keys of log but heads and tags"


def listed(text: str) -> set[str]:
    """Return the keys of the first object that a text describes."""
    text = text[text.index("{") :]
    depth, inside = 0, ""
    for char in text:
        depth += (char in "{[") - (char in "}]")
        if depth == 0:
            break
        inside += char
    inside = inside[1:]
    while INNER.search(inside):
        inside = INNER.sub("", inside)
    return {part.partition(":")[0].strip() for part in inside.split(",")}


def documented(verb: str, mark: str = "--json") -> set[str]:
    """Return the keys that the help of a verb names after a mark."""
    command: Any = cli
    for name in verb.split():
        command = command.commands[name]
    _, found, text = str(command.help).partition(mark)
    assert found, f"{verb} says nothing of {mark}"
    return listed(text)


def test_the_keys_are_read_from_a_help() -> None:
    assert listed("--json: {a, b: [{c, d: {e}}], f: null or\n  {g}}\nx: {h}") == {"a", "b", "f"}


MODULE = """
from pydantic import BaseModel
from reactifact import ProduceCall, step


class Cup(BaseModel):
    size: int


@step(consumes=Cup, produces=Cup)
async def drink(call: ProduceCall[Cup]) -> None:
    pass


agents = [drink]


def is_right(context) -> bool:
    return True


def deliver(context, action) -> None:
    pass
"""


@pytest.fixture
def places(store: Path, tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A copy of the shop with a question, and what the verbs are called with beside it."""
    path = tmp_path / "state.git"
    shutil.copytree(store, path)

    async def fill() -> None:
        opened = SessionStore(path)
        async with opened.edit("user-1") as context:
            context.create(PendingQuestion(question="Go on?"), id="q1")
        async with opened.edit("user-1", "plan b") as context:
            context.create(Order(customer="joe"), id="o7")
        await opened.aclose()

    anyio.run(fill)
    (tmp_path / "cups.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    report = run("audit", path, "user-1", "receipt:o1", "--json").out
    (tmp_path / "report.json").write_text(report, encoding="utf-8")
    git(tmp_path, "init", "-q", "--bare", "hub.git")
    git(tmp_path, "clone", "-q", str(path), "clone")
    return {"STORE": path}


def set_aside(path: Path) -> None:
    """Put a commit of git's own on a branch."""
    ref = "refs/heads/user-1/main"
    made = git(path, "commit-tree", f"{ref}^{{tree}}", "-p", ref, "-m", "mine").strip()
    git(path, "update-ref", ref, made)


CALLS = {
    "answer": "STORE q1 yes --session user-1",
    "audit": "STORE user-1 receipt:o1",
    "bisect": "STORE user-1 --check cups:is_right",
    "blame": "STORE user-1 o1",
    "branch": "STORE user-1 save other",
    "bundle": "STORE user-1 -o one.bundle",
    "compact": "STORE user-1 --keep 1",
    "context": "STORE user-1",
    "delete": "STORE user-1 o1 --yes",
    "diff": "STORE user-1 user-1/plan@v2",
    "erase": "STORE o1 --session user-1 --by me --yes",
    "export": "STORE copy.db",
    "fork": "STORE user-1 fresh",
    "fsck": "STORE",
    "git-setup": "clone",
    "graph": "cups",
    "history": "STORE user-1 o1",
    "hooks install": "STORE",
    "import": "STORE other.git",
    "init": "fresh.git",
    "log": "STORE user-1",
    "merge": "-C STORE --session user-1 --branch main user-1/plan --preview",
    "outbox": "STORE",
    "prune": "STORE",
    "questions": "STORE",
    "redo": "STORE user-1",
    "reject": "STORE user-1",
    "relay": "STORE --dispatcher cups:deliver --once --log off",
    "replay": "STORE user-1",
    "retry": "STORE user-1 --failed",
    "revert": "STORE user-1",
    "run": "STORE cups user-1",
    "sessions": "STORE",
    "show": "STORE user-1",
    "sync": "STORE hub.git",
    "tag": "STORE user-1 first",
    "undo": "STORE user-1",
    "verify": "STORE report.json",
}
"""Verb, and arguments with which it does something."""

CALLED_BY_GIT = {"git-merge", "git-text", "hooks check"}
UNTIL_STOPPED = {"ui"}


def verbs() -> set[str]:
    found = set[str]()
    for name, verb in cli.commands.items():
        inner = verb.commands if isinstance(verb, click.Group) else {"": verb}
        found |= {f"{name} {one}".strip() for one in inner}
    return found


def test_every_verb_is_called() -> None:
    assert verbs() == CALLS.keys() | CALLED_BY_GIT | UNTIL_STOPPED


@pytest.mark.parametrize("verb", CALLS)
def test_the_keys_are_those_of_the_help(run: Any, places: dict[str, Path], verb: str) -> None:
    before = {"redo": ("undo", places["STORE"], "user-1")}
    if verb in before:
        assert run(*before[verb]).code == 0
    if verb == "reject":
        set_aside(places["STORE"])
    given = CALLS[verb].replace("user-1/plan ", "user-1/plan\0b ").replace("plan@", "plan\0b@")
    arguments = [places.get(one, one.replace("\0", " ")) for one in given.split()]
    done = run(*verb.split(), *arguments, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.out.isascii()
    document = json.loads(done.out)
    if verb == "audit":
        return  # a report as `report_to_json` makes it, which `verify` takes
    assert document["what"] in (verb.rpartition(" ")[2], "commit")
    mark = "--json of a commit" if verb == "show" else "--json"
    names = documented(verb, mark)
    if LOG in names:
        of_log = listed(str(cli.commands["log"].help).partition("commits: [")[2])
        names = (names - {LOG}) | (of_log - {"heads", "tags"})
    assert names | {"what"} == document.keys()


def test_an_artifact_that_is_shown(run: Any, places: dict[str, Path]) -> None:
    document = run("show", places["STORE"], "user-1", "o1", "--json").json
    assert documented("show", "--json of an artifact") == document.keys()


def test_what_a_merge_says_in_a_conflict(run: Any, places: dict[str, Path]) -> None:
    for branch, customer in (("main", "eva"), ("plan b", "eve")):

        async def write(branch: str = branch, customer: str = customer) -> None:
            store = SessionStore(places["STORE"])
            async with store.edit("user-1", branch) as context:
                context.update("o1", Order(customer=customer))
            await store.aclose()

        anyio.run(write)
    done = run("merge", places["STORE"], "user-1", "user-1/plan b", "--json")
    assert done.code == 1
    assert done.json.keys() == documented("merge")
    assert done.json["conflicts"]
    assert done.json["commit"] is None


def test_what_a_branch_verb_says_of_what_it_wrote(run: Any, places: dict[str, Path]) -> None:
    store = places["STORE"]
    saved = run("branch", store, "user-1", "save", "other", "--json").json
    assert saved["branches"] == ["other", "plan b"]
    assert (saved["branch"], saved["changed"]) == ("other", True)
    assert saved["commit"] == git(store, "rev-parse", "user-1/other").strip()
    again = run("branch", store, "user-1", "save", "other", "--json").json
    assert (again["commit"], again["changed"]) == (saved["commit"], False)
    renamed = run("branch", store, "user-1", "rename", "other", "--as", "third", "--json").json
    assert (renamed["branch"], renamed["branches"]) == ("third", ["plan b", "third"])
    merged = run("branch", store, "user-1", "merge", "plan b", "--as", "both", "--json").json
    assert (merged["branch"], merged["changed"], merged["branches"]) == (
        "both",
        True,
        ["both", "plan b", "third"],
    )
    only = run("branch", store, "user-1", "list", "--json").json
    assert (only["branch"], only["commit"], only["version"], only["changed"]) == (None, None, None, False)
