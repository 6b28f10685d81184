"""`per_step` and `call.memo`: what has been paid for is on stable storage before the generation ends."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from pydantic import BaseModel
from support import Answer, Note, Place, Question, git, live, trigger_of

from reactifact import (
    Agent,
    Consume,
    Context,
    ProduceCall,
    Runtime,
    RuntimeResources,
    Session,
    SessionStore,
    create_agent,
    produce,
)
from reactifact._context import push
from reactifact._runtime import steps
from reactifact.errors import InvalidName, PayloadError, StoreError
from reactifact.testing import JumpingClock

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]

COUNT = 6


class Calls:
    """Executions on questions that each wait until they are let go, and count what was paid."""

    def __init__(self, count: int = COUNT) -> None:
        self.paid: list[str] = []
        self.gates = {f"q{number}": anyio.Event() for number in range(count)}
        self.agents = [self._agent()]

    def _agent(self) -> Agent:
        @produce(Answer)
        async def answer(call: ProduceCall) -> None:
            question = trigger_of(call).id
            await self.gates[question].wait()
            self.paid.append(question)
            call.effects.create(Answer(text=question), id=f"a:{question}")

        return create_agent("answerer", consumes=[Consume(Question)], produces=[answer])

    def runtime(self, session: Session, policy: Any = "per_step", limit: int | None = COUNT) -> Runtime:
        return Runtime(session.context, self.agents, limit, session=session, session_save_policy=policy)


async def asked(place: Place, count: int = COUNT) -> Session:
    session = await place.store().open("s")
    for number in range(count):
        session.context.create(Question(text="?"), id=f"q{number}")
    return session


async def kept(place: Place) -> int:
    """Return how many results stand in the store, as another process sees it."""
    found = await place.store().load_session("s")
    return 0 if found is None else len(found.commits.held)


@pytest.fixture(params=["git", "sqlite"])
def durable(request: pytest.FixtureRequest, tmp_path: Any) -> Place:
    return Place(tmp_path / ("state.git" if request.param == "git" else "state.db"))


async def test_a_finished_execution_is_stored_while_others_of_its_generation_run(durable: Place) -> None:
    session, calls = await asked(durable), Calls()
    async with anyio.create_task_group() as group:
        group.start_soon(calls.runtime(session).arun)
        for number in range(3):
            calls.gates[f"q{number}"].set()
        while await kept(durable) < 3:
            await anyio.sleep(0)
        other = Calls()  # a process that begins where this one would have been killed
        for gate in other.gates.values():
            gate.set()
        copy = await durable.branches().fork("s", "s/killed")
        session_there = await durable.branches().load_branch("s", copy.branch)
        assert session_there is not None
        assert await Runtime(session_there, other.agents, COUNT).arun() == 3
        assert sorted(other.paid) == ["q3", "q4", "q5"]
        assert [commit.author for commit in session_there.history()] == ["answerer"] * COUNT
        assert session.context.version == 0  # the generation commits as a whole, when it has ended
        for gate in calls.gates.values():
            gate.set()
    assert len(calls.paid) == COUNT
    found = await durable.load("s")
    assert [commit.writes[0].artifact_id for commit in found.history()] == [
        f"a:q{number}" for number in range(COUNT)
    ]
    assert found.commits.held == []
    assert not found.pending_events()


async def test_executions_that_end_together_share_a_barrier(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path / "state.git")
    session, calls = await asked(place), Calls()
    written: list[int] = []

    async def counted(context: Context) -> None:
        written.append(len(context.commits.held))
        await push.publish(context)

    monkeypatch.setattr(steps, "publish", counted)
    for gate in calls.gates.values():
        gate.set()
    await calls.runtime(session).arun()
    assert sum(written) > 0
    assert len(written) <= 2


async def test_the_last_execution_of_a_generation_costs_no_write_of_its_own(tmp_path: Any) -> None:
    place = Place(tmp_path / "state.git")
    session, calls = await asked(place, 1), Calls(1)
    calls.gates["q0"].set()
    await calls.runtime(session).arun()
    assert "keep" not in git(tmp_path / "state.git", "log", "--all", "--format=%s")


async def test_one_after_another_each_is_stored_before_the_next_begins(tmp_path: Any) -> None:
    place = Place(tmp_path / "state.git")
    session = await asked(place, 3)
    seen: list[int] = []

    @produce(Answer)
    async def answer(call: ProduceCall) -> Answer:
        seen.append(await kept(place))
        return Answer(text="yes")

    agents = [create_agent("answerer", consumes=[Consume(Question)], produces=[answer])]
    await Runtime(session.context, agents, session=session, session_save_policy="per_step").arun()
    assert seen == [0, 1, 2]


async def test_generations_are_numbered_and_undone_as_without_it(tmp_path: Any) -> None:
    place = Place(tmp_path / "state.git")
    session, calls = await asked(place), Calls()
    for gate in calls.gates.values():
        gate.set()
    await calls.runtime(session).arun()
    entries = [one for one in await place.branches().log("s") if one.record and one.record.context_version]
    assert {entry.record.generation for entry in entries if entry.record} == {1}
    assert "finished execution" in git(tmp_path / "state.git", "log", "--all")
    await place.branches().undo("s")
    found = await place.load("s")
    assert found.version == 0
    assert found.commits.held == []
    assert len(found.pending_events()) == COUNT  # what was undone is owed again, and nothing stands for it


async def test_an_answer_from_outside_during_the_generation_is_kept_too(tmp_path: Any) -> None:
    place = Place(tmp_path / "state.git")
    session, calls = await asked(place), Calls()
    async with anyio.create_task_group() as group:
        group.start_soon(calls.runtime(session).arun)
        await anyio.wait_all_tasks_blocked()
        session.context.create(Note(text="meanwhile"), id="n")
        calls.gates["q0"].set()
        while await kept(place) < 1:
            await anyio.sleep(0)
        assert live(await place.load("s"), "n").data.text == "meanwhile"
        for gate in calls.gates.values():
            gate.set()
    assert len(calls.paid) == COUNT


async def test_a_store_that_cannot_be_written_ends_the_turn_and_starts_nothing_more(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path / "state.git")
    session, calls = await asked(place), Calls()
    full = True

    async def publish(context: Context) -> None:
        if full:
            raise StoreError("the disk is full")
        await push.publish(context)

    monkeypatch.setattr(steps, "publish", publish)
    for gate in calls.gates.values():
        gate.set()
    runtime = calls.runtime(session, limit=2)
    with pytest.raises(StoreError, match="the disk is full"):
        await runtime.arun()
    begun = len(calls.paid)
    assert begun <= 3  # two side by side, and what began before the write had failed
    full = False
    await runtime.arun()
    assert sorted(calls.paid) == sorted(calls.gates)  # what was paid before is not paid again


async def test_it_needs_a_session_and_a_known_name() -> None:
    with pytest.raises(ValueError, match="needs session="):
        Runtime(Context(), session_save_policy="per_step")
    with pytest.raises(ValueError, match="'per_step', 'per_commit' or 'per_turn'"):
        Runtime(Context(), session_save_policy="per_day")  # type: ignore[arg-type]


# -- call.memo --


class Draft(BaseModel):
    text: str
    words: int


class Expensive:
    """An execution with two costly calls, of which the second fails while it is told to."""

    def __init__(self, retries: int = 0) -> None:
        self.paid: list[str] = []
        self.fails = 0
        self.got: list[Any] = []

        async def outline() -> dict[str, Any]:
            self.paid.append("outline")
            return {"points": ["a", "b"]}

        def draft() -> list[Draft]:
            self.paid.append("draft")
            return [Draft(text="t", words=1)]

        @produce(Answer, retries=retries, backoff=0.1)
        async def write(call: ProduceCall) -> Answer:
            self.got = [await call.memo("outline", outline), await call.memo("draft", draft)]
            if self.fails:
                self.fails -= 1
                raise ConnectionError("no route")
            return Answer(text="done")

        self.agents = [create_agent("writer", consumes=[Consume(Question)], produces=[write])]


async def test_a_memo_is_paid_once_over_the_retries_of_a_produce() -> None:
    context, work = Context(RuntimeResources(clock=JumpingClock())), Expensive(retries=3)
    context.create(Question(text="?"), id="q")
    work.fails = 2
    await Runtime(context, work.agents).arun()
    assert work.paid == ["outline", "draft"]
    assert work.got == [{"points": ["a", "b"]}, [Draft(text="t", words=1)]]
    assert context.commits.memos == []


@pytest.mark.parametrize("policy", ["per_step", "per_commit"])
async def test_a_memo_is_kept_over_a_turn_that_failed_and_another_process(tmp_path: Any, policy: Any) -> None:
    place, work = Place(tmp_path / "state.git"), Expensive()
    session = await asked(place, 1)
    work.fails = 1
    with pytest.raises(ConnectionError):
        await Runtime(session.context, work.agents, session=session, session_save_policy=policy).arun()
    again = await place.store().open("s")
    later = Expensive()
    await Runtime(again.context, later.agents, session=again, session_save_policy=policy).arun()
    assert (work.paid, later.paid) == (["outline", "draft"], [])
    assert later.got == work.got
    assert "memo-" not in git(tmp_path / "state.git", "ls-tree", "-r", "--name-only", "s/main")


async def test_under_per_step_a_memo_is_stored_when_it_is_handed_out(tmp_path: Any) -> None:
    place = Place(tmp_path / "state.git")
    session = await asked(place, 1)
    stored: list[int] = []

    @produce(Answer)
    async def answer(call: ProduceCall) -> Answer:
        await call.memo("one", lambda: 1)
        stored.append(len((await place.load("s")).commits.memos))
        return Answer(text="yes")

    agents = [create_agent("answerer", consumes=[Consume(Question)], produces=[answer])]
    await Runtime(session.context, agents, session=session, session_save_policy="per_step").arun()
    assert stored == [1]


async def test_a_memo_is_made_anew_when_what_was_read_before_it_has_changed() -> None:
    context, values = Context(), []
    context.create(Note(text="old"), id="n")
    context.drain_events()
    context.create(Question(text="?"), id="q")
    fails = True

    @produce(Answer)
    async def answer(call: ProduceCall) -> Answer:
        note = live(call.context, "n").data
        values.append(await call.memo("seen", lambda: note.text))
        if fails:
            raise ConnectionError("no route")
        return Answer(text="yes")

    runtime = Runtime(context, [create_agent("answerer", consumes=[Consume(Question)], produces=[answer])])
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await runtime.arun()
    context.update("n", Note(text="new"))
    fails = False
    await runtime.arun()
    assert values == ["old", "old", "new"]


async def test_executions_on_equal_events_do_not_share_memos() -> None:
    context = Context(RuntimeResources(clock=JumpingClock()))
    counter = iter(range(10))
    values: list[int] = []

    @produce(Answer)
    async def answer(call: ProduceCall) -> Answer:
        values.append(await call.memo("n", lambda: next(counter)))
        return Answer(text="yes")

    context.create(Question(text="?"), id="q")
    context.update("q", Question(text="??"))
    context.update("q", Question(text="???"))  # two equal events: same artifact, kind and time
    agent = create_agent("answerer", consumes=[Consume(Question)], produces=[answer])
    await Runtime(context, [agent]).arun()
    assert len(set(values)) == len(values) == 3


async def test_one_key_asked_for_twice_at_once_is_paid_once() -> None:
    context, paid = Context(), []
    context.create(Question(text="?"), id="q")

    @produce(Answer)
    async def answer(call: ProduceCall) -> Answer:
        async def pay() -> int:
            await anyio.sleep(0)
            paid.append(1)
            return 7

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(call.memo, "k", pay)
        return Answer(text=str(await call.memo("k", pay)))

    agent = create_agent("answerer", consumes=[Consume(Question)], produces=[answer])
    await Runtime(context, [agent]).arun()
    assert paid == [1]
    assert [a.data.text for a in context.list_artifacts(Answer)] == ["7"]


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("", 1, InvalidName),
        (3, 1, TypeError),
        ("k", (1, 2), PayloadError),
        ("k", {1: 2}, PayloadError),
        ("k", [float("nan")], PayloadError),
        ("k", object(), PayloadError),
    ],
)
async def test_what_cannot_be_kept_is_refused_by_name(key: Any, value: Any, error: type[Exception]) -> None:
    context = Context()
    context.create(Question(text="?"), id="q")

    @produce(Answer)
    async def answer(call: ProduceCall) -> None:
        await call.memo(key, lambda: value)

    agent = create_agent("answerer", consumes=[Consume(Question)], produces=[answer])
    with pytest.raises(error, match=r"call\.memo"):
        await Runtime(context, [agent]).arun()


async def test_outside_of_a_run_there_is_no_memo() -> None:
    call = ProduceCall(Context(), [], None, None)
    with pytest.raises(RuntimeError, match="only while a produce runs"):
        await call.memo("k", lambda: 1)


async def test_discarding_what_is_held_forgets_memos_too() -> None:
    context, work = Context(), Expensive()
    context.create(Question(text="?"), id="q")
    work.fails = 1
    runtime = Runtime(context, work.agents)
    with pytest.raises(ConnectionError):
        await runtime.arun()
    assert context.discard_held() == 0
    await runtime.arun()
    assert work.paid == ["outline", "draft"] * 2


async def test_a_session_of_a_store_in_memory_takes_it_too() -> None:
    place = Place(None)
    session, calls = await asked(place), Calls()
    assert isinstance(session.store, SessionStore)
    for gate in calls.gates.values():
        gate.set()
    assert await calls.runtime(session).arun() == COUNT
