"""Code of two versions writes the same artifacts: nothing that one of them keeps there is lost by the other.

The versions are two classes under one type id; `deployed` says which one this process runs with.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import BaseModel, Field
from support import live

from reactifact import Consume, Runtime, create_agent, produce
from reactifact.branching import MergeConflict
from reactifact.context import Context
from reactifact.errors import ArtifactMutated, PayloadError
from reactifact.types import register
from reactifact.types.ids import registry

TYPE = "test.rolling"


class Line1(BaseModel):
    id: str
    count: int = 1


class Line2(Line1):
    gift: bool = False


class Step1(BaseModel):
    text: str


class Step2(Step1):
    done: bool = False


class Ticket1(BaseModel):
    title: str
    status: str = "open"
    steps: list[Step1] = Field(default_factory=list)
    lines: list[Line1] = Field(default_factory=list)
    by_name: dict[str, Line1] = Field(default_factory=dict)
    main: Line1 | None = None


class Ticket2(BaseModel):
    title: str
    status: str = "open"
    priority: int = 0
    steps: list[Step2] = Field(default_factory=list)
    lines: list[Line2] = Field(default_factory=list)
    by_name: dict[str, Line2] = Field(default_factory=dict)
    main: Line2 | None = None


@contextmanager
def deployed(model: type[BaseModel], **how: Any) -> Iterator[None]:
    """Run with one version of the class, as a process does that was deployed with it."""
    before = registry.by_name.get(TYPE), dict(registry.by_model), dict(registry.seen)
    for known in list(registry.by_model):
        if registry.by_model[known].type_id == TYPE:
            del registry.by_model[known]
    registry.by_name.pop(TYPE, None)
    register(model, type_id=TYPE, **how)
    try:
        yield
    finally:
        registry.by_model.clear()
        registry.by_model.update(before[1])
        registry.seen.clear()
        registry.seen.update(before[2])
        if before[0] is None:
            registry.by_name.pop(TYPE, None)
        else:
            registry.by_name[TYPE] = before[0]


def reopened(context: Context) -> Context:
    """Return the context as another process reads it."""
    return Context.from_dict(context.to_dict())


def written_by_new(**fields: Any) -> Context:
    with deployed(Ticket2):
        context = Context()
        context.create(Ticket2(title="down", **fields), id="t")
        return reopened(context)


def read_by_new(context: Context) -> Ticket2:
    with deployed(Ticket2):
        data: Ticket2 = live(reopened(context), "t").data
        return data


def changed_by_old(context: Context, **changes: Any) -> Context:
    with deployed(Ticket1):
        context = reopened(context)
        context.update("t", live(context, "t").data.model_copy(update=changes))
        return reopened(context)


def test_a_field_that_old_code_does_not_know_survives_its_updates() -> None:
    context = written_by_new(priority=5)
    for status in ("assigned", "closed"):
        context = changed_by_old(context, status=status)
    assert read_by_new(context) == Ticket2(title="down", status="closed", priority=5)


def test_what_old_code_writes_as_it_read_it_changes_nothing() -> None:
    context = written_by_new(priority=5)
    with deployed(Ticket1):
        context = reopened(context)
        assert context.update("t", live(context, "t").data).version == 0  # type: ignore[union-attr]


def test_a_blind_write_keeps_it_too() -> None:
    context = written_by_new(priority=5)

    @produce(Ticket1, reacts_to=Line1)
    def put(call: Any) -> None:
        call.effects.upsert(Ticket1(title="up"), id="t")

    with deployed(Ticket1):
        context = reopened(context)
        context.create(Line1(id="go"), id="go")
        agent = create_agent("a", consumes=[Consume(Line1)], produces=[put])
        Runtime(context, [agent]).run()
        context = reopened(context)
    assert read_by_new(context) == Ticket2(title="up", priority=5)


def test_it_survives_two_executions_of_one_generation() -> None:
    context = written_by_new(priority=5)

    def agent(name: str, change: dict[str, Any]) -> Any:
        @produce(Ticket1, reacts_to=Line1)
        def put(call: Any) -> None:
            call.effects.update(call.context.get("t"), **change)

        return create_agent(name, consumes=[Consume(Line1)], produces=[put])

    with deployed(Ticket1):
        context = reopened(context)
        context.create(Line1(id="go"), id="go")
        Runtime(context, [agent("a", {"title": "up"}), agent("b", {"status": "closed"})]).run()
        context = reopened(context)
    assert read_by_new(context) == Ticket2(title="up", status="closed", priority=5)


def test_nested_models_keep_theirs_under_fields_and_keys() -> None:
    one, two = Line2(id="one", gift=True), Line2(id="two", gift=True)
    context = written_by_new(main=one, by_name={"x": two})
    context = changed_by_old(context, main=Line1(id="one", count=9), by_name={"x": Line1(id="two", count=8)})
    found = read_by_new(context)
    assert found.main == Line2(id="one", count=9, gift=True)
    assert found.by_name == {"x": Line2(id="two", count=8, gift=True)}


def test_items_of_a_list_keep_theirs_where_they_move_or_change() -> None:
    context = written_by_new(lines=[Line2(id="a", gift=True), Line2(id="b"), Line2(id="c", gift=True)])
    context = changed_by_old(context, lines=[Line1(id="c", count=4), Line1(id="new"), Line1(id="a")])
    assert read_by_new(context).lines == [
        Line2(id="c", count=4, gift=True),
        Line2(id="new"),
        Line2(id="a", gift=True),
    ]


def test_an_item_that_went_takes_its_fields_along() -> None:
    context = written_by_new(lines=[Line2(id="a", gift=True), Line2(id="b", gift=True)])
    context = changed_by_old(context, lines=[Line1(id="b")])
    assert read_by_new(context).lines == [Line2(id="b", gift=True)]


def test_items_without_an_id_keep_theirs_where_they_stay_as_they_were() -> None:
    steps = [Step2(text="a", done=True), Step2(text="b"), Step2(text="c", done=True)]
    context = changed_by_old(written_by_new(steps=steps), steps=[Step1(text="c"), Step1(text="b")])
    assert read_by_new(context).steps == [Step2(text="c", done=True), Step2(text="b")]


def test_items_that_cannot_be_told_apart_are_refused_by_name() -> None:
    context = written_by_new(steps=[Step2(text="a", done=True), Step2(text="b")])
    with pytest.raises(PayloadError, match=r"artifact 't' is not written: steps holds fields .*newer code"):
        changed_by_old(context, steps=[Step1(text="reworded"), Step1(text="b")])


def test_data_of_another_class_in_its_place_is_refused_by_name() -> None:
    class Other(BaseModel):
        name: str

    class Ticket3(BaseModel):
        title: str
        main: Line1 | Other | None = None

    context = written_by_new(main=Line2(id="a", gift=True))
    with deployed(Ticket3):
        context = reopened(context)
        with pytest.raises(PayloadError, match=r"artifact 't' is not written: main holds fields"):
            context.update("t", Ticket3(title="down", main=Other(name="x")))
        context.update("t", Ticket3(title="down"))  # taken away, its fields with it
    assert read_by_new(context).main is None


def test_a_merge_of_old_code_keeps_it() -> None:
    context = written_by_new(priority=5)
    with deployed(Ticket1):
        ours = reopened(context)
        theirs = ours.branch(name="side")
        ours.create(Line1(id="x"), id="x")
        theirs.update("t", live(theirs, "t").data.model_copy(update={"status": "closed"}))
        ours.merge(theirs)
        context = reopened(ours)
    assert read_by_new(context) == Ticket2(title="down", status="closed", priority=5)


def take_status(base: Any, ours: Any, theirs: Any) -> Any:
    return ours.model_copy(update={"status": theirs.status, "title": ours.title})


def forked_between_versions(priority: int) -> tuple[Context, Context]:
    """Return two sides on which new code changed the priority, on one of them or on both."""
    with deployed(Ticket2):
        ours = Context()
        ours.create(Ticket2(title="down", priority=5), id="t")
        theirs = ours.branch(name="side")
        ours.update("t", Ticket2(title="up", priority=5 if priority == 5 else 6))
        theirs.update("t", Ticket2(title="down", status="closed", priority=7))
    return ours, theirs


def test_a_merge_function_of_old_code_keeps_the_side_that_changed_it() -> None:
    ours, theirs = forked_between_versions(5)
    with deployed(Ticket1, merge=take_status):
        ours.merge(theirs)
    assert read_by_new(ours) == Ticket2(title="up", status="closed", priority=7)


def test_a_merge_function_of_old_code_cannot_decide_what_it_does_not_see() -> None:
    ours, theirs = forked_between_versions(6)
    with deployed(Ticket1, merge=take_status), pytest.raises(MergeConflict):
        ours.merge(theirs)


def test_a_later_registered_revision_is_not_written_over() -> None:
    with deployed(Ticket2, revision=2):
        context = Context()
        context.create(Ticket2(title="down", priority=5), id="t")
        context = reopened(context)
    with deployed(Ticket1, revision=1):
        context = reopened(context)
        with pytest.raises(PayloadError, match=r"artifact 't' .* revision 2 of 'test.rolling'.* revision 1"):
            context.update("t", Ticket1(title="up"))
    with deployed(Ticket2, revision=2):
        assert live(context, "t").data == Ticket2(title="down", priority=5)


def test_what_a_migration_left_is_kept_and_migrated_once() -> None:
    runs: list[dict[str, Any]] = []

    def migrate(data: dict[str, Any]) -> dict[str, Any]:
        runs.append(data)
        return {**data, "title": data["title"] + "!"}

    context = written_by_new(priority=5)
    with deployed(Ticket1, migrate=migrate, revision="shouted"):
        context = reopened(context)
        for status in ("assigned", "closed"):
            context.update("t", live(context, "t").data.model_copy(update={"status": status}))
            context = reopened(context)
        runs.clear()
        assert live(context, "t").data == Ticket1(title="down!", status="closed")
        assert runs == []
    assert read_by_new(context) == Ticket2(title="down!", status="closed", priority=5)


def test_the_hook_of_new_code_does_not_run_on_what_old_code_wrote_over_it() -> None:
    def migrate(data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "priority": 3}  # for data from before there was a priority

    context = changed_by_old(written_by_new(priority=5), status="closed")
    with deployed(Ticket2, migrate=migrate):
        assert live(reopened(context), "t").data == Ticket2(title="down", status="closed", priority=5)


def test_a_change_in_place_of_what_other_code_wrote_is_refused() -> None:
    context = changed_by_old(written_by_new(priority=5), status="closed")
    with deployed(Ticket1):
        context = reopened(context)
        held = live(context, "t")
        held.data.status = "open"
        with pytest.raises(ArtifactMutated, match="'t' was changed in place"):
            context.get("t")


def test_what_cannot_be_read_is_not_written_over() -> None:
    class Titled(BaseModel):
        title: int

    context = written_by_new(priority=5)
    with deployed(Titled):
        context = reopened(context)
        with pytest.raises(PayloadError, match=r"artifact 't' is not written: what is stored cannot be read"):
            context.update("t", Titled(title=1))
        context.delete("t")
        context.create(Titled(title=1), id="t")


# -- a field that was added: nothing changed ------------------------------------------------------------


def test_writing_as_it_was_read_makes_no_version_after_a_field_was_added() -> None:
    with deployed(Ticket1):
        context = Context()
        context.create(Ticket1(title="down"), id="t")
    with deployed(Ticket2):
        context = reopened(context)
        assert context.update("t", live(context, "t").data).version == 0  # type: ignore[union-attr]
        assert context.update("t", Ticket2(title="down", priority=1)).version == 1  # type: ignore[union-attr]


def grown(change_ours: Any, change_theirs: Any) -> Context:
    """Merge a side that old code changed with one that new code changed, by new code."""
    with deployed(Ticket1):
        ours = Context()
        ours.create(Ticket1(title="down"), id="t")
        theirs = ours.branch(name="side")
        change_ours(ours)
    with deployed(Ticket2):
        change_theirs(theirs)
        ours.merge(theirs)
    return ours


def test_a_merge_sees_no_change_where_both_sides_read_the_same() -> None:
    ours = grown(
        lambda side: side.update("t", Ticket1(title="down", status="closed")),
        lambda side: side.update("t", Ticket2(title="down", status="closed")),
    )
    assert read_by_new(ours) == Ticket2(title="down", status="closed")


def test_a_merge_still_conflicts_where_the_new_field_says_something() -> None:
    with pytest.raises(MergeConflict, match="priority"):
        grown(
            lambda side: side.update("t", Ticket1(title="down", status="closed")),
            lambda side: side.update("t", Ticket2(title="down", status="closed", priority=1)),
        )


def test_a_deletion_wins_over_data_that_was_only_written_in_another_shape() -> None:
    def rewrite(side: Context) -> None:
        side.delete("t")
        side.create(Ticket2(title="down"), id="t")  # the same data, in the new shape

    ours = grown(lambda side: side.delete("t"), rewrite)
    assert ours.get("t") is None
