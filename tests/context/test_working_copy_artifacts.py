"""Artifacts of a `Context` (API §3): direct changes, order, snapshot, versions, in-place changes."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest
from pydantic import BaseModel
from support import Note, Order, SpecialNote, live

from reactifact import Context, EventType, RuntimeResources
from reactifact.errors import ArtifactMutated, WrongType


class StoppedClock:
    """A clock that stands still."""

    def now(self) -> datetime:
        return datetime(2024, 2, 29, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing waits here")


def kinds(context: Context) -> list[tuple[EventType, str]]:
    return [(event.type, event.artifact_id) for event in context.pending_events()]


def test_create_makes_one_artifact_and_one_event() -> None:
    context = Context()
    artifact = context.create(Note(text="a"), id="n")
    assert (artifact.id, artifact.version, artifact.data) == ("n", 0, Note(text="a"))
    assert artifact.created_by_commit is None
    assert context.get("n") is artifact
    assert kinds(context) == [(EventType.ARTIFACT_CREATED, "n")]
    assert context.version == 0
    assert context.head_id is None


def test_create_under_a_taken_id_returns_what_is_there() -> None:
    context = Context()
    first = context.create(Note(text="a"), id="n")
    again = context.create(Note(text="b"), id="n")
    assert again is first
    assert (again.data.text, again.version) == ("a", 0)
    assert len(context.pending_events()) == 1


def test_without_an_id_the_factory_makes_one_else_a_uuid() -> None:
    UUID(Context().create(Note()).id)
    numbered = iter(range(10))
    context = Context(RuntimeResources(id_factory=lambda kind: f"{kind}-{next(numbered)}"))
    assert [context.create(Note()).id, context.create(Order(item="x")).id] == ["Note-0", "Order-1"]


def test_better_29_an_id_that_the_factory_made_twice_is_refused() -> None:
    context = Context(RuntimeResources(id_factory=lambda kind: "same"))
    context.create(Note(text="a"))
    with pytest.raises(ValueError, match=r"'same'.*taken"):
        context.create(Note(text="b"))
    assert live(context, "same").data.text == "a"
    assert len(context.list_artifacts()) == 1


def test_update_counts_a_version_and_queues_one_event() -> None:
    context = Context()
    artifact = context.create(Note(text="a"), id="n")
    created = artifact.created_at
    assert artifact.updated_at == created
    assert context.update("n", Note(text="b")) is artifact
    assert (artifact.version, artifact.data.text) == (1, "b")
    assert artifact.created_at == created < artifact.updated_at
    assert artifact.history == [Note(text="a")]
    assert kinds(context)[1:] == [(EventType.ARTIFACT_UPDATED, "n")]
    assert context.version == 0  # a direct change is not a commit that counts


def test_update_with_equal_data_does_nothing() -> None:
    context = Context()
    artifact = context.create(Note(text="a", extra={"x": 1, "y": 2}), id="n")
    assert context.update("n", Note(text="a", extra={"y": 2, "x": 1})) is artifact
    assert (artifact.version, artifact.history) == (0, [])
    assert len(context.pending_events()) == 1


def test_update_and_delete_of_what_is_absent() -> None:
    context = Context()
    assert context.update("no", Note()) is None
    assert context.delete("no") is False
    assert context.get("no") is None
    assert context.pending_events() == []


def test_delete_removes_and_tells() -> None:
    context = Context()
    context.create(Note(text="a"), id="n")
    assert context.delete("n") is True
    assert context.get("n") is None
    assert context.list_artifacts() == []
    assert kinds(context)[1:] == [(EventType.ARTIFACT_DELETED, "n")]
    assert context.delete("n") is False


def test_an_id_may_be_used_again_after_a_delete() -> None:
    context = Context()
    context.create(Note(text="a"), id="n")
    context.update("n", Note(text="b"))
    context.delete("n")
    fresh = context.create(Note(text="c"), id="n")
    assert (fresh.version, fresh.history, fresh.data.text) == (0, [], "c")


def test_an_artifact_may_change_its_type() -> None:
    context = Context()
    context.create(Note(text="a"), id="n")
    context.update("n", Order(item="x"))
    assert live(context, "n").data == Order(item="x")
    assert live(context, "n").history == [Note(text="a")]
    assert context.list_artifacts(Note) == []
    assert [found.id for found in context.list_artifacts(Order)] == ["n"]


def test_list_is_in_order_of_creation_and_includes_subclasses() -> None:
    context = Context()
    for name, data in (("z", Note()), ("a", SpecialNote()), ("m", Order(item="x")), ("b", Note())):
        context.create(data, id=name)
    context.update("z", Note(text="later"))  # an update does not move it
    assert [found.id for found in context.list_artifacts()] == ["z", "a", "m", "b"]
    assert [found.id for found in context.list_artifacts(Note)] == ["z", "a", "b"]
    assert [found.id for found in context.list_artifacts(SpecialNote)] == ["a"]


def test_latest_is_the_one_created_last() -> None:
    context = Context()
    assert context.latest(Note) is None
    context.create(Note(text="1"), id="z")
    context.create(Note(text="2"), id="a")
    context.create(Order(item="x"), id="o")
    context.update("z", Note(text="changed last"))
    found = context.latest(Note)
    assert found is not None
    assert found.id == "a"


def test_better_49_latest_of_equal_creation_times_is_the_last_created() -> None:
    context = Context(RuntimeResources(clock=StoppedClock()))
    first = context.create(Note(text="1"), id="z")
    second = context.create(Note(text="2"), id="a")
    assert first.created_at == second.created_at
    assert context.latest(Note) is second


def test_snapshot_shows_everything_live_committed_or_not() -> None:
    context = Context()
    context.create(Note(text="a", count=1), id="n")
    context.create(Order(item="x"), id="o")
    context.branch()  # commits what is open
    context.create(Note(text="late"), id="l")
    context.delete("o")
    assert context.snapshot() == {
        "n": {"text": "a", "count": 1, "tags": [], "extra": {}},
        "l": {"text": "late", "count": 0, "tags": [], "extra": {}},
    }


def test_a_context_without_resources_makes_its_own() -> None:
    assert isinstance(Context().resources, RuntimeResources)
    shared = RuntimeResources()
    assert Context(shared).resources is shared


def test_data_must_be_a_model() -> None:
    with pytest.raises(TypeError, match="pydantic model, not dict"):
        Context().create({"text": "a"}, id="n")  # type: ignore[type-var]


def test_better_27_data_changed_in_place_is_refused_with_the_id() -> None:
    context = Context()
    artifact = context.create(Note(text="a"), id="note-7")
    artifact.data.text = "sneaked in"
    with pytest.raises(ArtifactMutated, match="note-7"):
        context.get("note-7")
    assert live(context, "note-7").data.text == "a"
    assert artifact.data.text == "a"  # the object was read anew


def test_better_27_a_nested_change_in_place_is_found_at_the_commit() -> None:
    context = Context()
    artifact = context.create(Note(tags=["a"]), id="note-7")
    artifact.data.tags.append("b")
    with pytest.raises(ArtifactMutated, match="note-7"):
        context.branch()
    assert live(context, "note-7").data.tags == ["a"]


def test_the_model_that_was_passed_in_may_be_changed_afterwards() -> None:
    context = Context()
    mine = Note(tags=["a"])
    context.create(mine, id="n")
    mine.tags.append("b")
    assert live(context, "n").data.tags == ["a"]


def test_get_with_a_type_refuses_another_one() -> None:
    context = Context()
    context.create(Note(text="a"), id="n")
    found = context.get("n", Note)
    assert found is not None
    assert found.data.text == "a"
    assert context.get("n", BaseModel) is found  # a subclass is one, too
    assert context.get("absent", Note) is None
    with pytest.raises(WrongType, match=r"'n' is of type .*Note, not Order.*context\.get\('n'\)"):
        context.get("n", Order)
