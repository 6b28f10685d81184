"""What JSON cannot carry is refused with model and field named, before anything is committed (API §3)."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import BaseModel, Field, SecretStr
from support import Note, Place, SpecialNote, commit

from reactifact import Context, RuntimeResources, create_agent
from reactifact.errors import InvalidName, PayloadError

pytestmark = pytest.mark.anyio


class Measured(BaseModel):
    value: float


class Login(BaseModel):
    user: str
    password: SecretStr


class Album(BaseModel):
    cover: Note


class Grid(BaseModel):
    cells: dict[Any, int]


class Hidden(BaseModel):
    shown: int = 0
    token: str = Field(default="", exclude=True)


REFUSED = [
    (Measured(value=math.nan), r"Measured\.value.*nan"),
    (Measured(value=math.inf), r"Measured\.value.*inf"),
    (Login(user="a", password=SecretStr("s3cret")), r"Login\.password.*secret"),
    (Album(cover=SpecialNote(rank=3)), r"Album\.cover.*SpecialNote"),
    (Grid(cells={(1, 2): 3}), r"Grid\.cells.*keys are texts"),
    (Grid(cells={1: 3}), r"Grid\.cells.*keys are texts"),
    (Hidden(shown=1, token="t"), r"Hidden\.token.*excluded"),
    (Note(text="\ud800"), r"Note\.text.*surrogate"),
    (Note(extra={"deep": [{"x": math.nan}]}), r"Note\.extra.*nan"),
]
params = pytest.mark.parametrize(("data", "says"), REFUSED, ids=lambda value: type(value).__name__)


@params
def test_a_direct_change_is_refused_and_leaves_nothing(data: BaseModel, says: str) -> None:
    context = Context()
    context.create(Note(text="there"), id="n")
    context.drain_events()
    with pytest.raises(PayloadError, match=f"(?s){says}"):
        context.create(data, id="x")
    with pytest.raises(PayloadError, match=f"(?s){says}"):
        context.update("n", data)
    assert context.get("x") is None
    assert context.snapshot() == {"n": Note(text="there").model_dump()}
    assert context.pending_events() == []


@params
async def test_better_7_a_patch_that_fails_halfway_leaves_nothing(
    data: BaseModel, says: str, place: Place
) -> None:
    def work(call: Any) -> None:
        call.effects.create(Note(text="first"), id="first")
        call.effects.link("first", "cites", "n")
        call.effects.create(data, id="bad")
        call.effects.delete("n")

    session = await place.store().open("s")
    session.context.create(Note(text="there"), id="n")
    await session.save()
    with pytest.raises(PayloadError, match=f"(?s){says}"):
        await commit(session.context, work)
    assert session.context.version == 0
    assert set(session.context.snapshot()) == {"n", "kick"}
    assert session.context.relations() == []
    await session.save()
    context = await place.load("s")
    assert set(context.snapshot()) == {"n", "kick"}
    assert (context.version, context.relations()) == (0, [])


def test_the_secret_is_not_in_the_message() -> None:
    with pytest.raises(PayloadError) as caught:
        Context().create(Login(user="a", password=SecretStr("s3cret")))
    assert "s3cret" not in str(caught.value)


@params
async def test_an_edit_that_is_refused_writes_nothing(data: BaseModel, says: str, place: Place) -> None:
    async def edit() -> None:
        async with place.store().edit("s") as context:
            context.create(Note(text="first"), id="first")
            context.create(data, id="bad")

    with pytest.raises(PayloadError, match=f"(?s){says}"):
        await edit()
    assert not await place.store().has_session("s")


@pytest.mark.parametrize(
    "link",
    [("first", "\ud800", "n"), ("first", "cites", "\ud800"), ("", "cites", "n"), ("\ud800", "cites", "n")],
)
async def test_better_7_a_link_that_cannot_be_stored_leaves_nothing(link: tuple[str, str, str]) -> None:
    def work(call: Any) -> None:
        call.effects.create(Note(text="first"), id="first")
        call.effects.link(*link)

    context = Context()
    with pytest.raises(InvalidName):
        await commit(context, work)
    assert set(context.snapshot()) == {"kick"}
    with pytest.raises(InvalidName):
        context.link(*link)
    context.branch()  # what is left can be committed
    assert (context.version, context.relations()) == (0, [])


async def test_names_and_messages_that_cannot_be_stored_are_refused_at_once(place: Place) -> None:
    with pytest.raises(InvalidName, match="agent"):
        create_agent("\ud800")
    with pytest.raises(InvalidName, match="principal"):
        Context(RuntimeResources(principal="\ud800")).create(Note())
    context = Context()
    fork = context.branch()
    fork.create(Note(), id="n")
    with pytest.raises(InvalidName, match="message"):
        context.merge(fork, message="\ud800")
    assert (context.snapshot(), context.version) == ({}, 0)
    for words in ({"author": "\ud800"}, {"message": "\ud800"}):
        with pytest.raises(InvalidName):
            await _edited(place, **words)
    assert not await place.store().has_session("s")


async def _edited(place: Place, **words: Any) -> None:
    async with place.store().edit("s", **words) as context:
        context.create(Note(), id="n")
