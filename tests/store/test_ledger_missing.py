"""A ledger that is missing or behind: nothing is sent until it is fetched, or rebuilt in words."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support import Order, Outside, Receipt, git, notifier

from reactifact import Runtime, SessionStore
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.cli import main
from reactifact.errors import LedgerMissing, UnknownRevision

pytestmark = pytest.mark.anyio

LEDGER = "refs/heads/s/%outbox"


async def turn(store: SessionStore, name: str, outside: Outside | None) -> None:
    session = await store.open("s")
    session.context.create(Order(item=name), id=name)
    await Runtime(session.context, [notifier()], session=session, dispatcher=outside).arun()


async def delivered(place: Path) -> None:
    """Leave a session with two deliveries that its branch knows, and an action that waits."""
    store = SessionStore(place)
    outside = Outside()
    for name in ("a", "b"):
        await turn(store, name, outside)
    await turn(store, "c", None)
    assert outside.sent == ["notify:a", "notify:b"]
    await store.aclose()


def cloned(of: Path, to: Path, *options: str) -> Path:
    git(of, "clone", "--quiet", "--bare", *options, of.as_uri(), str(to))
    return to


def one_branch(store: Path, to: Path) -> Path:
    return cloned(store, to, "--single-branch", "--branch", "s/main")


def deleted(store: Path, to: Path) -> Path:
    git(store, "update-ref", "-d", LEDGER)
    return store


def moved_back(store: Path, to: Path) -> Path:
    git(store, "update-ref", LEDGER, git(store, "rev-parse", f"{LEDGER}~1").strip())
    return store


def fetched(store: Path, to: Path) -> Path:
    git(store, "init", "--quiet", "--bare", str(to))
    git(to, "fetch", "--quiet", str(store), "refs/heads/s/main:refs/heads/s/main")
    return to


@pytest.mark.parametrize("lose", [one_branch, deleted, moved_back, fetched])
async def test_nothing_is_sent_while_the_ledger_is_missing_or_behind(
    tmp_path: Path, lose: Callable[[Path, Path], Path]
) -> None:
    await delivered(tmp_path / "state.git")
    place = lose(tmp_path / "state.git", tmp_path / "other.git")
    store, outside = SessionStore(place), Outside()
    with pytest.raises(LedgerMissing, match=r"'s', branch 'main' .*%outbox.*rebuild_ledger"):
        await turn(store, "d", outside)
    context = await store.load_session("s")
    assert context is not None
    assert context.get("d") is not None  # what the turn decided is kept
    assert len(context.list_artifacts(Receipt)) == 4
    report = await store.drain(outside)
    assert (report.tried, report.delivered) == (0, 0)
    assert "does not contain" in report.failed[0][2]
    # the commit of that turn does not forget what its parents knew
    with pytest.raises(LedgerMissing):
        await turn(SessionStore(place), "e", outside)
    assert outside.sent == []


@pytest.mark.parametrize("lose", [one_branch, fetched])
async def test_fetching_the_ledger_is_the_way_out(tmp_path: Path, lose: Callable[[Path, Path], Path]) -> None:
    await delivered(tmp_path / "state.git")
    place = lose(tmp_path / "state.git", tmp_path / "other.git")
    git(place, "fetch", "--quiet", str(tmp_path / "state.git"), f"{LEDGER}:{LEDGER}")
    outside = Outside()
    report = await SessionStore(place).drain(outside)
    assert report.failed == []
    assert outside.sent == ["notify:c"]


@pytest.mark.parametrize("how", ["method", "command"])
async def test_a_lost_ledger_is_rebuilt_when_somebody_says_so(tmp_path: Path, how: str) -> None:
    place = tmp_path / "state.git"
    await delivered(place)
    await turn(
        SessionStore(place), "d", Outside()
    )  # `c` and `d` are sent, and no commit of the branch says so
    deleted(place, place)
    if how == "method":
        done = await SessionStore(place).rebuild_ledger("s")
        assert (done.lost, done.delivered) == (1, 2)
        assert done.wait == ("action:notify:c", "action:notify:d")  # they may go out twice, and are named
    else:
        codes: list[int] = []
        command = ["outbox", str(place), "s", "--rebuild-ledger"]
        asked = threading.Thread(target=lambda: codes.append(main(command)))  # it has a loop of its own
        asked.start()
        asked.join()
        assert codes == [0]
    outside = Outside()
    report = await SessionStore(place).drain(outside)
    assert report.failed == []
    assert outside.sent == ["notify:c", "notify:d"]
    await turn(SessionStore(place), "e", outside)
    assert outside.sent[2:] == ["notify:e"]
    assert (await SessionStore(place).rebuild_ledger("s")).lost == 0
    with pytest.raises(UnknownRevision):
        await SessionStore(place).rebuild_ledger("nobody")


async def test_a_row_that_is_gone_from_a_table_of_refs(tmp_path: Path) -> None:
    place = tmp_path / "state.db"
    await delivered(place)
    connection = sqlite3.connect(place)
    assert connection.execute("DELETE FROM refs WHERE name = ?", (LEDGER,)).rowcount == 1
    connection.commit()
    connection.close()
    outside = Outside()
    with pytest.raises(LedgerMissing):
        await turn(SessionStore(place), "d", outside)
    assert outside.sent == []


async def test_a_delivery_that_lost_a_race_is_not_a_missing_one() -> None:
    """A branch may name a delivery that was recorded again on top of another's."""
    backend = InMemoryKVBackend()
    outside = Outside()
    first, second = SessionStore(backend), SessionStore(backend)
    await turn(first, "a", None)
    await turn(first, "b", None)
    mine, theirs = await first.open("s"), await second.open("s")
    theirs.context.mark_dispatched("action:notify:b")
    mine.context.mark_dispatched("action:notify:a")
    theirs.context.line.ledger.write()
    await mine.save()  # its commit names the delivery as it was before the race
    await turn(SessionStore(backend), "c", outside)
    assert outside.sent == ["notify:c"]
