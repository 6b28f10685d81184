"""Settling conflicts: what `MergeConflict` tells, policies, previews, events, all or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from support import Note, Order, Place, live

from reactifact import Context, EventType, MergeConflict, Relation, register_type
from reactifact._store import canonical
from reactifact._store.state import State
from reactifact.errors import PayloadError, StoreError
from reactifact.merging import CONFLICT, ConflictDetail, MergePreview, counter, per_field

PAGE = Path(__file__).parents[2] / "docs" / "branching.md"


class Bounded(BaseModel):
    count: int = 0
    title: str = ""


def texts(context: Context) -> dict[str, str]:
    return {found.id: found.data.text for found in context.list_artifacts(Note)}


def clashing() -> tuple[Context, Context]:
    """Return two branches that clash on `a`, `gone` (deleted by theirs) and `left` (deleted by ours)."""
    ours = Context()
    for name in ("a", "gone", "left", "z"):
        ours.create(Note(text="old"), id=name)
    ours.drain_events()
    theirs = ours.branch(name="experiment")
    ours.update("a", Note(text="ours", count=1))
    theirs.update("a", Note(text="theirs", count=1))
    ours.update("gone", Note(text="ours"))
    theirs.delete("gone")
    ours.delete("left")
    theirs.update("left", Note(text="theirs"))
    theirs.create(Note(text="new"), id="new")
    theirs.link("a", "cites", "new")
    ours.drain_events()
    theirs.drain_events()
    return ours, theirs


def conflict_of(ours: Context, theirs: Context, **options: Any) -> MergeConflict:
    before = ours.snapshot(), ours.relations(), ours.version, ours.head_id, ours.pending_events()
    with pytest.raises(MergeConflict) as caught:
        ours.merge(theirs, **options)
    assert (
        ours.snapshot(),
        ours.relations(),
        ours.version,
        ours.head_id,
        ours.pending_events(),
    ) == before
    return caught.value


# -- what a conflict tells ---------------------------------------------------------------------


def test_details_hold_the_models_and_the_fields_that_differ() -> None:
    found = conflict_of(*clashing())
    a, gone, left = found.details
    assert (a.artifact_id, a.fields) == ("a", ("text",))
    assert (a.base, a.ours, a.theirs) == (
        Note(text="old"),
        Note(text="ours", count=1),
        Note(text="theirs", count=1),
    )
    assert (gone.ours, gone.theirs, gone.fields) == (Note(text="ours"), None, ("text",))
    assert (left.ours, left.theirs) == (None, Note(text="theirs"))
    assert found.conflicts == [
        "a: changed differently on both sides (text)",
        "gone: deleted by theirs, changed by ours (text)",
        "left: deleted by ours, changed by theirs (text)",
    ]


def test_the_error_prints_as_the_page_shows() -> None:
    ours = Context()
    ours.create(Order(item="x"), id="order:42")
    theirs = ours.branch(name="experiment")
    ours.update("order:42", Order(item="x", status="paid"))
    theirs.update("order:42", Order(item="x", status="cancelled"))
    assert f"```\n{conflict_of(ours, theirs)}\n```" in PAGE.read_text(encoding="utf-8")


def test_a_side_that_no_class_reads_comes_as_stored() -> None:
    def write(context: Context, text: str) -> None:
        """Write as a process would that has the class."""
        payload = canonical.encode({"text": text})
        context.line.state.put("a", "nowhere.Lost", payload, "1", context.commits.origin())
        context.commits.commit_note("as another process wrote it")

    ours = Context()
    write(ours, "old")
    theirs = ours.branch()
    write(ours, "ours")
    write(theirs, "theirs")
    with pytest.raises(MergeConflict) as caught:
        ours.merge(theirs)
    (detail,) = caught.value.details
    assert (detail.base, detail.ours) == ({"text": "old"}, {"text": "ours"})
    assert (detail.theirs, detail.fields) == ({"text": "theirs"}, ("text",))
    assert detail.types == ("nowhere.Lost",) * 3
    with pytest.raises(TypeError, match="the policy returned"):
        ours.merge(theirs, policy=lambda found: {"text": "made up"})
    ours.merge(theirs, policy=lambda found: found.theirs)
    stored = ours.line.state.stored("a")
    assert stored is not None
    assert ours.line.state.payload(stored.meta) == canonical.encode({"text": "theirs"})


def test_an_artifact_that_both_created_has_no_base() -> None:
    ours, theirs = Context(), Context()
    ours.create(Note(text="1"), id="a")
    theirs.create(Note(text="2"), id="a")
    (detail,) = conflict_of(ours, theirs).details
    assert detail.base is None
    assert "base" not in str(detail)


# -- policies ----------------------------------------------------------------------------------


def test_policy_ours() -> None:
    ours, theirs = clashing()
    assert ours.merge(theirs, policy="ours") is None
    assert texts(ours) == {"a": "ours", "gone": "ours", "z": "old", "new": "new"}
    ours.merge(theirs)  # settled for good
    assert texts(ours)["a"] == "ours"


def test_policy_theirs() -> None:
    ours, theirs = clashing()
    ours.merge(theirs, policy="theirs")
    assert texts(ours) == {"a": "theirs", "left": "theirs", "z": "old", "new": "new"}
    assert live(ours, "a").version == 2  # above both sides
    assert [note.text for note in live(ours, "a").history] == ["old", "ours"]
    assert texts(ours) == {**texts(theirs), "z": "old"}


def test_both_policies_from_both_sides_agree() -> None:
    one, other = clashing()
    two, another = clashing()
    one.merge(other, policy="theirs")
    another.merge(two, policy="ours")
    assert one.snapshot() == another.snapshot()
    assert one.line.state.roots.artifacts == another.line.state.roots.artifacts
    assert one.line.state.roots.relations == another.line.state.roots.relations


def test_a_policy_is_asked_for_each_conflict() -> None:
    ours, theirs = clashing()
    asked: list[str] = []

    def decide(detail: ConflictDetail) -> Any:
        asked.append(detail.artifact_id)
        if detail.artifact_id == "a":
            assert isinstance(detail.ours, Note)
            return detail.ours.model_copy(update={"text": "settled"})
        return "theirs" if detail.artifact_id == "gone" else detail.theirs

    ours.merge(theirs, policy=decide)
    assert asked == ["a", "gone", "left"]
    assert texts(ours) == {"a": "settled", "left": "theirs", "z": "old", "new": "new"}
    assert ours.version == 1
    assert {(w.artifact_id, w.op_type) for w in ours.history()[-1].writes} == {
        ("a", "update"),
        ("gone", "delete"),
        ("left", "create"),
        ("new", "create"),
    }


@pytest.mark.parametrize("answer", [CONFLICT, None], ids=["CONFLICT", "None"])
def test_a_policy_may_leave_conflicts(answer: Any) -> None:
    ours, theirs = clashing()
    error = conflict_of(ours, theirs, policy=lambda d: "ours" if d.artifact_id == "a" else answer)
    assert [detail.artifact_id for detail in error.details] == ["gone", "left"]


def test_what_a_policy_changes_in_place_is_what_it_returns() -> None:
    ours, theirs = clashing()

    def decide(detail: ConflictDetail) -> Any:
        if not isinstance(detail.ours, Note):
            return "ours"
        detail.ours.text = "in place"
        return detail.ours

    ours.merge(theirs, policy=decide)
    assert texts(ours)["a"] == "in place"


def test_what_a_policy_raises_reaches_the_caller_and_nothing_is_applied() -> None:
    ours, theirs = clashing()
    before = ours.snapshot(), ours.version, ours.line.tip, ours.line.state.is_clean

    def decide(detail: ConflictDetail) -> Any:
        if detail.artifact_id == "left":
            raise LookupError("nobody knows")
        return "theirs"

    with pytest.raises(LookupError, match="nobody knows") as caught:
        ours.merge(theirs, policy=decide)
    assert "'left'" in caught.value.__notes__[0]
    assert (ours.snapshot(), ours.version, ours.line.tip, ours.line.state.is_clean) == before


@pytest.mark.parametrize(
    ("policy", "error", "match"),
    [
        ("mine", ValueError, "'mine' is not a policy"),
        (3, TypeError, "3 is not a policy"),
        (lambda detail: {"text": "x"}, TypeError, "the policy returned"),
        (lambda detail: "mine", TypeError, "the policy returned 'mine'"),
        (lambda detail: Note(extra={"x": float("nan")}), PayloadError, "NaN|nan"),
    ],
)
def test_what_is_no_policy_or_no_answer_is_refused(policy: Any, error: type[Exception], match: str) -> None:
    ours, theirs = clashing()
    before = ours.snapshot(), ours.version
    with pytest.raises(error, match=match):
        ours.merge(theirs, policy=policy)
    assert (ours.snapshot(), ours.version) == before


def test_a_policy_may_not_change_the_contexts() -> None:
    ours, theirs = clashing()

    def decide(detail: ConflictDetail) -> Any:
        ours.update("z", Note(text=detail.artifact_id))
        return "ours"

    with pytest.raises(StoreError, match="may only look"):
        ours.merge(theirs, policy=decide)
    assert ours.version == 0
    assert "new" not in texts(ours)


def test_a_policy_settles_two_intents_under_one_key_and_each_type() -> None:
    ours = Context()
    ours.create(Note(text="old"), id="a")
    theirs = ours.branch()
    ours.update("a", Order(item="x"))
    theirs.update("a", Note(text="theirs"))
    ours.merge(theirs, policy="theirs")
    assert live(ours, "a").data == Note(text="theirs")
    assert ours.list_artifacts(Order) == []


# -- merge functions ---------------------------------------------------------------------------


def bounded(merge: Any) -> tuple[Context, Context]:
    register_type(Bounded, merge=merge)
    ours = Context()
    ours.create(Bounded(count=1), id="b")
    theirs = ours.branch()
    ours.update("b", Bounded(count=2))
    theirs.update("b", Bounded(count=3))
    return ours, theirs


def _raises(*sides: Any) -> Any:
    raise ZeroDivisionError("no way")


@pytest.mark.parametrize(
    ("merge", "error"),
    [(_raises, ZeroDivisionError), (lambda *sides: 3, TypeError), (per_field(missing=counter), TypeError)],
)
def test_a_merge_function_that_fails_leaves_everything_as_it_was(merge: Any, error: type[Exception]) -> None:
    ours, theirs = bounded(merge)
    before = ours.snapshot(), ours.version, ours.line.tip
    with pytest.raises(error) as caught:
        ours.merge(theirs)
    assert "'b'" in caught.value.__notes__[0]
    assert (ours.snapshot(), ours.version, ours.line.tip) == before


def test_a_policy_settles_what_a_merge_function_leaves() -> None:
    ours, theirs = bounded(lambda *sides: CONFLICT)
    assert [d.artifact_id for d in conflict_of(ours, theirs).details] == ["b"]
    ours.merge(theirs, policy="theirs")
    assert live(ours, "b").data.count == 3


def test_a_merge_function_does_not_run_for_a_deletion() -> None:
    ours, theirs = bounded(per_field(count=counter))
    theirs.delete("b")
    assert [d.theirs for d in conflict_of(ours, theirs).details] == [None]


def test_a_version_never_goes_back() -> None:
    ours, theirs = bounded(per_field(count=counter))
    for count in range(4, 9):
        theirs.update("b", Bounded(count=count))
    ours.merge(theirs)
    found = live(ours, "b")
    assert (found.version, found.data.count) == (live(theirs, "b").version + 1, 9)
    assert [b.count for b in found.history] == [1, 3, 4, 5, 6, 7, 8]


# -- previews ----------------------------------------------------------------------------------


def standing(context: Context) -> tuple[Any, ...]:
    line = context.line
    return (
        line.tip,
        line.draft,
        line.record,
        line.state.roots,
        dict(line.state.changed),
        dict(line.state.edges),
        set(line.objects.objects),
        list(context.working.operations),
        [event.artifact_id for event in context.working.events],
        line.ledger.tip,
        context.snapshot(),
    )


def test_a_preview_says_what_would_happen_and_changes_nothing() -> None:
    ours, theirs = clashing()
    theirs.delete("z")
    before = standing(ours), standing(theirs)
    found = ours.merge(theirs, dry_run=True)
    assert (standing(ours), standing(theirs)) == before
    assert isinstance(found, MergePreview)
    assert (found.adopted, found.deleted, found.combined) == (("new",), ("z",), ())
    assert (found.linked, found.unlinked) == ((Relation("a", "cites", "new"),), ())
    assert [text.partition(":")[0] for text in found.conflicts] == ["a", "gone", "left"]
    assert [detail.artifact_id for detail in found.details] == ["a", "gone", "left"]
    assert str(found).splitlines()[:3] == ["adopt new", "delete z", "link a cites new"]


def test_a_preview_shows_what_the_policy_decides() -> None:
    ours, theirs = clashing()
    found = ours.merge(theirs, dry_run=True, policy="theirs")
    assert found is not None
    assert (found.adopted, found.combined, found.deleted) == (("new",), ("a", "left"), ("gone",))
    assert found.conflicts == ()
    ours.merge(theirs, policy="theirs")
    left = ours.merge(theirs, dry_run=True)
    assert left is not None
    assert left.is_empty
    assert str(left) == "nothing to take over"


def test_a_preview_of_empty_and_of_unrelated_contexts() -> None:
    empty, full = Context(), Context()
    full.create(Note(), id="a")
    for target, other, adopted in ((empty, full, ("a",)), (full, empty, ()), (empty, Context(), ())):
        before = standing(target), standing(other)
        found = target.merge(other, dry_run=True)
        assert found is not None
        assert found.adopted == adopted
        assert (standing(target), standing(other)) == before
    assert empty.line.record is None


# -- events and atomicity ----------------------------------------------------------------------


def test_better_30_events_of_what_was_taken_over() -> None:
    ours, theirs = clashing()
    theirs.delete("z")
    ours.merge(theirs, policy="theirs", emit_events=True)
    assert {(event.type, event.artifact_id) for event in ours.pending_events()} == {
        (EventType.ARTIFACT_CREATED, "new"),
        (EventType.ARTIFACT_UPDATED, "a"),
        (EventType.ARTIFACT_CREATED, "left"),
        (EventType.ARTIFACT_DELETED, "gone"),
        (EventType.ARTIFACT_DELETED, "z"),
    }


@pytest.mark.anyio
async def test_better_30_events_of_a_merge_are_stored(place: Place) -> None:
    session = await place.store().open("s")
    session.context.create(Note(), id="n")
    session.context.drain_events()
    fork = session.context.branch()
    fork.create(Note(), id="new")
    session.context.merge(fork, emit_events=True)
    await session.save()
    assert [event.artifact_id for event in (await place.load("s")).pending_events()] == ["new"]


def test_a_merge_that_breaks_off_leaves_everything_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = clashing()
    theirs.create(Note(text="second"), id="second")
    held = live(ours, "a")
    before = ours.snapshot(), ours.relations(), ours.version, ours.head_id
    adopt, calls = State.adopt, []

    def failing(self: State, *arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 2:
            raise OSError("disk full")
        adopt(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(State, "adopt", failing)
        with pytest.raises(OSError, match="disk full"):
            ours.merge(theirs, policy="theirs")
    assert (ours.snapshot(), ours.relations(), ours.version, ours.head_id) == before
    assert ours.line.state.is_clean
    assert ours.pending_events() == []
    ours.merge(theirs, policy="theirs")
    assert (held.data.text, ours.version) == ("theirs", 1)


# -- merge_from --------------------------------------------------------------------------------


def test_merge_from_takes_what_is_absent_or_newer() -> None:
    ours, theirs = Context(), Context()
    for context in (ours, theirs):
        context.create(Note(text="same version"), id="same")
    theirs.update("same", Note(text="newer"))
    theirs.create(Note(text="absent"), id="absent")
    ours.create(Note(text="0"), id="mine")
    ours.update("mine", Note(text="1"))
    theirs.create(Note(text="older"), id="mine")
    ours.link("mine", "cites", "same")
    theirs.link("mine", "cites", "absent")
    ours.merge_from(theirs)
    assert texts(ours) == {"same": "newer", "mine": "1", "absent": "absent"}
    assert live(ours, "same").version == 1
    assert {(r.relation, r.target_id) for r in ours.relations("mine")} == {
        ("cites", "same"),
        ("cites", "absent"),
    }
    (done,) = ours.history()
    assert (done.author, ours.version) == ("merge", 1)
    kinds = {type(operation).__name__ for operation in done.operations}
    assert "Link" in kinds
    ours.merge_from(theirs)
    assert ours.version == 1


def test_merge_from_deletes_nothing_and_raises_no_conflict() -> None:
    ours, theirs = clashing()
    ours.merge_from(theirs)
    assert texts(ours) == {"a": "ours", "gone": "ours", "left": "theirs", "z": "old", "new": "new"}
    assert ours.pending_events() == []
