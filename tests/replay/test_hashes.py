"""The hashes: what counts, what does not, and the vectors on the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel
from support import Note, Order, Place, commit

from reactifact import Context, PendingAction, PendingQuestion, RuntimeResources, register_type
from reactifact._store.commits import state_hash
from reactifact._store.layout import Roots
from reactifact.audit import artifact_hash, context_hash, data_hash
from reactifact.replay import content_hash, counter_ids

PAGE = Path(__file__).parents[2] / "docs" / "replay.md"


class Passing(BaseModel):
    transient_fields: ClassVar[frozenset[str]] = frozenset({"seen"})
    text: str
    seen: int = 0


class Invoice(BaseModel):
    number: str
    amount: int
    paid: bool = False


register_type(Invoice, type_id="example.Invoice")


def test_transient_fields_do_not_count() -> None:
    assert data_hash(Passing(text="a", seen=1)) == data_hash(Passing(text="a", seen=2))
    assert data_hash(Passing(text="a")) != data_hash(Passing(text="b"))
    action = PendingAction(kind="mail", idempotency_key="k")
    assert data_hash(action) == data_hash(action.model_copy(update={"dispatched_at": "2026-01-01"}))
    assert data_hash(action) != data_hash(action.model_copy(update={"status": "failed"}))
    question = PendingQuestion(question="?")
    assert data_hash(question) == data_hash(question.model_copy(update={"resolved_at": "2026-01-01"}))


def test_artifact_and_content_hash() -> None:
    context = Context()
    artifact = context.create(Note(text="a"), id="n")
    assert artifact_hash(artifact) == data_hash(artifact.data)
    assert content_hash(artifact) == content_hash(artifact.data)
    assert content_hash(artifact) == content_hash(artifact.data.model_dump())


def test_order_and_times_do_not_count() -> None:
    one, other = Context(), Context()
    for context, ids in ((one, "ab"), (other, "ba")):
        for artifact_id in ids:
            context.create(Note(text=artifact_id), id=artifact_id)
        for artifact_id in ids:
            context.link(artifact_id, "knows", "c")
    assert context_hash(one) == context_hash(other)
    one.update("a", Note(text="other"))
    assert context_hash(one) != context_hash(other)


@pytest.mark.anyio
async def test_compaction_changes_no_hash(place: Place) -> None:
    session = await place.store().open("s")
    context = session.context
    for number in range(4):
        await commit(context, lambda call, n=number: call.effects.upsert(Note(count=n), id="n"))
    before = context_hash(context)
    context.compact(keep_commits=1)
    assert context_hash(context) == before
    assert context_hash(context.clone()) == before


def test_counted_ids() -> None:
    make = counter_ids()
    assert [make("Note"), make("Order"), make("Note")] == ["note:0000", "order:0001", "note:0002"]
    assert counter_ids(start=41)("X") == "x:0041"
    context = Context(RuntimeResources(id_factory=counter_ids()))
    assert context.create(Order(item="tea")).id == "order:0000"


# -- the page ----------------------------------------------------------------------------------------


def vectors() -> list[dict[str, Any]]:
    blocks = re.findall(r"```json vector\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return [json.loads(block) for block in blocks]


def test_every_rule_has_a_vector() -> None:
    assert {vector["rule"] for vector in vectors()} == {
        "content_hash",
        "data_hash",
        "context_hash",
        "state",
    }


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: vector["rule"])
def test_the_vectors_of_the_page(vector: dict[str, Any]) -> None:
    rule, given, expected = vector["rule"], vector["given"], vector["hash"]
    if rule == "content_hash":
        found = content_hash(given)
    elif rule == "data_hash":
        found = data_hash({k: v for k, v in given["data"].items() if k not in given["transient"]})
        assert found == data_hash(Passing(**given["data"]))
    elif rule == "state":
        found = state_hash(Roots(artifacts=given["artifacts"], relations=given["relations"]))
    else:
        context = Context()
        for item in given["artifacts"]:
            assert item["type"] == "example.Invoice"
            context.create(Invoice(**item["data"]), id=item["id"])
        for source, relation, target in given["relations"]:
            context.link(source, relation, target)
        assert context.version == given["version"]
        found = context_hash(context)
    assert found == expected


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: vector["rule"])
def test_the_rules_of_the_page_alone_lead_there(vector: dict[str, Any]) -> None:
    """Another program: nothing of reactifact, only what the page says."""
    import hashlib

    from blake3 import blake3

    def canonical(value: Any) -> bytes:
        text = json.dumps(value, ensure_ascii=False, sort_keys=True, indent=2)
        return (text + "\n").encode()

    rule, given = vector["rule"], vector["given"]
    if rule == "content_hash":
        found = blake3(canonical(given)).hexdigest()
    elif rule == "data_hash":
        data = {k: v for k, v in given["data"].items() if k not in given["transient"]}
        found = hashlib.sha256(canonical(data)).hexdigest()
    elif rule == "state":
        lines = f"artifacts {given['artifacts'] or '-'}\nrelations {given['relations'] or '-'}\n"
        found = blake3(lines.encode()).hexdigest()
    else:
        artifacts = sorted(
            [a["id"], a["type"], a["version"], hashlib.sha256(canonical(a["data"])).hexdigest()]
            for a in given["artifacts"]
        )
        record = {
            "artifacts": artifacts,
            "relations": sorted(given["relations"]),
            "version": given["version"],
        }
        found = hashlib.sha256(canonical(record)).hexdigest()
    assert found == vector["hash"]
