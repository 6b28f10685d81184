"""A store whose reads fail once, at every place of a turn: what was done is not done twice, nor half."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from support import Answer, Echo, Note, Question

from reactifact import (
    Agent,
    Artifact,
    Consume,
    Context,
    PendingAction,
    ProduceCall,
    Runtime,
    SessionStore,
    create_agent,
    produce,
)
from reactifact._store.objects import GitObject, Oid
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.errors import StoreError
from reactifact.testing import FaultyBackend

pytestmark = pytest.mark.anyio

NAMES = ("one", "two", "three")


class FailingReads(FaultyBackend):
    """A store whose n-th read fails, counted from when `fail_read` is set; the others succeed."""

    def __init__(self, store: InMemoryKVBackend) -> None:
        super().__init__(store)
        self.fail_read: int | None = None

    def read_many(self, oids: Iterable[Oid]) -> dict[Oid, GitObject]:
        if self.fail_read is not None:
            self.fail_read -= 1
            if self.fail_read == 0:
                raise StoreError("injected: this read fails")
        return super().read_many(oids)


class Work:
    """Three agents on each question, each of which writes in all the ways there are."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.sent: list[str] = []
        self.fails: str | None = None
        self.agents = [self._agent(place, name) for place, name in enumerate(NAMES)]

    def _agent(self, place: int, name: str) -> Agent:
        @produce(Answer, also_creates=[Echo, PendingAction])
        async def work(call: ProduceCall) -> Answer:
            if name == self.fails:
                raise ConnectionError("no route")
            call.context.create(Echo(text=name))
            call.effects.update(f"n{place}", text=name)
            call.effects.link(f"n{place + 4}", "about", f"n{place + 5}")
            call.effects.act("mail", key=name)
            self.runs.append(name)
            return Answer(text=name)

        return create_agent(name, consumes=[Consume(Question)], produces=[work])

    def send(self, context: Context, action: Artifact[PendingAction]) -> None:
        self.sent.append(action.data.idempotency_key)

    def runtime(self, session: Any) -> Runtime:
        return Runtime(session.context, self.agents, session=session, dispatcher=self.send)


async def asked() -> InMemoryKVBackend:
    inner = InMemoryKVBackend()
    session = await SessionStore(inner).open("s")
    for number in range(12):
        session.context.create(Note(text=str(number)), id=f"n{number}")
        session.context.link(f"n{number}", "near", "n0")
    session.context.drain_events()
    session.context.create(Question(text="why"), id="q")
    await session.save()
    return inner


def shown(context: Context) -> Any:
    notes = [(note.id, note.version, note.data.text) for note in context.list_artifacts(Note)]
    others = [sorted(found.data.text for found in context.list_artifacts(kind)) for kind in (Answer, Echo)]
    links = [(one.source_id, one.relation, one.target_id) for one in context.relations()]
    waiting = [event.artifact_id for event in context.pending_events()]
    return notes, others, links, waiting, context.version, [commit.id for commit in context.history()]


@pytest.mark.parametrize("held", [False, True])
async def test_a_turn_whose_store_fails_to_read_once_is_simply_run_again(held: bool) -> None:
    failures = cut_short = 0
    while True:
        inner, work = await asked(), Work()
        if held:
            work.fails = "two"
            first = await SessionStore(inner).open("s")
            with pytest.raises(ConnectionError):
                await work.runtime(first).arun()
            work.fails = None
        backend = FailingReads(inner)
        session = await SessionStore(backend).open("s")
        backend.fail_read = failures + 1
        runtime = work.runtime(session)
        try:
            await runtime.arun()
        except StoreError:
            failures += 1
        else:
            break
        backend.fail_read = None
        assert runtime.last_stats is not None
        failed = runtime.last_stats.errors  # an execution that failed by it has to be done again
        if session.context.version == 0:  # nothing is committed: then all is as it was
            cut_short += len(work.runs) == len(NAMES) and not failed
            stored = await SessionStore(inner).open("s")
            assert shown(session.context) == shown(stored.context)
            staged = session.context.line.objects.objects.values()  # to be written with the next save
            assert not any(found.kind == "commit" for found in staged)
        await work.runtime(session).arun()
        assert set(work.runs) == set(NAMES)
        assert len(work.runs) <= len(NAMES) + failed
        assert sorted(work.sent) == sorted(NAMES)
        stored = await SessionStore(inner).open("s")
        assert shown(session.context) == shown(stored.context)
        assert [commit.author for commit in stored.context.history()] == list(NAMES)
        _, (answers, echoes), _, waiting, _, _ = shown(stored.context)
        assert answers == echoes == sorted(NAMES)
        assert waiting == []
    assert failures > 20
    assert cut_short > 5  # in the middle of committing
