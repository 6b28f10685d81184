"""What the loop changes while a worker thread reads for the same context is never lost.

A store stops a worker thread in the middle of a read, at each of its reads in turn.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import anyio
import pytest
from support import Answer, Note, Order, Outside, Question, action, answering_agents, commit, notifier

from reactifact import (
    Consume,
    Context,
    MergeConflict,
    ProduceCall,
    Runtime,
    SessionStore,
    create_agent,
    produce,
)
from reactifact._store._backends.git.backend import GitBackend
from reactifact._store.objects import GitObject, Oid
from reactifact.branching import BranchStore
from reactifact.errors import SessionBusy, StaleSession

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]


class Gated(GitBackend):
    """A repository, far away, that stops a worker thread at one of its reads until it is let go."""

    stop_at = 0
    reads = 0

    def __init__(self, path: Path) -> None:
        super().__init__(path, durability="os")
        self.is_stopped = threading.Event()
        self.go = threading.Event()

    @property
    def is_local(self) -> bool:
        return False

    def stop(self, at: int) -> None:
        """Stop the thread that makes the read of this number, counted from now on."""
        self.reads, self.stop_at = 0, at
        self.is_stopped.clear()
        self.go.clear()

    def read_many(self, oids: Iterable[Oid]) -> dict[Oid, GitObject]:
        self._pass()
        return super().read_many(oids)

    def refs(self, prefix: str = "refs/") -> dict[str, Oid]:
        self._pass()
        return super().refs(prefix)

    def _pass(self) -> None:
        if threading.current_thread() is threading.main_thread() or not self.stop_at:
            return
        self.reads += 1
        if self.reads == self.stop_at:
            self.is_stopped.set()
            assert self.go.wait(60)


async def beside(store: Gated, slow: Callable[[], Awaitable[Any]], meanwhile: Callable[[], Any]) -> bool:
    """Run `slow`, and `meanwhile` where it is stopped; return whether it was."""
    done = anyio.Event()

    async def run() -> None:
        try:
            await slow()
        finally:
            done.set()

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        while not (store.is_stopped.is_set() or done.is_set()):
            await anyio.lowlevel.checkpoint()
        stopped = store.is_stopped.is_set()
        try:
            if stopped:
                meanwhile()
        finally:
            store.stop_at = 0
            store.go.set()
    return stopped


async def at_each_read(once: Callable[[int], Awaitable[bool]]) -> None:
    """Call with 1, 2, 3 ... until no read was stopped any more; there must have been some."""
    number = 1
    while await once(number):
        number += 1
    assert number > 2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.git"


def theirs(path: Path) -> SessionStore:
    return SessionStore(path, durability="os")


async def moved(path: Path, name: str, store: Gated) -> Any:
    """Return a session whose branch somebody else has moved, with one direct change of its own."""
    session = await SessionStore(store).open(name)
    session.context.create(Note(text="base"), id="base")
    await session.save()
    other = await theirs(path).open(name)
    other.context.create(Note(text="theirs"), id="theirs")
    await other.save()
    session.context.create(Note(text="mine"), id="mine")
    return session


def ids(context: Context) -> set[str]:
    return {found.id for found in context.list_artifacts(Note)}


async def test_a_change_made_while_a_refresh_reads_is_kept_at_each_of_its_reads(path: Path) -> None:
    async def once(number: int) -> bool:
        store = Gated(path)
        session = await moved(path, f"s{number}", store)

        def meanwhile() -> None:
            session.context.create(Note(text="now"), id="meanwhile")
            session.context.update("base", Note(text="changed meanwhile"))
            session.context.link("mine", "about", "meanwhile")

        store.stop(number)
        stopped = await beside(store, session.refresh, meanwhile)
        await session.save()
        stored = (await theirs(path).open(session.session_id)).context
        assert ids(stored) == {"base", "theirs", "mine", *(["meanwhile"] if stopped else [])}
        if stopped:
            assert stored.get("base").data.text == "changed meanwhile"
            assert len(stored.relations("mine")) == 1
            waiting = [event.artifact_id for event in stored.pending_events()]
            assert {"mine", "meanwhile"} <= set(waiting)
        return stopped

    await at_each_read(once)


async def test_a_change_made_meanwhile_against_theirs_is_a_conflict_and_stays(path: Path) -> None:
    async def once(number: int) -> bool:
        store = Gated(path)
        session = await moved(path, f"s{number}", store)
        store.stop(number)

        def meanwhile() -> None:
            session.context.create(Note(text="not theirs"), id="theirs")

        async def refresh() -> None:
            try:
                await session.refresh()
            except MergeConflict as error:
                conflicts.append(str(error))

        conflicts: list[str] = []
        stopped = await beside(store, refresh, meanwhile)
        if stopped:
            assert len(conflicts) == 1
            assert "theirs" in conflicts[0]
            assert session.context.get("theirs").data.text == "not theirs"
            assert ids(session.context) == {"base", "mine", "theirs"}
        return stopped

    await at_each_read(once)


async def test_a_turn_that_is_started_meanwhile_waits_and_sees_what_was_read(path: Path) -> None:
    store = Gated(path)
    session = await moved(path, "s", store)
    session.context.create(Question(text="?"), id="q")
    seen: list[set[str]] = []

    @produce(Answer)
    async def look(call: ProduceCall) -> Answer:
        seen.append(ids(call.context))
        return Answer(text="!")

    agent = create_agent("looker", consumes=[Consume(Question)], produces=[look])
    store.stop(2)
    async with anyio.create_task_group() as group:
        runtime = Runtime(session.context, [agent], session=session)
        await beside(store, session.refresh, lambda: group.start_soon(runtime.arun))
    assert seen == [{"base", "mine", "theirs"}]
    assert ids((await theirs(path).open("s")).context) == {"base", "mine", "theirs"}


async def test_going_back_and_compacting_are_refused_meanwhile(path: Path) -> None:
    store = Gated(path)
    session = await moved(path, "s", store)
    refused: list[str] = []

    def meanwhile() -> None:
        for verb in (lambda: session.context.checkout(0), lambda: session.context.compact(keep_commits=1)):
            with pytest.raises(Exception, match="while the context is being"):
                verb()
            refused.append("one")

    store.stop(2)
    assert await beside(store, session.refresh, meanwhile)
    assert len(refused) == 2


async def test_a_refresh_beside_a_turn_is_refused_and_the_turn_goes_on(path: Path) -> None:
    session = await theirs(path).open("s")
    session.context.create(Question(text="?"), id="q")
    entered, leave = anyio.Event(), anyio.Event()

    @produce(Answer)
    async def answer(call: ProduceCall) -> Answer:
        entered.set()
        await leave.wait()
        return Answer(text="once")

    agent = create_agent("a", consumes=[Consume(Question)], produces=[answer])
    async with anyio.create_task_group() as group:
        group.start_soon(Runtime(session.context, [agent], session=session).arun)
        await entered.wait()
        with pytest.raises(SessionBusy, match=r"refresh.* while run .* is in progress"):
            await session.refresh()
        leave.set()
    stored = (await theirs(path).open("s")).context
    assert [found.data.text for found in stored.list_artifacts(Answer)] == ["once"]


async def test_a_new_session_that_another_process_began_too_keeps_its_changes(path: Path) -> None:
    first, second = await theirs(path).open("s"), await theirs(path).open("s")
    second.context.create(Note(text="theirs"), id="theirs")
    await second.save()
    first.context.create(Question(text="?"), id="q")
    first.context.create(Note(text="mine"), id="mine")
    with pytest.raises(StaleSession):
        await first.save()
    assert await first.refresh()
    assert await Runtime(first.context, answering_agents(), session=first).arun() == 2
    assert ids((await theirs(path).open("s")).context) == {"theirs", "mine"}


async def test_what_was_recorded_of_deliveries_and_is_not_written_yet_outlives_it(path: Path) -> None:
    session = await theirs(path).open("s")
    session.context.create(Order(item="x"), id="o")
    await Runtime(session.context, [notifier()], session=session).arun()
    other = await theirs(path).open("s")
    other.context.create(Note(text="theirs"), id="theirs")
    await other.save()
    assert session.context.mark_dispatched("action:notify:o") is not None
    assert await session.refresh()
    await session.save()
    outside = Outside()
    again = await theirs(path).open("s")
    assert action(again.context, "notify:o").status == "dispatched"
    await Runtime(again.context, [notifier()], session=again, dispatcher=outside).arun()
    assert outside.tried == []


async def test_a_merge_that_was_not_saved_is_not_dropped_without_a_word(path: Path) -> None:
    session = await theirs(path).open("s")
    session.context.create(Note(text="base"), id="base")
    await session.save()
    fork = session.context.branch(name="fork")
    await commit(fork, lambda call: call.effects.create(Note(text="made"), id="made"))
    other = await theirs(path).open("s")
    other.context.create(Note(text="theirs"), id="theirs")
    await other.save()
    session.context.merge(fork, message="take the fork")
    with pytest.raises(StaleSession, match="take the fork"):
        await session.refresh()
    assert ids(session.context) == {"base", "made"}


async def test_a_change_of_a_fork_that_is_being_saved_after_a_compaction_is_kept(path: Path) -> None:
    async def once(number: int) -> bool:
        store, name = Gated(path), f"s{number}"
        session = await SessionStore(store).open(name)
        for text in "abc":
            await commit(session.context, lambda call, text=text: call.effects.create(Note(), id=text))
        await session.save()
        fork = session.context.branch(name="fork")
        fork.create(Note(text="fork"), id="forked")
        other = await theirs(path).open(name)
        other.context.compact(keep_commits=1)
        await other.save()
        store.stop(number)

        async def save() -> None:
            await BranchStore(session.store.database).save_branch(fork, session_id=name, name="fork")

        stopped = await beside(store, save, lambda: fork.create(Note(text="now"), id="meanwhile"))
        if stopped:
            await BranchStore(session.store.database).save_branch(fork, session_id=name, name="fork")
        stored = await BranchStore(path).load_branch(name, "fork")
        assert stored is not None
        assert ids(stored) == {*"abc", "forked", *(["meanwhile"] if stopped else [])}
        assert stored.version == 3
        return stopped

    await at_each_read(once)


async def test_a_change_made_while_a_turn_looks_whether_the_branch_moved_is_kept(path: Path) -> None:
    """Somebody compacted: the turn goes on above the rewritten history, with what was changed meanwhile."""
    store = Gated(path)
    session = await SessionStore(store).open("s")
    for text in "abc":
        await commit(session.context, lambda call, text=text: call.effects.create(Note(), id=text))
    await session.save()
    other = await theirs(path).open("s")
    other.context.compact(keep_commits=1)
    await other.save()
    session.context.create(Note(text="before"), id="before")
    store.stop(1)
    runtime = Runtime(session.context, answering_agents(), session=session)
    assert await beside(store, runtime.arun, lambda: session.context.create(Question(text="?"), id="q"))
    stored = (await theirs(path).open("s")).context
    assert ids(stored) == {*"abc", "before"}
    assert len(stored.list_artifacts(Answer)) == 1
