"""`reactifact diff`: two states side by side, for people and as JSON."""

from __future__ import annotations

import anyio
from shop import Order

from reactifact import SessionStore


def test_versions(run, store):
    shown = run("diff", store, "v1", "v2", "--session", "user-1", "--json").json
    added = {one["id"]: one for one in shown["artifacts"]["added"]}
    assert sorted(added) == ["action:notify:o2", "o2", "receipt:o2"]
    assert added["receipt:o2"]["data"] == {"order_id": "o2", "text": "confirmed"}
    assert shown["relations"]["added"] == [
        {"relation": "receipt_for", "source": "receipt:o2", "target": "o2"}
    ]
    assert (
        shown["artifacts"]["removed"] == shown["artifacts"]["changed"] == shown["relations"]["removed"] == []
    )
    assert (shown["old"]["version"], shown["new"]["version"]) == (1, 2)


def test_branches_with_field_paths(run, store):
    shown = run("diff", store, "user-1", "user-1/plan b", "--json").json
    (changed,) = shown["artifacts"]["changed"]
    assert (changed["id"], changed["old_version"], changed["new_version"]) == ("o1", 0, 1)
    assert changed["fields"] == [
        {"path": "items[1]", "kind": "added", "old": None, "new": "cake"},
        {"path": "note", "kind": "changed", "old": "", "new": "hurry"},
    ]
    assert [one["id"] for one in shown["artifacts"]["removed"]] == ["receipt:o1"]
    assert shown["relations"]["removed"] == [
        {"relation": "receipt_for", "source": "receipt:o2", "target": "o2"}
    ]
    lines = run("diff", store, "user-1", "user-1/plan b").lines
    assert "~ o1  shop.Order  v0 -> v1" in lines
    assert '    + items[1]: "cake"' in lines
    assert '    note: "" -> "hurry"' in lines
    assert "- receipt:o1  shop.Receipt  v0" in lines
    assert "- receipt:o2 -[receipt_for]-> o2" in lines


def test_backwards_is_the_mirror_image(run, store):
    there = run("diff", store, "user-1", "user-1/plan b", "--json").json
    back = run("diff", store, "user-1/plan b", "user-1", "--json").json
    assert back["artifacts"]["added"] == there["artifacts"]["removed"]
    assert back["relations"]["added"] == there["relations"]["removed"]
    assert [field["kind"] for field in back["artifacts"]["changed"][0]["fields"]] == ["removed", "changed"]


def test_the_empty_state_is_version_0_and_equal_states_say_so(run, store):
    shown = run("diff", store, "v0", "v1", "--session", "user-1", "--json").json
    assert [one["id"] for one in shown["artifacts"]["added"]] == ["action:notify:o1", "o1", "receipt:o1"]
    equal = run("diff", store, "user-1/main", "user-1/main")
    assert (equal.code, equal.lines[-1]) == (0, "the states are equal")


def test_a_long_value_is_cut_for_people_alone(run, tmp_path):
    async def write() -> None:
        session = await SessionStore(tmp_path / "s.git", durability="os").open("s")
        session.context.create(Order(customer="x" * 5000), id="o")
        await session.save()

    anyio.run(write)
    assert "(5002 characters)" in run("diff", tmp_path / "s.git", "v0", "s").out
    whole = run("diff", tmp_path / "s.git", "v0", "s", "--json").json
    assert len(whole["artifacts"]["added"][0]["data"]["customer"]) == 5000


def test_deliveries(run, store):
    shown = run("diff", store, "user-1/main@v1", "user-1", "--json").json
    assert shown["deliveries"]
    for delivery in shown["deliveries"]:
        assert delivery["new_status"] in ("dispatched", "failed")
    lines = run("diff", store, "user-1/main@v1", "user-1").lines
    assert any(line.startswith("> action:notify:o") for line in lines)
