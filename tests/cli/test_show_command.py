"""`reactifact show`."""

from __future__ import annotations

import anyio
from shop import Order

from reactifact import SessionStore


def newest(run, store, *arguments):
    return run("log", store, *arguments, "--json", "-n", 1).json["commits"][0]


def test_a_commit_by_every_name_it_has(run, store):
    expected = newest(run, store, "user-1")
    names = [
        expected["commit"], expected["commit"][:8], expected["change"], expected["change"][:8],
        "user-1/main", "user-1",
    ]  # fmt: skip
    for name in names:
        assert run("show", store, name, "--json").json["commit"] == expected["commit"], name
    by_version = run("show", store, "v2", "--session", "user-1", "--json")
    assert by_version.json["commit"] == expected["commit"]
    on_branch = run("show", store, "v3", "--session", "user-1", "--branch", "plan b", "--json").json
    assert on_branch["message"] == "Plan the party"
    assert run("show", store, "plan b", "--session", "user-1", "--json").json["change"] == on_branch["change"]


def test_what_a_commit_says(run, store):
    shown = run("show", store, "v1", "--session", "user-1", "--json").json
    assert shown["what"] == "commit"
    assert [(op["type"], op["artifact_id"]) for op in shown["operations"]] == [
        ("create", "receipt:o1"),
        ("link", "receipt:o1"),
        ("create", "action:notify:o1"),
    ]
    assert shown["operations"][0]["data"] == {"order_id": "o1", "text": "confirmed"}
    assert shown["operations"][1]["relation"] == "receipt_for"
    assert shown["reads"][0] == {"artifact_id": "o1", "version": 0}
    assert {"artifact_id": "receipt:o1", "version": 0, "op_type": "create"} in shown["writes"]
    assert (shown["queue"], shown["deliveries"]) == ([], [])


def test_a_commit_for_people(run, store):
    out = run("show", store, "v1", "--session", "user-1").out
    for part in ("trigger  created o1  shop.Order", "operations", "reads", "writes", "not there"):
        assert part in out
    assert "receipt:o1 -[receipt_for]-> o1" in out


def test_the_queue_that_a_commit_left(run, store):
    # saved without a run: the event of the direct change waits
    shown = run("show", store, "team", "--json").json
    assert [one["event"]["artifact_id"] for one in shown["queue"]] == ["o1"]
    assert "left in the queue" in run("show", store, "team").out
    assert "created o1" in run("show", store, "team").out


def test_a_commit_of_the_ledger_shows_the_delivery(run, store):
    shown = run("show", store, "user-1/%outbox", "--json").json
    assert shown["kind"] == "ledger"
    (delivery,) = shown["deliveries"]
    assert (delivery["action_id"], delivery["status"], delivery["attempts"]) == (
        "action:notify:o2",
        "failed",
        1,
    )
    assert delivery["error"].startswith("no address: nobody")
    assert "no address: nobody second line" in run("show", store, "user-1/%outbox").out


def test_an_artifact_with_its_ties(run, store):
    shown = run("show", store, "o1", "--session", "user-1", "--json").json
    assert (shown["what"], shown["type"], shown["version"]) == ("artifact", "shop.Order", 0)
    assert shown["data"] == {"customer": "ann@example.com", "items": ["tea"], "note": ""}
    assert shown["relations"] == {"in": [{"relation": "receipt_for", "source": "receipt:o1"}], "out": []}
    assert (shown["author"], shown["change"], shown["delivery"]) == ("application", None, None)
    receipt = run("show", store, "receipt:o1", "--session", "user-1", "--json").json
    written_by = run("show", store, receipt["change"], "--json").json
    assert (receipt["author"], written_by["version"]) == ("notifier", 1)
    assert receipt["relations"]["out"] == [{"relation": "receipt_for", "target": "o1"}]
    assert receipt["reads"][0] == {"artifact_id": "o1", "version": 0}


def test_an_artifact_on_another_branch(run, store):
    planned = run("show", store, "o1", "--session", "user-1", "--branch", "plan b", "--json").json
    assert (planned["version"], planned["data"]["note"], planned["author"]) == (1, "hurry", "ann")


def test_an_action_is_joined_with_its_delivery(run, store):
    sent = run("show", store, "action:notify:o1", "--session", "user-1", "--json").json
    assert sent["delivery"]["status"] == "dispatched"
    assert sent["delivery"]["dispatched_at"].startswith("2026-01-01T10:00:")
    assert (sent["delivery"]["branch"], sent["version"]) == ("main", 1)
    failed = run("show", store, "action:notify:o2", "--session", "user-1").out
    assert "failed from branch main, attempts: 1, no address: nobody" in failed
    waiting = run("show", store, "action:notify:o\n9", "--session", "shop", "--json").json
    assert (waiting["delivery"]["status"], waiting["delivery"]["attempts"]) == ("pending", 0)


def test_without_a_session_it_says_which_one_was_taken(run, store):
    shown = run("show", store, "o\n9", "--json")
    assert shown.json["session"] == "shop"
    assert "session shop" in shown.err
    assert run("show", store, "user-1", "--json").err == ""


def test_as_tells_an_artifact_from_a_commit_of_the_same_name(run, tmp_path):
    async def write() -> None:
        session = await SessionStore(tmp_path / "s.git", durability="os").open("s")
        session.context.create(Order(customer="x"), id="s/main")
        await session.save()

    anyio.run(write)
    assert run("show", tmp_path / "s.git", "s/main", "--json").json["what"] == "artifact"
    assert run("show", tmp_path / "s.git", "s/main", "--json", "--as", "commit").json["what"] == "commit"
