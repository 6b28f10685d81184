"""`reactifact context`, and `open_store`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from mermaid_grammar import read
from shop import Order

from reactifact import SessionStore
from reactifact.checkpoints import FileKVBackend, SQLiteKVBackend
from reactifact.cli.common import open_store
from reactifact.errors import NotAStore


async def fill(backend, session="s"):
    store = SessionStore(backend)
    opened = await store.open(session)
    for number in range(3):
        opened.context.create(Order(customer="a@x"), id=f"o{number}")
    opened.context.link("o1", "after", "o0")
    await opened.save()
    await store.aclose()


def test_a_session_drawn(run, store):
    found = run("context", store, "--session", "user-1")
    assert (found.code, found.err) == (0, "")
    assert found.out.startswith("flowchart TD\n")
    diagram = read(found.out)
    assert list(diagram.groups.values()) == ["Order", "Receipt", "PendingAction"]
    assert diagram.in_group("Order") == ["o1", "o2"]
    assert diagram.edges == [("receipt:o1", "receipt_for", "o1"), ("receipt:o2", "receipt_for", "o2")]


def test_a_branch_a_limit_and_no_relations(run, store):
    plan = read(run("context", store, "--session", "user-1", "--branch", "plan b").out)
    assert "receipt:o1" not in plan.nodes.values()
    few = read(run("context", store, "--session", "user-1", "--limit", 2).out)
    assert list(few.nodes.values()) == ["o1", "receipt:o1"]
    assert few.edges == [("receipt:o1", "receipt_for", "o1")]
    assert read(run("context", store, "--session", "user-1", "--no-relations").out).edges == []
    assert run("context", store, "--limit", -1).code == 2


def test_without_a_session_it_is_the_one_written_last(run, store):
    found = run("context", store)
    assert found.code == 0
    assert "o\\n9" in read(found.out).nodes.values()
    assert found.err == "session shop, branch main (written last of 4 sessions)\n"


@pytest.mark.parametrize(
    ("name", "backend"), [("s.db", "auto"), ("s.git", "auto"), ("data", "sqlite"), ("d.db", "file")]
)
def test_every_kind_of_store(run, tmp_path, name, backend):
    path = tmp_path / name
    anyio.run(fill, open_store(path, backend))
    found = run("context", path, "--backend", backend)
    assert found.code == 0
    diagram = read(found.out)
    assert list(diagram.nodes.values()) == ["o0", "o1", "o2"]
    assert diagram.edges == [("o1", "after", "o0")]


def test_the_classes_are_not_needed(store):
    script = (
        "import sys; from reactifact.cli import main; code = main(sys.argv[1:]); "
        "assert 'shop' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "context", str(store), "--session", "user-1"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(read(done.stdout).groups.values()) == ["Order", "Receipt", "PendingAction"]


def test_what_is_not_there_is_1(run, tmp_path, store):
    text = tmp_path / "text.git"
    text.write_text("no store")
    for path in (tmp_path / "missing.git", tmp_path / "missing" / "s.db", tmp_path / "s.sqlite", text):
        found = run("context", path)
        assert (found.code, found.out) == (1, "")
        assert found.err.startswith(f"reactifact: no session store at {path}: ")
        assert found.err.count("\n") == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["text.git"]
    found = run("context", store, "--session", "nobody")
    assert (found.code, found.out) == (1, "")
    assert "no session 'nobody'" in found.err
    assert run("context", store, "--session", "user-1", "--branch", "nope").code == 1
    empty = tmp_path / "empty.git"
    with open_store(empty).lock("made by the first lock"):
        pass
    found = run("context", empty)
    assert (found.code, found.out) == (1, "")
    assert "holds no session yet" in found.err


@pytest.mark.parametrize(
    ("name", "backend", "kind"),
    [
        ("a.db", "auto", SQLiteKVBackend),
        ("a.sqlite", "auto", SQLiteKVBackend),
        ("a.sqlite3", "auto", SQLiteKVBackend),
        ("plain", "sqlite", SQLiteKVBackend),
        ("plain", "auto", FileKVBackend),
        ("plain.git", "file", FileKVBackend),
    ],
)
def test_which_store_a_path_means(tmp_path, name, backend, kind):
    opened = open_store(str(tmp_path / name), backend)
    assert type(opened) is kind
    opened.close()


def test_what_open_store_refuses(tmp_path):
    with pytest.raises(ValueError, match="'redis' is not a backend"):
        open_store(tmp_path / "x", "redis")
    with pytest.raises(NotAStore):
        open_store(tmp_path / "x.git", create=False)
    with pytest.raises(NotAStore):
        open_store(tmp_path / "missing" / "x.db")
