"""`reactifact outbox`, and `outbox_status` as a library function."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from shop import Order, SteppingClock, dispatch, process_order, runtime_of

from reactifact import Consume, PendingAction, Runtime, RuntimeResources, SessionStore, create_agent
from reactifact.outbox import outbox_status
from reactifact.threads import in_thread


def test_every_branch_with_its_counts(run, store):
    found = run("outbox", store, "--json").json["outboxes"]
    counts = {(one["session"], one["branch"]): one["counts"] for one in found}
    assert counts["user-1", "main"] == {
        "pending": 0,
        "failed": 1,
        "parked": 0,
        "dispatched": 1,
        "simulated": 0,
    }
    assert counts["user-1", "plan b"] == counts["user-1", "main"]
    assert counts["shop", "main"] == {"pending": 1, "failed": 0, "parked": 0, "dispatched": 0, "simulated": 0}
    assert ("team", "x/y") in counts
    assert len(found) == 7


def test_what_failed_and_why(run, store):
    shown = run("outbox", store, "user-1", "--branch", "main", "--json").json["outboxes"]
    (status,) = shown
    (failed,) = status["failed"]
    assert (failed["key"], failed["kind"], failed["attempts"]) == ("notify:o2", "mail", 1)
    assert failed["error"] == "no address: nobody\nsecond line \x1b[31m"
    assert status["oldest_pending_age"] is None
    first, row = run("outbox", store, "user-1", "--branch", "main").lines
    assert first == "user-1/main: 0 pending, 1 failed, 1 dispatched"
    assert row.split()[:3] == ["failed", "notify:o2", "mail"]
    assert "1 attempt  no address: nobody second line" in row


def test_what_waits_and_how_long(run, store):
    (status,) = run("outbox", store, "shop", "--json").json["outboxes"]
    (pending,) = status["pending"]
    assert pending["id"] == "action:notify:o\n9"
    assert status["oldest_pending_age"] == pending["age"] > 0
    first, row = run("outbox", store, "shop").lines
    assert first.startswith("shop/main: 1 pending (oldest ")
    assert "pending  notify:o\\n9  mail" in row


@pytest.mark.anyio
async def test_a_context_tells_how_its_outbox_stands(tmp_path):
    clock = SteppingClock("2026-01-01T10:00:00+00:00")
    store = SessionStore(tmp_path / "s.git", durability="os")
    session = await store.open("s", RuntimeResources(clock=clock))
    context = session.context
    assert outbox_status(context).to_dict() == {
        "session": "s",
        "branch": "main",
        "counts": {"pending": 0, "failed": 0, "parked": 0, "dispatched": 0, "simulated": 0},
        "oldest_pending_age": None,
        "pending": [],
        "failed": [],
        "parked": [],
    }
    context.create(Order(customer="a@x"), id="o1")
    context.create(Order(customer="bad"), id="o2")
    await runtime_of(session, delivering=False).arun()
    waiting = outbox_status(context)
    assert [action.key for action in waiting.pending] == ["notify:o1", "notify:o2"]
    clock.time = datetime.fromisoformat(waiting.pending[0].planned_at) + timedelta(hours=1)
    assert outbox_status(context).oldest_pending_age == 3601
    await runtime_of(session).arun()
    done = outbox_status(context)
    assert (len(done.pending), len(done.failed), done.dispatched) == (0, 1, 1)
    assert done.failed[0].error is not None
    assert done.failed[0].attempts == 1
    context.retry_action("action:notify:o2")
    again = outbox_status(context)
    assert [(action.key, action.attempts, action.error) for action in again.pending] == [
        ("notify:o2", 1, None)
    ]
    await session.save()
    loaded = (await store.open("s", RuntimeResources(clock=clock))).context
    assert [action.key for action in outbox_status(loaded).pending] == ["notify:o2"]
    assert outbox_status(loaded).dispatched == 1


@pytest.mark.anyio
async def test_another_payload_under_a_delivered_key_is_failed(tmp_path):
    store = SessionStore(tmp_path / "s.git", durability="os")
    session = await store.open("s")
    fork = session.context.branch(name="fork")
    session.context.create(Order(customer="a@x"), id="o1")
    await runtime_of(session).arun()
    other = fork.create(Order(customer="b@x"), id="o1")
    agent = create_agent("notifier", consumes=[Consume(Order)], produces=[process_order])
    await Runtime(fork, agents=[agent], dispatcher=dispatch, dispatch_errors="record").arun()
    status = outbox_status(fork)
    assert other.data.customer == "b@x"
    assert [action.key for action in status.failed] == ["notify:o1"]
    assert "another payload" in (status.failed[0].error or "")
    assert status.dispatched == 0


@pytest.mark.anyio
async def test_parked_actions_alone_and_retry(tmp_path, run):
    store = SessionStore(tmp_path / "s.git", durability="os")
    session = await store.open("s")
    for key in "ab":
        action = PendingAction(kind="mail", idempotency_key=key)
        session.context.create(action, id=f"action:{key}")
    await session.save()

    def send(context, action):
        if action.data.idempotency_key == "b":
            raise ConnectionError("no route")

    await store.relay(send, once=True, max_attempts=1)
    path = tmp_path / "s.git"
    found = await in_thread(run, "outbox", path, "--parked")
    assert (found.code, found.lines[0]) == (1, "s/main: 1 parked")
    assert found.lines[1].split()[:3] == ["parked", "b", "mail"]
    shown = (await in_thread(run, "outbox", path, "--parked", "--json")).json
    assert [one["key"] for one in shown["outboxes"][0]["parked"]] == ["b"]
    assert (await in_thread(run, "sessions", path, "--json")).json["sessions"][0]["failed"] == 1
    refused = await in_thread(run, "retry", path, "s", "a", "b")
    assert (refused.code, refused.out) == (1, "re-armed action:b\n")
    assert "a is not an action of s that failed or is parked" in refused.err
    assert (await in_thread(run, "outbox", path, "--parked")).out == "nothing is parked\n"
    assert (await in_thread(run, "retry", path, "s", "--parked")).out == "nothing to re-arm\n"
    assert (await in_thread(run, "retry", path, "s")).code == 2
    assert (await store.relay(send, once=True)).failed == 1  # it was re-armed
