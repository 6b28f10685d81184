"""The recording dispatcher: what was sent, in order, and failures on demand."""

from __future__ import annotations

import pytest
from support import Order, action, notifier

from reactifact import Context, Runtime
from reactifact.testing import Delivery, InjectedFault, RecordingDispatcher

pytestmark = pytest.mark.anyio


def orders(*names: str) -> Context:
    context = Context()
    for name in names:
        context.create(Order(item=name), id=name)
    return context


async def test_it_notes_what_was_sent_in_order() -> None:
    dispatcher = RecordingDispatcher()
    await Runtime(orders("a", "b"), [notifier()], dispatcher=dispatcher).arun()
    assert dispatcher.sent == [
        Delivery("notify:a", "mail", {"item": "a"}),
        Delivery("notify:b", "mail", {"item": "b"}),
    ]
    assert dispatcher.attempts == dispatcher.sent


async def test_a_key_fails_until_it_is_healed() -> None:
    dispatcher = RecordingDispatcher()
    dispatcher.fail_for("notify:a", ConnectionError("no route"))
    context = orders("a", "b")
    runtime = Runtime(context, [notifier()], dispatcher=dispatcher)
    with pytest.raises(ConnectionError, match="no route"):
        await runtime.arun()
    assert dispatcher.attempted_keys == ["notify:a", "notify:b"]
    assert dispatcher.keys == ["notify:b"]
    assert action(context, "notify:a").status == "failed"
    dispatcher.heal()
    context.retry_action("action:notify:a")
    await runtime.arun()
    assert dispatcher.keys == ["notify:b", "notify:a"]
    assert action(context, "notify:a").status == "dispatched"


async def test_the_nth_send_fails() -> None:
    dispatcher = RecordingDispatcher()
    dispatcher.fail_at(2)
    with pytest.raises(InjectedFault, match="send 2, of 'notify:b'"):
        await Runtime(orders("a", "b", "c"), [notifier()], dispatcher=dispatcher).arun()
    assert dispatcher.keys == ["notify:a", "notify:c"]


async def test_a_send_that_is_over_cannot_be_made_to_fail() -> None:
    dispatcher = RecordingDispatcher()
    with pytest.raises(ValueError, match="call 0"):
        dispatcher.fail_at(0)
    await Runtime(orders("a"), [notifier()], dispatcher=dispatcher).arun()
    with pytest.raises(ValueError, match="call 1 cannot be made to fail: 1 were made"):
        dispatcher.fail_at(1)
