"""Nothing about an exception of a user may break the recording of what it ended."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from support import Kick, Place, action, commit

from reactifact import Artifact, Consume, Context, PendingAction, ProduceCall, Runtime, create_agent, produce
from reactifact.errors import add_note, text_of, told

pytestmark = [pytest.mark.anyio]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise AttributeError("a bug in an exception's class")


class Opaque(Unprintable):
    __repr__ = Unprintable.__str__


class WithoutNotes(Opaque):
    def add_note(self, note: str) -> None:
        raise TypeError("takes no notes")


class NotesOfAnotherType(Exception):
    def __init__(self) -> None:
        super().__init__("odd notes")
        self.__notes__: Any = 7


class NotText(Exception):
    def __str__(self) -> Any:
        return 7


class Text(str):
    def __str__(self) -> str:
        raise AttributeError("a bug in a text's class")

    def encode(self, *_: Any) -> bytes:
        raise AttributeError("a bug in a text's class")


class OddText(Exception):
    def __str__(self) -> str:
        return Text("odd text")


HOSTILE = [
    Unprintable("x"),
    Opaque("x"),
    WithoutNotes("x"),
    NotesOfAnotherType(),
    NotText("x"),
    OddText(),
    ExceptionGroup("several", [Opaque("x"), WithoutNotes("y")]),
    RecursionError("deep"),
]


@pytest.fixture(params=HOSTILE, ids=lambda error: type(error).__name__)
def hostile(request: pytest.FixtureRequest) -> Exception:
    error = request.param
    assert isinstance(error, Exception)
    return error


async def planned(place: Place) -> Any:
    session = await place.store().open("s")

    def act(call: ProduceCall) -> None:
        for key in "abc":
            call.effects.act("mail", key=key)

    await commit(session.context, act)
    await session.save()
    return session


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_failed_send_is_recorded_whatever_its_error_is(
    git_place: Place, hostile: Exception, concurrency: int, caplog: pytest.LogCaptureFixture
) -> None:
    session, sent = await planned(git_place), []

    def dispatcher(context: Context, artifact: Artifact[PendingAction]) -> None:
        sent.append(artifact.data.idempotency_key)
        if sent[-1] != "b":
            raise hostile

    def callback(artifact: Artifact[PendingAction], error: Exception) -> None:
        raise Opaque("in the callback too")

    runtime = Runtime(
        session.context,
        session=session,
        dispatcher=dispatcher,
        dispatch_concurrency=concurrency,
        on_dispatch_error=callback,
    )
    with caplog.at_level(logging.DEBUG), pytest.raises(type(hostile)) as caught:
        await runtime.arun()
    assert caught.value is hostile
    found = await git_place.load("s")
    assert [action(found, key).status for key in "abc"] == ["failed", "dispatched", "failed"]
    assert all(action(found, key).error for key in "ac")
    await runtime.arun()
    assert sorted(sent) == ["a", "b", "c"]


async def test_a_drain_of_the_store_reports_it(git_place: Place, hostile: Exception) -> None:
    await planned(git_place)

    def dispatcher(context: Context, artifact: Artifact[PendingAction]) -> None:
        raise hostile

    report = await git_place.store().drain(dispatcher)
    assert (report.tried, report.delivered) == (3, 0)
    assert report.failed == [("s", "main", text_of(hostile))] * 3


async def test_an_agent_that_fails_so_does_not_stop_the_others(hostile: Exception) -> None:
    @produce(PendingAction, reacts_to=Kick)
    def broken(call: ProduceCall) -> None:
        raise hostile

    def callback(*_: Any) -> None:
        raise Opaque("in the callback too")

    context = Context()
    context.create(Kick(), id="k")
    agents = [create_agent("broken", consumes=[Consume(Kick)], produces=[broken])]
    await Runtime(context, agents, isolate_errors=True, on_agent_error=callback).arun()
    assert context.pending_events() == []


def test_the_text_of_an_exception_is_always_text() -> None:
    assert text_of(ValueError("plain")) == "plain"
    assert told(ValueError("plain")) == "ValueError: plain"
    assert text_of(Opaque("x")) == "Opaque, whose text cannot be had: its __str__ and __repr__ raise"
    for error in HOSTILE:
        assert type(told(error)) is str
        add_note(error, "a note")
