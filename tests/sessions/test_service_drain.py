"""Draining a whole store: sessions side by side, the branches of one session one after another."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from support import Order, Outside, Place, notifier

from reactifact import Artifact, Context, PendingAction, Runtime

pytestmark = pytest.mark.anyio


async def plan(place: Place, *names: str) -> None:
    """Let sessions plan an action each, and send none."""
    store = place.store()
    for name in names:
        session = await store.open(name)
        session.context.create(Order(item="tea"), id=name)
        await Runtime(session.context, [notifier()], session=session).arun()
    await store.aclose()


class Hanging:
    """An outside in which some sends never come back."""

    def __init__(self, *hanging: str) -> None:
        self.sent: list[str] = []
        self.hung: list[str] = []
        self._hanging = hanging

    async def __call__(self, context: Context, action: Artifact[PendingAction]) -> None:
        key = action.data.idempotency_key
        if key in self._hanging:
            self.hung.append(key)
            await anyio.sleep_forever()
        self.sent.append(key)


@pytest.mark.every_loop
async def test_a_send_that_hangs_holds_back_its_own_session_alone(place: Place) -> None:
    names = ("a", "b", "c", "d")
    await plan(place, *names)
    store, outside = place.store(), Hanging("notify:a")

    async def drained() -> None:
        await store.drain(outside, sessions_at_once=2)

    async with anyio.create_task_group() as group:
        group.start_soon(drained)
        while len(outside.sent) < 3 or not outside.hung:
            await anyio.sleep(0.001)
        group.cancel_scope.cancel()
    assert sorted(outside.sent) == ["notify:b", "notify:c", "notify:d"]
    report = await store.drain(again := Outside())
    assert (report.delivered, report.failed, report.skipped) == (1, [], [])
    assert again.sent == ["notify:a"]
    await store.aclose()


async def test_no_more_sessions_than_asked_for_are_drained_at_once(place: Place) -> None:
    await plan(place, *"abcdef")
    store = place.store()
    under_way: set[str] = set()
    most = 0

    async def send(context: Context, action: Any) -> None:
        nonlocal most
        under_way.add(action.id)
        most = max(most, len(under_way))
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        under_way.discard(action.id)

    report = await store.drain(send, sessions_at_once=3)
    assert (report.tried, report.delivered) == (6, 6)
    assert 1 <= most <= 3
    with pytest.raises(ValueError, match="sessions_at_once=0"):
        await store.drain(send, sessions_at_once=0)
    await store.aclose()


async def test_one_session_that_fails_leaves_the_others_and_the_report_is_in_order(place: Place) -> None:
    await plan(place, "a", "b", "c")
    store = place.store()

    async def send(context: Context, action: Any) -> None:
        if action.id != "action:notify:b":
            raise ConnectionError(f"no {action.id}")

    report = await store.drain(send)
    assert (report.tried, report.delivered) == (3, 1)
    assert [session for session, _, _ in report.failed] == ["a", "c"]
    await store.aclose()
