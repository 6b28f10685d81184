"""A whole store to and from every other kind and a bundle: the same refs, the same ids, the same values."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
from stores import place_of
from support import Note, Order, Outside, action, fsck, git, live, notifier

from reactifact import Runtime, SessionStore
from reactifact._sessions.stores import open_database
from reactifact._store._backends.bundle import BundleBackend
from reactifact._store._history.revset import make_tag, tags
from reactifact.branching import BranchStore
from reactifact.checkpoints import FileKVBackend, InMemoryKVBackend
from reactifact.cli import main
from reactifact.errors import NameTaken, NotAStore, StoreError
from reactifact.transfer import Moved, export_store, import_store

pytestmark = pytest.mark.anyio

TABLES = ["git", "sqlite", "postgres"]
LONG = "x" * 300  # its ref is cut, the whole id stands in the commit


@pytest.fixture(params=TABLES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    dsn = request.getfixturevalue("postgres_dsn") if request.param == "postgres" else None
    folder = tmp_path / "first"
    folder.mkdir()
    return place_of(request.param, folder, dsn)


async def fill(place: Any, *sessions: str) -> None:
    """Two orders (one mail failed), a branch, a tag, a compaction with its operation log."""
    for session_id in sessions:
        store = SessionStore(place, durability="os")
        session = await store.open(session_id)
        context = session.context
        runtime = Runtime(context, [notifier()], session=session, dispatcher=Outside("notify:b"))
        context.create(Order(item="tea"), id="a")
        await runtime.arun()
        branch = context.branch(name="plan b")
        branch.create(Note(text="only here"), id="n")
        await BranchStore(place, durability="os").save_branch(branch, session_id=session_id, name="plan b")
        context.create(Order(item="pot"), id="b")
        with pytest.raises(ConnectionError):
            await runtime.arun()
        tip = context.line.tip
        assert tip is not None
        make_tag(store.database, session_id, "before", tip)
        context.compact(keep_commits=1)
        await session.save()
        await store.aclose()


def refs(place: Any) -> dict[str, str]:
    database = open_database(place, read_only=True)
    try:
        return database.backend.refs()
    finally:
        database.backend.close()


async def check(place: Any, session_id: str) -> None:
    store = SessionStore(place, durability="os")
    context = (await store.open(session_id)).context
    assert live(context, "a").data == Order(item="tea")
    assert action(context, "notify:a").status == "dispatched"
    assert action(context, "notify:b").status == "failed"
    branch = await BranchStore(place).load_branch(session_id, "plan b")
    assert branch is not None
    assert live(branch, "n").data == Note(text="only here")
    assert [tag.name for tag in tags(store.database, session_id)] == ["before"]
    await store.aclose()


async def test_there_and_back_by_a_repository_and_by_a_bundle(place: Any, tmp_path: Path) -> None:
    await fill(place, "user-1", "a/b ü", LONG)
    whole = refs(place)
    assert len(whole) == 3 * 6
    repository, bundle = tmp_path / "out.git", tmp_path / "out.bundle"
    moved = await export_store(place, repository)
    assert moved == await export_store(place, bundle)
    assert (moved.refs, moved.values) == (18, 0)
    assert refs(repository) == whole == BundleBackend(bundle).refs()
    fsck(repository)
    assert git(repository, "rev-parse", "HEAD").strip() in whole.values()
    assert "complete history" in git(repository, "bundle", "verify", str(bundle))
    for source, name in ((repository, "back.db"), (bundle, "back.git")):
        back = tmp_path / name
        assert await import_store(source, back) == moved
        assert refs(back) == whole
        for session_id in ("user-1", "a/b ü", LONG):
            await check(back, session_id)
        assert await import_store(source, back) == Moved(0, 0, 0)


async def test_into_postgres(postgres_dsn: str, tmp_path: Path) -> None:
    source = tmp_path / "state.git"
    await fill(source, "user-1")
    moved = await import_store(source, postgres_dsn)
    assert moved.refs == 6
    assert refs(postgres_dsn) == refs(source)
    await check(postgres_dsn, "user-1")


async def test_a_turn_goes_on_in_the_copy_and_the_rest_follows(tmp_path: Path) -> None:
    first, copy = tmp_path / "first.git", tmp_path / "copy.db"
    await fill(first, "user-1")
    await export_store(first, copy)
    await fill(first, "user-2")
    assert (await export_store(first, copy)).refs == 6  # only what is new
    session = await SessionStore(copy).open("user-1")
    outside = Outside()
    session.context.retry_action("action:notify:b")
    await Runtime(session.context, [notifier()], session=session, dispatcher=outside).arun()
    assert outside.sent == ["notify:b"]


@pytest.mark.parametrize("name", ["out.git", "out.db", "out.bundle"])
async def test_nothing_is_overwritten(tmp_path: Path, name: str) -> None:
    first, other, out = tmp_path / "first.git", tmp_path / "other.git", tmp_path / name
    await fill(first, "user-1")
    await export_store(first, out)
    before = BundleBackend(out).refs() if name.endswith("bundle") else refs(out)
    await fill(other, "user-0", "user-1")  # the same names, other commits
    with pytest.raises(NameTaken, match=r"refs/heads/user-1/.* nothing was written"):
        await export_store(other, out)
    assert (BundleBackend(out).refs() if name.endswith("bundle") else refs(out)) == before


async def test_values_go_along(tmp_path: Path) -> None:
    kept = InMemoryKVBackend()
    await kept.set("one", {"n": 1})
    await kept.set("two", {"n": 2})
    await fill(kept, "user-1")
    repository, table, bundle = tmp_path / "v.git", tmp_path / "v.db", tmp_path / "v.bundle"
    assert (await export_store(kept, repository)).values == 2
    assert (await export_store(repository, table)).values == 2
    assert (await export_store(table, bundle)).values == 2
    back = FileKVBackend(tmp_path / "back.git")
    assert (await import_store(bundle, back)).values == 2
    assert back.refs() == kept.refs()
    await back.set("two", {"n": 3})
    with pytest.raises(NameTaken, match="the key 'two'"):
        await export_store(back, table)


async def test_places_that_are_something_else(tmp_path: Path) -> None:
    source, text = tmp_path / "state.git", tmp_path / "notes.txt"
    text.write_text("mine\n")
    await fill(source, "user-1")
    with pytest.raises(NotAStore, match=r"notes\.txt"):
        await export_store(source, text)
    (tmp_path / "x.bundle").write_text("mine\n")
    with pytest.raises(NotAStore, match="is not a bundle"):
        await export_store(source, tmp_path / "x.bundle")
    with pytest.raises(NotAStore, match="there is nothing at"):
        await export_store(tmp_path / "absent.git", tmp_path / "y.git")
    with pytest.raises(NotAStore, match=r"notes\.txt"):
        await import_store(text, tmp_path / "y.git")
    with pytest.raises(StoreError, match="names of their own"):
        await import_store(source, tmp_path / "y.git", session="s")
    assert BranchStore(tmp_path / "empty.git").repository.is_bare
    with pytest.raises(StoreError, match="holds nothing"):
        await export_store(tmp_path / "empty.git", tmp_path / "z.bundle")
    assert text.read_text() == (tmp_path / "x.bundle").read_text() == "mine\n"


async def test_what_git_made(tmp_path: Path) -> None:
    source, packed = tmp_path / "state.git", tmp_path / "git.bundle"
    await fill(source, "user-1")
    git(source, "tag", "-a", "-m", "a note", "mine", "refs/heads/user-1/main")
    subprocess.run(["git", "-C", str(source), "bundle", "create", "-q", str(packed), "--all"], check=True)
    await import_store(packed, tmp_path / "back.git")
    assert refs(tmp_path / "back.git") == refs(source)
    fsck(tmp_path / "back.git")


def test_the_verbs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "state.git"
    anyio.run(fill, source, "user-1")
    out, back = str(tmp_path / "out.bundle"), str(tmp_path / "back.db")
    assert main(["export", str(source), out]) == 0
    assert capsys.readouterr().out.startswith(f"{out}: 6 refs, ")
    assert main(["import", out, back]) == 0
    assert refs(back) == refs(source)
    other = tmp_path / "other.git"
    anyio.run(fill, other, "user-1")
    capsys.readouterr()
    assert main(["export", str(other), out]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert "holds something else under" in told.err
