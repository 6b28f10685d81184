"""One branch that cannot be read does not hide the others from `sessions` and `outbox`."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from shop import Order, runtime_of
from support import git

from reactifact import SessionStore
from reactifact._store._history.revset import heads
from reactifact._store.commits import read_roots
from reactifact.branching import BranchStore

GONE = "1" * 40
LONG = "b" * 300


@pytest.fixture
def broken(store: Path, tmp_path: Path) -> Path:
    """A copy of the shop with two branches on commits that are not whole."""
    path = tmp_path / "state.git"
    shutil.copytree(store, path)
    git(path, "pack-refs", "--all")
    no_tree = git(
        path,
        *("hash-object", "-t", "commit", "-w", "--stdin", "--literally"),
        text=f"tree {GONE}\nauthor a <a@x> 1 +0000\ncommitter a <a@x> 1 +0000\n\nx\n",
    ).strip()
    point(path, "refs/heads/user-1/plan%20b", GONE)
    point(path, "refs/heads/team/x%2Fy", no_tree)
    return path


def point(path: Path, ref: str, content: str) -> None:
    """Write a ref's file as a failing disk or a careless hand would."""
    file = path / ref
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{content}\n")


def test_sessions_lists_what_can_be_read_and_names_the_rest(run: Any, store: Path, broken: Path) -> None:
    whole = {one["session"]: one for one in run("sessions", store, "--json").json["sessions"]}
    done = run("sessions", broken, "--json")
    assert done.code == 2
    found = {one["session"]: one for one in done.json["sessions"]}
    assert found.keys() == whole.keys()
    assert found["shop"] == whole["shop"]
    assert [one["branch"] for one in found["user-1"]["branches"]] == ["main"]
    damaged = {(one["session"], one["branch"]): one["error"] for one in done.json["damaged"]}
    assert damaged.keys() == {("user-1", "plan b"), ("team", "x/y")}
    assert all(f"object {GONE} is missing" in error for error in damaged.values())

    done = run("sessions", broken)
    assert done.code == 2
    assert [line.split()[0] for line in done.lines] == ["SESSION", *sorted(whole)]
    first, second = done.err.splitlines()
    assert first.startswith("reactifact: team/x/y cannot be read: object 111")
    assert second.startswith("reactifact: user-1/plan b cannot be read: object 111")


def test_outbox_shows_what_can_be_read_and_names_the_rest(run: Any, store: Path, broken: Path) -> None:
    whole = run("outbox", store, "--json").json["outboxes"]
    done = run("outbox", broken, "--json")
    assert done.code == 2
    shown = [(one["session"], one["branch"]) for one in done.json["outboxes"]]
    gone = {("user-1", "plan b"), ("team", "x/y")}
    assert shown == [name for one in whole if (name := (one["session"], one["branch"])) not in gone]
    assert {(one["session"], one["branch"]) for one in done.json["damaged"]} == gone

    done = run("outbox", broken, "user-1")
    assert (done.code, done.lines[0]) == (2, "user-1/main: 0 pending, 1 failed, 1 dispatched")
    assert done.err.splitlines()[0].startswith("reactifact: user-1/plan b cannot be read:")
    assert len(done.err.splitlines()) == 1
    assert run("outbox", broken, "shop").code == 0


def test_a_session_without_any_readable_branch_is_named(run: Any, broken: Path) -> None:
    point(broken, "refs/heads/shop/main", GONE)
    for verb in ("sessions", "outbox"):
        done = run(verb, broken)
        assert done.code == 2
        assert "reactifact: shop/main cannot be read" in done.err
        assert not any(line.startswith("shop") for line in done.lines)


def test_a_commit_that_is_whole_over_a_state_that_is_not(run: Any, tmp_path: Path) -> None:
    """The record of the head can be read; what is missing shows only when its state is asked for."""
    path = tmp_path / "state.db"

    async def make() -> str:
        sessions = SessionStore(path, durability="os")
        for name in ("bad", "good"):
            session = await sessions.open(name)
            session.context.create(Order(customer="a@x"), id=f"order of {name}")
            await runtime_of(session, delivering=False).arun()
        head = next(head for head in heads(sessions.database) if head.session == "bad" and not head.is_ledger)
        outbox = read_roots(sessions.database, head.commit).outbox
        await sessions.aclose()
        assert outbox is not None
        return outbox

    outbox = anyio.run(make)
    with closing(sqlite3.connect(path)) as database, database:
        assert database.execute("DELETE FROM objects WHERE oid = ?", (bytes.fromhex(outbox),)).rowcount == 1
    done = run("outbox", path, "--json")
    assert done.code == 2
    (good,) = done.json["outboxes"]
    assert [action["key"] for action in good["pending"]] == ["notify:order of good"]
    done = run("sessions", path, "--json")
    assert done.code == 2
    sessions = {one["session"]: one for one in done.json["sessions"]}
    assert (sessions["good"]["pending"], len(sessions["good"]["branches"])) == (1, 1)
    assert "bad" not in sessions
    (named,) = done.json["damaged"]
    assert (named["session"], named["branch"]) == ("bad", "main")
    assert f"object {outbox} is missing" in named["error"]


@pytest.mark.parametrize("content", ["", "not an id"])
def test_a_ref_whose_file_is_damaged_is_named(run: Any, broken: Path, content: str) -> None:
    point(broken, "refs/heads/team%2Fa/main", content)
    for verb in ("sessions", "outbox"):
        done = run(verb, broken)
        assert done.code == 2
        assert "reactifact: team/a/main cannot be read" in done.err


def test_a_cut_name_on_a_damaged_commit_is_named_by_its_ref(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "state.git"

    async def make() -> None:
        branches = BranchStore(path, durability="os")
        async with branches.edit("s") as context:
            context.create(Order(customer="a@x"), id="o1")
        await branches.fork("s", f"s/{LONG}")
        await branches.aclose()

    anyio.run(make)
    refs = git(path, "for-each-ref", "--format=%(refname)", "refs/heads/s").split()
    (cut,) = [ref for ref in refs if not ref.endswith("/main")]
    assert not cut.endswith(LONG)
    point(path, cut, GONE)
    done = run("sessions", path, "--json")
    assert done.code == 2
    assert [one["session"] for one in done.json["sessions"]] == ["s"]
    (named,) = done.json["damaged"]
    assert (named["ref"], named["session"], named["branch"]) == (cut, "s", None)
    assert f"reactifact: {cut} cannot be read" in run("outbox", path).err


def test_nothing_damaged_is_an_empty_list(run: Any, store: Path) -> None:
    for verb in ("sessions", "outbox"):
        done = run(verb, store, "--json")
        assert (done.code, done.json["damaged"]) == (0, [])
