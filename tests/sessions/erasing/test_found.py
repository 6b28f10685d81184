"""What goes with an artifact that is erased: actions and questions that came from it, and none of others."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import BaseModel
from support import Note, commit

from reactifact import PendingQuestion, ProduceCall, SessionStore
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.erasure import Erasure, Personal

pytestmark = [pytest.mark.anyio]


class Customer(BaseModel):
    """A person."""

    name: Annotated[str, Personal()]
    city: str = ""


async def goes(work: object, *ids: str, fields_only: bool = False) -> Erasure:
    """Return what an erasure of the customer `c-1` would take after an agent did some work."""
    store = SessionStore(InMemoryKVBackend())
    session = await store.open("s")
    session.context.create(Customer(name="Wilhelmina", city="Brno"), id="c-1")
    session.context.create(Customer(name="Bob", city="Brno"), id="c-10")
    session.context.create(Note(text="x"), id="7")
    await session.save()
    await commit(session.context, work)  # type: ignore[arg-type]
    await session.save()
    return await store.erase("s", *(ids or ("c-1",)), by="o", fields_only=fields_only, dry_run=True)


def because(report: Erasure) -> dict[str, str]:
    return {one.id: one.because for one in report.artifacts if one.because}


async def test_what_was_read_for_it_names_it_or_is_about_what_names_it() -> None:
    def work(call: ProduceCall) -> None:
        call.effects.act("mail", key="one", payload={"to": ["c-1"]})
        call.effects.act("mail", key="of:c-1", payload={})
        call.effects.act("mail", key="text", payload={"text": "hello c-1, how are you"})
        call.effects.act("mail", key="follows", payload={"after": "action:one"})
        call.effects.act("mail", key="other", payload={"to": "c-10", "text": "c-1x, c-1-b"})
        call.effects.create(PendingQuestion(question="may c-1 pay?"), id="ask")

    found = because(await goes(work))
    assert found == {
        "action:one": "c-1",
        "action:of:c-1": "c-1",
        "action:text": "c-1",
        "action:follows": "action:one",
        "ask": "c-1",
    }


async def test_what_was_read_is_enough() -> None:
    def work(call: ProduceCall) -> None:
        assert call.context.get("c-1") is not None
        call.effects.act("mail", key="one", payload={"text": "hello"})

    assert because(await goes(work)) == {"action:one": "c-1"}


async def test_of_what_listed_its_type_only_what_repeats_it_goes() -> None:
    def work(call: ProduceCall) -> None:
        assert len(call.context.list_artifacts(Customer)) == 2
        call.effects.act("mail", key="telling", payload={"text": "Wilhelmina came"})
        call.effects.act("mail", key="silent", payload={"text": "Brno has 2"})

    report = await goes(work)
    assert because(report) == {"action:telling": "c-1"}


async def test_an_id_that_is_a_word_like_any_other_is_looked_for_exactly() -> None:
    def work(call: ProduceCall) -> None:
        call.effects.act("mail", key="one", payload={"count": "7", "text": "no"})
        call.effects.act("mail", key="two", payload={"text": "7 apples"})

    assert because(await goes(work, "7")) == {"action:one": "7"}


async def test_of_fields_alone_only_what_repeats_them_goes() -> None:
    def work(call: ProduceCall) -> None:
        assert call.context.get("c-1") is not None
        call.effects.act("mail", key="telling", payload={"text": "dear Wilhelmina"})
        call.effects.act("mail", key="silent", payload={"id": "c-1", "city": "Brno"})
        call.effects.create(Note(text="Wilhelmina"), id="note")

    report = await goes(work, fields_only=True)
    assert because(report) == {"action:telling": "c-1"}
    assert report.rests == ("action:silent", "note")
    assert report.artifacts[0].fields == ("name",)


async def test_each_version_counts_once() -> None:
    def work(call: ProduceCall) -> None:
        call.effects.update("c-1", name="W.")

    report = await goes(work)
    assert [(one.id, one.versions) for one in report.artifacts] == [("c-1", 2)]
    assert report.artifacts[0].type_id.endswith("Customer")
