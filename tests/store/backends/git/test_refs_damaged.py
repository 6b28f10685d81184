"""A ref that cannot be read is not one that is absent: every reader refuses it by name, the rest goes on."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest
from support import Order, Outside, Place, git, notifier

from reactifact import Runtime, SessionStore
from reactifact._store._backends.git.backend import GitBackend
from reactifact._store.names import branch_ref, ledger_ref
from reactifact._store.protocol import RefUpdate
from reactifact.checkpoints import SQLiteKVBackend
from reactifact.cli import main
from reactifact.errors import DamagedRef, ReactifactError
from reactifact.testing.conformance import put

pytestmark = pytest.mark.anyio

MAIN, LEDGER = branch_ref("b", "main"), ledger_ref("b")


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[SessionStore]:
    store = place.store()
    yield store
    await store.aclose()


async def turn(store: SessionStore, name: str, outside: Outside | None, number: int = 1) -> None:
    """Let a session plan an action, and send it where there is an outside."""
    session = await store.open(name)
    session.context.create(Order(item="tea"), id=f"{name}{number}")
    await Runtime(session.context, [notifier()], session=session, dispatcher=outside).arun()


async def build(place: Place) -> Outside:
    """Two sessions, each with one action that was sent and one that waits."""
    sent = Outside()
    async with opened(place) as store:
        for name in ("a", "b"):
            await turn(store, name, sent, 1)
            await turn(store, name, None, 2)
    return sent


def flip_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[3] ^= 0x80
    path.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a flipped bit": flip_bit,
    "an empty file": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(41)),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:20]),
    "a symbolic ref to nothing": lambda path: path.write_text("ref: refs/heads/gone/main\n"),
    "a symbolic ref to itself": lambda path: path.write_text(f"ref: refs/heads/b/{path.name}\n"),
    "a symbolic ref that leads out": lambda path: path.write_text("ref: ../outside\n"),
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("ref", [MAIN, LEDGER])
async def test_a_damaged_ref_file_is_refused_by_every_reader(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ref: str, kind: str
) -> None:
    place = Place(tmp_path / "store.git")
    await build(place)
    DAMAGE[kind](tmp_path / "store.git" / ref)
    async with opened(place) as store:
        with pytest.raises(DamagedRef, match=ref) as refused:
            await store.open("b")
        assert str(tmp_path / "store.git" / ref) in str(refused.value)
        assert "git update-ref" in str(refused.value)
        with pytest.raises(DamagedRef):
            await store.delete_session("b")
        assert await store.list_sessions() == ["a", "b"]
        assert await store.pending_sessions() == ["a", "b"]
        outside = Outside()
        report = await store.drain(outside)
        assert outside.sent == ["notify:a2"]
        assert "b" in {session for session, _, _ in report.failed}
        await turn(store, "a", outside, 3)
    for command in (["sessions"], ["log", "--session", "b"], ["outbox"]):
        code = main([*command[:-1], command[-1], str(tmp_path / "store.git")])
        assert code, command
        said = capsys.readouterr()
        assert "damaged" in said.err, command


def cut_line(data: bytes) -> bytes:
    return data[: data.index(MAIN.encode()) + 12]


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "a flipped bit of an id": lambda data: (
        data[: (at := data.index(MAIN.encode())) - 5] + b"\xb1" + data[at - 4 :]
    ),
    "zeros": lambda data: bytes(len(data)),
    "a page of zeros": lambda data: data[:90] + bytes(len(data) - 90),
    "empty": lambda _: b"",
    "cut in a line": cut_line,
    "garbage behind": lambda data: data + b"garbage",
}


@pytest.mark.parametrize("kind", PACKED)
async def test_damaged_packed_refs_hide_no_session(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    path = tmp_path / "store.git"
    place = Place(path)
    await build(place)
    git(path, "pack-refs", "--all")
    async with opened(place) as store:
        await turn(store, "loose", Outside(), 1)
    packed = path / "packed-refs"
    packed.write_bytes(PACKED[kind](packed.read_bytes()))
    before = packed.read_bytes()
    async with opened(place) as store:
        with pytest.raises(DamagedRef, match="packed-refs"):
            await store.open("never seen")
        with pytest.raises(DamagedRef, match="packed-refs"):
            await store.list_sessions()
        with pytest.raises(DamagedRef, match="packed-refs"):
            await store.delete_session("b")
        await turn(store, "loose", Outside(), 2)
        outside = Outside()
        report = await store.drain(outside)
        assert any("packed-refs" in text for _, _, text in report.failed)
        assert not set(outside.sent) & {"notify:a1", "notify:b1", "notify:loose1"}
        for name in ("a", "b"):
            with suppress(DamagedRef):
                assert (await store.open(name)).loaded
    assert packed.read_bytes() == before
    assert main(["sessions", str(path)])
    assert "packed-refs" in capsys.readouterr().err


@pytest.mark.parametrize(("ref", "other"), [(MAIN, LEDGER), (LEDGER, MAIN)])
async def test_a_ref_that_points_at_a_commit_of_another_kind_is_refused(
    tmp_path: Path, ref: str, other: str
) -> None:
    path = tmp_path / "store.git"
    place = Place(path)
    await build(place)
    git(path, "update-ref", ref, other)
    async with opened(place) as store:
        outside = Outside()
        with pytest.raises(DamagedRef, match=f"{ref}.*another kind"):
            await turn(store, "b", outside, 3)
        assert outside.sent == []
        report = await store.drain(outside)
        assert outside.sent == ["notify:a2"]
        assert "b" in {session for session, _, _ in report.failed}


async def test_nothing_is_pruned_while_a_ref_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    place = Place(path)
    await build(place)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE refs SET oid = ? WHERE name = ?", (b"short", MAIN))
    with pytest.raises(DamagedRef):
        SQLiteKVBackend(path).prune(grace=0)


@pytest.mark.parametrize("held", [b"", b"short", "b" * 20, 7])
@pytest.mark.parametrize("ref", [MAIN, LEDGER])
async def test_a_damaged_row_of_a_ref_is_refused_by_every_reader(
    tmp_path: Path, ref: str, held: object
) -> None:
    path = tmp_path / "store.db"
    place = Place(path)
    await build(place)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE refs SET oid = ? WHERE name = ?", (held, ref))
    async with opened(place) as store:
        with pytest.raises(DamagedRef, match="row"):
            await store.open("b")
        assert await store.list_sessions() == ["a", "b"]
        assert await store.pending_sessions() == ["a", "b"]
        outside = Outside()
        report = await store.drain(outside)
        assert outside.sent == ["notify:a2"]
        assert "b" in {session for session, _, _ in report.failed}
        oid = store.database.backend.refs(branch_ref("a", "main"))[branch_ref("a", "main")]
        with pytest.raises(DamagedRef):
            store.database.backend.write({}, [RefUpdate(ref, None, oid)])


def test_a_head_without_content_is_pointed_anew(tmp_path: Path) -> None:
    path = tmp_path / "store.git"
    backend = GitBackend(path)
    assert backend.repository.is_bare
    (path / "HEAD").write_bytes(b"")
    put(backend, "refs/heads/s/main", "one")
    assert git(path, "symbolic-ref", "HEAD") == "refs/heads/s/main\n"


def test_the_error_is_one_of_ours() -> None:
    assert issubclass(DamagedRef, ReactifactError)
