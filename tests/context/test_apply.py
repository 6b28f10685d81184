"""A patch is applied whole and in order: what each operation comes to, and what it is recorded as."""

from __future__ import annotations

from typing import Any

import pytest
from support import Note, commit, live

from reactifact import Context, Create, Delete, Link, ProduceCall, Unlink, Update
from reactifact._context.apply import prepare
from reactifact.commit import Write

pytestmark = pytest.mark.anyio


async def test_a_create_with_a_taken_id_becomes_an_update() -> None:
    context = Context()
    context.create(Note(text="a"), id="n")
    await commit(context, lambda call: call.effects.create(Note(text="b"), id="n"))
    assert context.history()[-1].writes == [Write("n", 1, "update")]
    assert (live(context, "n").version, live(context, "n").data.text) == (1, "b")
    assert live(context, "n").created_by_commit is None


async def test_an_update_to_equal_data_is_a_commit_without_event_or_version() -> None:
    context = Context()
    await commit(context, lambda call: call.effects.create(Note(text="a"), id="n"))
    context.drain_events()
    before = context.version
    await commit(context, lambda call: call.effects.update("n", text="a"))
    assert context.version == before + 1
    assert context.history()[-1].writes == [Write("n", 0, "update")]
    assert live(context, "n").version == 0


async def test_a_delete_of_what_is_missing_records_a_write() -> None:
    context = Context()
    await commit(context, lambda call: call.effects.delete("never there"))
    assert context.history()[-1].writes == [Write("never there", 0, "delete")]


async def test_better_16_a_dropped_update_is_neither_logged_nor_in_the_diff() -> None:
    def work(call: ProduceCall) -> None:
        call.effects.add(Update("ghost", Note(text="boo")))
        call.effects.create(Note(text="real"), id="n")

    context = Context()
    await commit(context, work)
    (found,) = context.history()
    assert [type(operation) for operation in found.operations] == [Create]
    assert found.writes == [Write("n", 0, "create")]
    assert context.get("ghost") is None
    assert set(context.diff(0, 1)["added"]) == {"n"}


async def test_operations_run_in_order_and_links_record_no_write() -> None:
    def work(call: ProduceCall) -> None:
        call.effects.create(Note(), id="n")
        call.effects.link("n", "cites", "m")
        call.effects.link("n", "uses", "m")
        call.effects.unlink("n", "uses")
        call.effects.delete("n")
        call.effects.create(Note(text="again"), id="n")

    context = Context()
    await commit(context, work)
    (found,) = context.history()
    assert [type(operation) for operation in found.operations] == [
        Create,
        Link,
        Link,
        Unlink,
        Delete,
        Create,
    ]
    assert [write.op_type for write in found.writes] == ["create", "delete", "create"]
    assert live(context, "n").data.text == "again"
    assert [relation.relation for relation in context.relations("n")] == ["cites"]


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ("no operation", "is not an operation"),
        (Link("n", 5, "m"), "relation"),  # type: ignore[arg-type]
        (Create(Note(extra={"x": float("nan")}), artifact_id="m"), "nan"),
    ],
)
def test_a_patch_with_one_bad_operation_changes_nothing(bad: Any, error: str) -> None:
    working = Context().working
    with pytest.raises((TypeError, ValueError), match=error):
        prepare([Create(Note(text="good"), artifact_id="n"), bad], working)
    assert working.operations == []
    assert working.state.stored("n") is None
