"""Closing: `aclose` gives back every descriptor and connection, twice is fine, a later use opens anew."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from stores import place_of
from support import Order, Outside, action, notifier

from reactifact import Runtime, SessionStore
from reactifact.errors import SessionBusy

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.every_loop,
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="this system does not list open files"),
]


@pytest.fixture(params=["git", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    dsn = request.getfixturevalue("postgres_dsn") if request.param == "postgres" else None
    return place_of(request.param, tmp_path, dsn)


def open_files(place: Any) -> list[str]:
    """Return what this process has open of a store: its files, or sockets where it is a server."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:  # that of the listing
            continue
    mapped = Path("/proc/self/maps").read_text().splitlines()
    return [name for name in (*found, *mapped) if str(place) in name]


def connections(place: Any) -> int:
    """Return how many connections of ours the server knows to the database."""
    query = (
        b"SELECT count(*) FROM pg_stat_activity"
        b" WHERE datname = current_database() AND application_name LIKE 'reactifact %'"
    )
    with psycopg.connect(place, autocommit=True) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def is_released(place: Any) -> bool:
    if not str(place).startswith("postgresql"):
        return not open_files(place)
    patience = time.monotonic() + 30
    while connections(place) and time.monotonic() < patience:
        pass  # the server ends them one by one
    return not connections(place)


async def take_order(store: SessionStore, number: int, **how: Any) -> None:
    async with await store.open("s", **how) as session:
        session.context.create(Order(item="tea"), id=f"order:{number}")
        await Runtime(session.context, [notifier()], session=session, dispatcher=Outside()).arun()
        assert action(session.context, f"notify:order:{number}").status == "dispatched"


async def test_a_closed_store_holds_nothing(place: Any) -> None:
    gc.disable()  # what is released is released by closing
    try:
        store = SessionStore(place)
        await take_order(store, 1)
        await take_order(store, 2, wait=0)
        await SessionStore(store.database).list_sessions()
        await store.aclose()
        await store.aclose()
        assert is_released(place)
    finally:
        gc.enable()


async def test_a_later_use_opens_it_again(place: Any) -> None:
    store = SessionStore(place)
    session = await store.open("s")
    await store.aclose()
    session.context.create(Order(item="tea"), id="order:1")
    await session.save()
    await store.aclose()
    await take_order(store, 2)
    assert await store.list_sessions() == ["s"]
    await store.aclose()
    assert is_released(place)


async def test_a_session_gives_its_lock_back_once(place: Any) -> None:
    store, other = SessionStore(place), SessionStore(place)
    session = await store.open("s", wait=0)
    with pytest.raises(SessionBusy):
        await other.open("s", wait=0)
    await session.aclose()
    await session.aclose()
    assert not session.is_exclusive
    await take_order(other, 1, wait=0)
    await session.refresh()
    session.context.create(Order(item="tea"), id="order:2")
    await session.save()
    await store.aclose()
    await other.aclose()
    assert is_released(place)


async def test_a_lock_outlives_the_closing_of_its_store_and_then_nothing_is_held(place: Any) -> None:
    store, other = SessionStore(place), SessionStore(place)
    session = await store.open("s", wait=0)
    await store.aclose()
    with pytest.raises(SessionBusy):
        await other.open("s", wait=0)
    await session.aclose()
    await take_order(other, 1, wait=0)
    await other.aclose()
    assert is_released(place)
