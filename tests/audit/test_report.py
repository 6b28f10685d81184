"""The report of an answer: what it rests on, who made it, and its two forms."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from support import Note, Place, commit, trigger_of

from reactifact import (
    Consume,
    Context,
    FakeLLM,
    LLMRequest,
    Message,
    ProduceCall,
    Runtime,
    RuntimeResources,
    create_agent,
    produce,
)
from reactifact._store.state import State, Stored
from reactifact.audit import (
    artifact_hash,
    build_report,
    context_hash,
    report_from_json,
    report_to_json,
    report_to_markdown,
)
from reactifact.replay import ReplayLLM, content_hash
from reactifact.sources import SourceRef

pytestmark = pytest.mark.anyio


class Row(BaseModel):
    amount: int
    source: SourceRef | None = None


class Answer(BaseModel):
    total: int


class Document(BaseModel):
    locator: str


@produce(Answer)
async def add(call: ProduceCall) -> None:
    rows = call.context.list_artifacts(Row)
    await call.context.resources.llm.complete(LLMRequest([Message.user("check the sum")]))
    made = call.effects.upsert(Answer(total=sum(row.data.amount for row in rows)), id="answer")
    for row in rows:
        call.effects.link(made, "calculated_from", row)
    call.effects.link(made, "by_the_rule_of", trigger_of(call))


async def answered(place: Place, tmp_path: Path) -> Context:
    llm = ReplayLLM(tmp_path / "calls.jsonl", mode="record", inner=FakeLLM("fine"), model="m")
    resources = RuntimeResources(llm=llm, principal="ann")
    session = await place.store().open("s", resources)
    context = session.context
    context.create(Document(locator="ledger.csv"), id="doc")
    for number in (1, 2):
        source = SourceRef(source_id="ledger", locator=f"ledger.csv:{number}")
        context.create(Row(amount=number, source=source), id=f"row:{number}")
        context.link(f"row:{number}", "found_in", "doc")
    context.create(Row(amount=39), id="row:3")
    context.create(Note(text="add them up"), id="rule")
    context.link("doc", "part_of", "archive")  # it dangles
    agent = create_agent("adder", consumes=[Consume(Note)], produces=[add])
    agent.code_version = "v7"
    await Runtime(context, agents=[agent], session=session).arun()
    return context


async def test_the_report_names_everything(place: Place, tmp_path: Path) -> None:
    context = await answered(place, tmp_path)
    report = build_report(context, "answer", session_id="s")
    assert build_report(context, context.get("answer"), session_id="s") == report  # type: ignore[arg-type]
    assert (report.session_id, report.context_version) == ("s", 1)
    assert report.context_sha256 == context_hash(context)
    answer = report.answer
    found = context.get("answer")
    assert found is not None
    assert (answer.artifact_id, answer.data_type, answer.version) == ("answer", "Answer", 0)
    assert (answer.sha256, answer.content_hash) == (artifact_hash(found), content_hash(found))
    assert (answer.produced_by, answer.author, answer.is_direct) == ("adder", "adder", False)
    assert answer.change == context.history()[-1].id
    assert answer.code == "v7"
    assert answer.trigger is not None
    assert answer.trigger["artifact_id"] == "rule"
    assert answer.reads[0] == ["rule", 0]
    assert [listing[0] for listing in answer.listings] == [f"{Row.__module__}.Row"]
    assert [call["model"] for call in answer.calls] == ["m"]
    assert answer.created_at == found.created_at.isoformat()
    assert [entry.artifact_id for entry in report.provenance] == ["row:1", "row:2", "row:3", "rule", "doc"]
    fact = report.provenance[0]
    assert (fact.produced_by, fact.author, fact.is_direct, fact.calls) == (None, "ann", True, [])
    assert fact.commit is not None
    assert fact.change is not None
    assert report.sources == ["ledger.csv:1", "ledger.csv:2", "ledger.csv"]
    kinds = {(source, relation, target) for source, relation, target in report.relations}
    assert kinds == {(one.source_id, one.relation, one.target_id) for one in report.relations}
    assert ("doc", "part_of", "archive") in kinds
    assert len(kinds) == 7


async def test_all_relations_by_default_a_filter_by_choice(place: Place, tmp_path: Path) -> None:
    context = await answered(place, tmp_path)
    report = build_report(context, "answer", relations=["calculated_from"])
    assert [entry.artifact_id for entry in report.provenance] == ["row:1", "row:2", "row:3"]
    with pytest.raises(TypeError, match=r"pass \['calculated_from'\]"):
        build_report(context, "answer", relations="calculated_from")


async def test_what_was_read_can_be_followed(place: Place, tmp_path: Path) -> None:
    context = await answered(place, tmp_path)
    report = build_report(context, "answer", relations=[], reads=True)
    assert {entry.artifact_id for entry in report.provenance} == {"rule", "row:1", "row:2", "row:3"}
    assert report.relations == []


async def test_a_circle_ends_and_an_unknown_id_is_an_error() -> None:
    context = Context()
    for name in "ab":
        context.create(Note(text=name), id=name)
    context.link("a", "knows", "b")
    context.link("b", "knows", "a")
    report = build_report(context, "a")
    assert [entry.artifact_id for entry in report.provenance] == ["b"]
    assert (report.session_id, report.commit, report.state) == ("", None, "")
    assert report.answer.commit is None
    with pytest.raises(KeyError, match="no artifact 'c'"):
        build_report(context, "c")


async def test_an_update_by_hand_names_its_author(place: Place, tmp_path: Path) -> None:
    context = await answered(place, tmp_path)
    context.resources.principal = "bob"
    context.update("answer", Answer(total=0))
    context.commits.commit_direct()
    answer = build_report(context, "answer").answer
    assert (answer.author, answer.is_direct, answer.version, answer.produced_by) == ("bob", True, 1, "adder")
    assert (answer.code, answer.calls) == ("", [])


async def test_json_and_back(place: Place, tmp_path: Path) -> None:
    report = build_report(await answered(place, tmp_path), "answer", session_id="s")
    text = report_to_json(report)
    assert '"data_type": "Answer"' in text
    record = json.loads(text)
    assert list(record) == sorted(record)
    assert report_from_json(text) == report
    assert json.loads(report_to_json(report, indent=None)) == record
    for bad in ("nonsense", "[]", "{}", '{"format": 99}'):
        with pytest.raises(ValueError, match="not an audit report"):
            report_from_json(bad)


async def test_markdown_shows_it_and_obeys_nobody(place: Place, tmp_path: Path) -> None:
    report = build_report(await answered(place, tmp_path), "answer", session_id="s")
    text = report_to_markdown(report)
    assert text.startswith("# Audit report\n")
    assert report.answer.sha256[:12] in text
    for source in report.sources:
        assert f"- {source}" in text
    assert "ann (directly)" in text
    assert "v7" in text
    context = Context()
    context.create(Document(locator="a|b\n# forged <b>"), id="x`|`\n## forged")
    forged = report_to_markdown(build_report(context, "x`|`\n## forged"))
    headings = [line for line in forged.splitlines() if line.startswith("#")]
    assert headings == ["# Audit report", "## Sources", "## Provenance"]
    row: Any = next(line for line in forged.splitlines() if line.startswith("| ``"))
    assert row.replace("\\|", "").count("|") == 9


async def test_what_several_had_listed_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    found = State.stored

    def stored(state: State, artifact_id: str) -> Stored | None:
        asked.append(artifact_id)
        return found(state, artifact_id)

    context = Context()
    for number in range(30):
        await commit(context, listing(number))
    with monkeypatch.context() as patched:
        patched.setattr(State, "stored", stored)
        report = build_report(context, "note:29", reads=True)
    notes = [f"note:{number}" for number in range(29)]
    assert [(entry.artifact_id, entry.distance) for entry in report.provenance] == [
        ("kick", 1),
        *((name, 1) for name in notes),
    ]
    assert max(Counter(name for name in asked if name in notes).values()) < 10


def listing(number: int) -> Callable[[ProduceCall], object]:
    def work(call: ProduceCall) -> None:
        call.context.list_artifacts(Note)
        call.effects.create(Note(text=str(number)), id=f"note:{number}")

    return work
