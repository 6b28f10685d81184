"""A report against a store, later: after more work, a compaction, a forgery."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import Note, Order, Outside, Place, notifier

from reactifact import Context, Runtime
from reactifact.audit import AuditReport, build_report, report_from_json, report_to_json, verify_report

pytestmark = pytest.mark.anyio


async def traded(place: Place, orders: int = 2) -> Runtime:
    session = await place.store().open("shop")
    runtime = Runtime(session.context, agents=[notifier()], session=session, dispatcher=Outside())
    for number in range(orders):
        session.context.create(Order(item=f"tea {number}"), id=f"o{number}")
        await runtime.arun()
        session.context.link(f"receipt:o{number}", "receipt_for", f"o{number}")
        session.context.link(f"receipt:o{number}", "told_by", f"action:notify:o{number}")
    await session.save()
    return runtime


def kept(context: Context, artifact_id: str = "receipt:o0") -> AuditReport:
    """Return a report as it comes back from a file."""
    return report_from_json(report_to_json(build_report(context, artifact_id)))


async def test_the_store_bears_it_out_whatever_happened_since(place: Place) -> None:
    runtime = await traded(place)
    report = kept(runtime.context)
    assert len(report.entries) == 3
    found = verify_report(report, place.store().database)
    assert (found.ok, found.differences, found.notes, found.entries) == (True, [], [], 3)
    runtime.context.update("receipt:o0", runtime.context.get("receipt:o1").data)  # type: ignore[union-attr]
    runtime.context.delete("o0")
    await runtime.arun()
    assert runtime.session is not None
    await runtime.session.save()
    assert verify_report(report, place.store().database).ok


async def test_after_a_compaction_it_says_what_it_could_not_check(git_place: Place) -> None:
    runtime = await traded(git_place, 4)
    report = kept(runtime.context)
    session = await git_place.store().open("shop")
    session.context.compact(keep_commits=1)
    await session.save()
    found = verify_report(report, git_place.store().database)
    assert found.ok, found.differences
    assert any("was rewritten by a compaction" in note for note in found.notes)
    assert any("was folded by a compaction" in note for note in found.notes)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("content_hash", "0" * 64, "receipt:o0.content_hash"),
        ("sha256", "0" * 64, "receipt:o0.sha256"),
        ("commit", "0" * 40, "receipt:o0.commit"),
        ("produced_by", "somebody", "receipt:o0.produced_by"),
        ("code", "v0", "receipt:o0.code"),
        ("version", 7, "receipt:o0.version"),
        ("trigger", None, "receipt:o0.trigger"),
        ("calls", [{"model": "m", "request": "r", "response": "s"}], "receipt:o0.calls"),
        ("reads", [], "receipt:o0.reads"),
        ("committed_at", "2020-01-01T00:00:00+00:00", "receipt:o0.committed_at"),
    ],
)
async def test_every_field_of_an_entry_counts(place: Place, field: str, value: Any, said: str) -> None:
    report = kept((await traded(place)).context)
    forged = replace(report, answer=replace(report.answer, **{field: value}))
    found = verify_report(forged, place.store().database)
    assert found.differences
    assert found.differences[0].startswith(f"{said}: the report says")


async def test_everything_around_the_entries_counts(place: Place) -> None:
    report = kept((await traded(place)).context)
    database = place.store().database
    link = ("receipt:o0", "receipt_for", "o1")
    for changed, said in (
        ({"context_version": 9}, "context_version"),
        ({"context_sha256": "0"}, "context_sha256"),
        ({"state": "0"}, "state"),
        ({"sources": ["x"]}, "sources"),
        ({"relations": [*report.relations, link]}, "relations"),
        ({"relations": report.relations[1:]}, "relations"),
        ({"provenance": report.provenance[1:]}, f"{report.provenance[0].artifact_id}: the answer rests on"),
        ({"commit": "0" * 40, "change": "0"}, f"commit {'0' * 40}"),
        ({"ledger": "0" * 40}, f"commit {'0' * 40} is not in the ledger"),
    ):
        found = verify_report(replace(report, **changed), database)  # type: ignore[arg-type]
        assert found.differences, changed
        assert found.differences[0].startswith(said), found.differences


async def test_another_store_does_not_bear_it_out(place: Place, tmp_path: Path) -> None:
    report = kept((await traded(place)).context)
    other = Place(tmp_path / "other.git")
    await traded(other)
    found = verify_report(report, other.store().database)
    assert not found.ok
    assert "is not in" in found.differences[0]


async def test_a_report_of_what_is_in_no_store() -> None:
    context = Context()
    context.create(Note(text="a"), id="a")
    with pytest.raises(ValueError, match="not in a store, or not saved"):
        verify_report(build_report(context, "a"), context.line.database)
