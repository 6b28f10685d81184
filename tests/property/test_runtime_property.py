"""The loop against its model: random agents, priorities, failures, cuts, budgets and direct changes.

What the loop does is worked out by `runtime_model` in plain Python and compared after every step: no
event is lost, no agent runs twice for an event unless its result was not committed, commits stand in
plan order whatever finished first, no field of a committed patch is lost, no intent is sent twice.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from contextvars import Context as Variables
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from runtime_model import FIELDS, MARK, TASK, AgentPlan, Event, Live, Model, Op, Run, Seen, Step
from support import Place, fsck

from reactifact import (
    Agent,
    Artifact,
    Budget,
    Consume,
    Context,
    EventType,
    PendingAction,
    ProduceCall,
    RunOutcome,
    Runtime,
    RuntimeResources,
    Session,
    create_agent,
    produce,
)
from reactifact.runtime import active_runs
from reactifact.testing import JumpingClock


class Task(BaseModel):
    a: int = 0
    b: int = 0
    c: int = 0


class Mark(BaseModel):
    total: int


class Boom(Exception):
    """A produce fails."""


class Unreachable(Exception):
    """A delivery fails."""


TASKS = ("t0", "t1")
BUSY_GENERATIONS = 4
"""From then on agents do nothing: each event wakes several, and turns have to come to an end."""
MODELS: dict[str, type[BaseModel]] = {TASK: Task, MARK: Mark}


# -- what is drawn -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Turn:
    """One `arun`, and what befalls it: executions are counted from 0 in the order they start."""

    max_runs: int | None = None
    max_iterations: int = 100
    deadline: int | None = None
    failing: frozenset[int] = frozenset()
    cancel_at: int | None = None
    outside: tuple[tuple[int, Op], ...] = ()


@dataclass(frozen=True)
class Reopen:
    saved: bool


@dataclass(frozen=True)
class Rearm:
    pass


@dataclass(frozen=True)
class Scenario:
    agents: tuple[AgentPlan, ...]
    steps: tuple[Op | Turn | Reopen | Rearm, ...]
    max_concurrency: int | None
    isolate_errors: bool
    raises_undelivered: bool
    failing_sends: tuple[str, ...]
    backend: str = "asyncio"
    in_git: bool = False


values = st.integers(0, 2)
tasks = st.sampled_from(TASKS)
changes = st.builds(
    Op,
    st.sampled_from(["update", "update", "update", "create", "delete"]),
    tasks,
    st.just(TASK),
    st.tuples(*[values] * 3),
)
agent_steps = st.builds(
    Step,
    st.sampled_from(["bump", "bump", "bump", "raise", "direct", "direct", "mark", "act", "drop"]),
    tasks,
    st.sampled_from(FIELDS),
    st.integers(1, 3),
)
turns = st.builds(
    Turn,
    max_runs=st.none() | st.integers(0, 4),
    max_iterations=st.sampled_from([1, 2, 100]),
    deadline=st.none() | st.integers(1, 6),
    failing=st.frozensets(st.integers(0, 5), max_size=2),
    cancel_at=st.none() | st.integers(0, 5),
    outside=st.lists(st.tuples(st.integers(0, 5), changes), max_size=2).map(tuple),
)
between = st.lists(
    st.one_of(changes, changes, st.builds(Reopen, st.booleans()), st.just(Rearm())), min_size=1, max_size=4
)
rounds = st.builds(lambda before, turn: (*before, turn), between, turns)
beginning = tuple(Op("create", name, TASK, (0, 1, 0)) for name in TASKS)
steps = st.lists(rounds, min_size=2, max_size=5).map(lambda drawn: sum(drawn, beginning))


@st.composite
def agent_plans(draw: st.DrawFn) -> tuple[AgentPlan, ...]:
    count = draw(st.integers(2, 4))
    return tuple(
        AgentPlan(
            name=f"agent{number}",
            type=draw(st.sampled_from([TASK, TASK, TASK, MARK])),
            events=draw(st.sampled_from([("created", "updated"), ("updated",), ("created", "deleted")])),
            even_only=draw(st.integers(0, 3)) == 0,
            priority=draw(st.integers(0, 2)),
            own_limit=draw(st.sampled_from([None, None, 1, 2])),
            seconds=draw(st.integers(0, 3)),
            steps=tuple(draw(st.lists(agent_steps, min_size=1, max_size=4))),
        )
        for number in range(count)
    )


scenarios = st.builds(
    Scenario,
    agents=agent_plans(),
    steps=steps,
    max_concurrency=st.sampled_from([None, 1, 2, 5]),
    isolate_errors=st.booleans(),
    raises_undelivered=st.booleans(),
    failing_sends=st.lists(
        st.sampled_from([f"{kind}:{task}" for kind in FIELDS for task in TASKS]), max_size=3
    ).map(tuple),
    backend=st.sampled_from(["asyncio", "asyncio", "trio"]),
    in_git=st.booleans(),
)


# -- the real thing ----------------------------------------------------------------------------


@dataclass
class World:
    """Everything outside of the state: what was seen to run, to be sent, and to go wrong."""

    scenario: Scenario
    context: Context
    clock: JumpingClock
    turn: Turn = Turn()
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    runs: list[Run] = field(default_factory=list)
    outside: list[tuple[int, Op]] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    sent: Counter[str] = field(default_factory=Counter)
    failing: Counter[str] = field(default_factory=Counter)

    def begin(self, turn: Turn) -> None:
        self.turn = turn
        self.scope = anyio.CancelScope()
        self.runs, self.outside, self.tried = [], [], []

    async def dispatch(self, context: Context, action: Artifact[PendingAction]) -> None:
        key = action.data.idempotency_key
        self.tried.append(key)
        if self.failing[key] > 0:
            self.failing[key] -= 1
            raise Unreachable(key)
        self.sent[key] += 1

    async def work(self, plan: AgentPlan, call: ProduceCall) -> None:
        assert call.event is not None
        kind = call.event.type.value.removeprefix("artifact_")
        number = len(self.runs)
        generation = active_runs()[0].generation
        queued = [entry.event for entry in self.context.queue]
        before = queued[: next(at for at, event in enumerate(queued) if event is call.event)]
        place = sum((e.type, e.artifact_id) == (call.event.type, call.event.artifact_id) for e in before)
        run = Run(generation, plan.name, Event(kind, plan.type, call.event.artifact_id), place)
        self.runs.append(run)
        if plan.seconds:
            await self.clock.sleep(plan.seconds)
        is_idle = generation > BUSY_GENERATIONS
        if not is_idle:
            Produced(plan, call).do_all()
        for at, op in self.turn.outside:
            if at == number:
                Variables().run(change, self.context, op)  # no scope: the application, not the produce
                self.outside.append((generation, op))
        if number in self.turn.failing:
            run.ending = "failed"
            raise Boom(plan.name)
        if number == self.turn.cancel_at:
            self.scope.cancel()
            await anyio.lowlevel.checkpoint()
        run.ending = "idle" if is_idle else "ok"


class Produced:
    """What an agent does in one execution, with the tools of a produce."""

    def __init__(self, plan: AgentPlan, call: ProduceCall) -> None:
        self.plan = plan
        self.call = call
        self.dropped: set[str] = set()
        self.planned: dict[tuple[str, str], int] = {}

    def do_all(self) -> None:
        for step in self.plan.steps:
            self.do(step)

    def do(self, step: Step) -> None:
        effects, context, event = self.call.effects, self.call.context, self.call.event
        assert event is not None
        if step.verb == "mark":
            source = context.get(event.artifact_id)
            if source is not None and isinstance(source.data, Task):
                total = source.data.a + source.data.b + source.data.c
                effects.create(Mark(total=total), id=f"mark:{self.plan.name}:{source.id}")
            return
        if step.verb == "act":
            effects.act("send", key=f"{step.field}:{event.artifact_id}", payload={"to": step.field})
            return
        found = context.get(step.target)
        if found is None or found.id in self.dropped:
            return
        if step.verb == "drop":
            self.dropped.add(found.id)
            effects.delete(found)
            return
        present = getattr(found.data, step.field)
        if step.verb != "direct":
            present = self.planned.get((found.id, step.field), present)
        wanted = step.limit if step.verb == "raise" else present + 1
        if not present <= wanted <= step.limit:
            return
        if step.verb == "direct":
            context.update(found.id, found.data.model_copy(update={step.field: wanted}))
        else:
            self.planned[found.id, step.field] = wanted
            effects.update(found, **{step.field: wanted})


def change(context: Context, op: Op) -> None:
    if op.verb == "delete":
        context.delete(op.id)
        return
    data = MODELS[op.type](**dict(zip(FIELDS, op.data, strict=True)))
    if op.verb == "create":
        context.create(data, id=op.id)
    else:
        context.update(op.id, data)


def make_agent(world: World, plan: AgentPlan) -> Agent:
    @produce(Mark, also_creates=PendingAction)
    async def work(call: ProduceCall) -> None:
        await world.work(plan, call)

    condition: Callable[[Artifact[Any]], bool] | None = None
    if plan.even_only:
        condition = lambda found: (found.data.a if plan.type == TASK else found.data.total) % 2 == 0  # noqa: E731
    kinds = [EventType(f"artifact_{kind}") for kind in plan.events]
    return create_agent(
        plan.name,
        consumes=[Consume(MODELS[plan.type], condition, kinds)],
        produces=[work],
        priority=plan.priority,
        concurrency_limit=plan.own_limit,
    )


# -- the two side by side ----------------------------------------------------------------------


class Both:
    """One scenario in progress: a real session and its model."""

    def __init__(self, scenario: Scenario, place: Place) -> None:
        self.scenario = scenario
        self.place = place
        self.model = Model(list(scenario.agents))
        self.saved = self.model.reopened()
        self.clock = JumpingClock()
        self.failing = Counter(scenario.failing_sends)
        self.session: Session
        self.world: World
        self.sent: Counter[str] = Counter()

    async def open(self) -> None:
        self.session = await self.place.store().open("s", RuntimeResources(clock=self.clock))
        failing = Counter(self.failing)
        self.world = World(self.scenario, self.session.context, self.clock, failing=failing, sent=self.sent)
        self.runtime = Runtime(
            self.session.context,
            agents=[make_agent(self.world, plan) for plan in self.scenario.agents],
            session=self.session,
            max_concurrency=self.scenario.max_concurrency,
            isolate_errors=self.scenario.isolate_errors,
            dispatcher=self.world.dispatch,
            dispatch_errors="raise" if self.scenario.raises_undelivered else "record",
        )

    async def do(self, step: Op | Turn | Reopen | Rearm) -> None:
        if isinstance(step, Op):
            change(self.session.context, step)
            self.model.change_directly(step)
        elif isinstance(step, Turn):
            ending = await self._real_turn(step)
            self._model_turn(step, ending)
        elif isinstance(step, Reopen):
            if step.saved:
                await self.session.save()
                self.saved = self.model.reopened()
            self.model = self.saved.reopened()
            await self.open()
        else:
            for action in self.session.context.list_artifacts(PendingAction):
                if action.data.status == "failed":
                    self.session.context.retry_action(action.id)
            self.model.rearm()
        self.compare()

    async def _real_turn(self, turn: Turn) -> str:
        self.world.begin(turn)
        budget = Budget(max_runs=turn.max_runs, max_seconds=turn.deadline)
        ending = "cancelled"
        with self.world.scope:
            try:
                await self.runtime.arun(turn.max_iterations, budget)
            except Boom:
                ending = "failed"
            except Unreachable:
                ending = "undelivered"
            else:
                late = self.runtime.outcome == RunOutcome.BUDGET_TIME_EXCEEDED
                ending = "late" if late else "done"
        stats = self.runtime.last_stats
        assert stats is not None
        assert stats.runs == len(self.world.runs)
        return ending

    def _model_turn(self, turn: Turn, ending: str) -> None:
        expected, tried = self._follow(turn, ending in ("cancelled", "late"))
        assert tried == self.world.tried
        assert expected == ("cut" if ending in ("cancelled", "late") else ending)
        if ending in ("cancelled", "late"):  # whatever cuts a turn, it is saved
            self.saved = self.model.reopened()

    def _follow(self, turn: Turn, is_cut: bool) -> tuple[str, list[str]]:
        """Go through a turn in the model; return how it ends and what was sent, in order."""
        model, world = self.model, self.world
        last = max((run.generation for run in world.runs), default=0)
        runs = number = 0
        tried: list[str] = []
        for _ in range(turn.max_iterations):
            allowed = None if turn.max_runs is None else turn.max_runs - runs
            if allowed is not None and allowed <= 0 and (model.queue or model.pending()):
                break
            before = runs
            if model.plan():
                number += 1
                seen = Seen(
                    [run for run in world.runs if run.generation == number],
                    [op for generation, op in world.outside if generation == number],
                    is_cut and number == last,
                    allowed,
                )
                runs += len(seen.runs)
                committed = model.generation(seen, self.scenario.isolate_errors)
                if not committed:
                    if not seen.is_cut:
                        self.saved = model.reopened()
                    return "cut" if seen.is_cut else "failed", tried
            else:
                model.queue = []
            keys, failed = model.deliver(self.failing)
            tried += keys
            model.plan()
            self.saved = model.reopened()
            if failed and self.scenario.raises_undelivered:
                return "undelivered", tried
            if runs == before and not model.queue and not model.pending():
                break
        assert number >= last, "a generation ran that nothing called for"
        return "done", tried

    def compare(self) -> None:
        context, model = self.session.context, self.model
        live = {
            found.id: Live(type(found.data).__name__, tuple(found.data.model_dump().values()), found.version)
            for kind in (Task, Mark)
            for found in context.list_artifacts(kind)
        }
        assert live == model.live
        actions = {found.id: found.data.status for found in context.list_artifacts(PendingAction)}
        assert actions == {name: action.status for name, action in model.actions.items()}
        commits = [
            (
                commit.author,
                [(write.artifact_id, write.version, write.op_type) for write in commit.writes],
                _trigger_first([(read.artifact_id, read.version) for read in commit.reads]),
            )
            for commit in context.history()
        ]
        assert commits == [(made.author, made.writes, _trigger_first(made.reads)) for made in model.commits]
        owed = [
            (entry.event.type.value.removeprefix("artifact_"), entry.event.artifact_id, entry.owed)
            for entry in context.queue
            if entry.owed != []
            and entry.event.artifact_type is not PendingAction
            and entry.event.type != EventType.ARTIFACT_STALE
        ]
        assert owed == [
            (entry.event.kind, entry.event.id, entry.owed) for entry in model.queue if entry.owed != []
        ]
        assert all(count == 1 for count in self.sent.values()), f"sent more than once: {self.sent}"

    async def settle(self) -> None:
        """Run undisturbed turns until nothing is left to do, and see that nothing is."""
        for _ in range(4):
            await self.do(Rearm())
            await self.do(Turn())
        assert not self.session.context.queue
        assert not self.session.context.pending_actions()
        assert not self.model.queue
        planned = {action.key for action in self.model.actions.values()}
        assert set(self.sent) >= planned


def _trigger_first(reads: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Bring reads into one order, but for the trigger where it is there: it comes first of all."""
    first = [read for read in reads[:1] if read[1] >= 0]
    return [*first, *sorted(reads[len(first) :])]


async def play(scenario: Scenario, place: Place) -> Both:
    both = Both(scenario, place)
    await both.open()
    for step in scenario.steps:
        await both.do(step)
    await both.settle()
    await both.do(Reopen(saved=True))
    return both


def run(scenario: Scenario, folder: str) -> Both:
    place = Place(Path(folder) / "state.git" if scenario.in_git else None)
    return anyio.run(play, scenario, place, backend=scenario.backend)


@given(scenarios)
def test_the_loop_does_what_its_model_says(scenario: Scenario) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run(scenario, folder)
        if scenario.in_git:
            fsck(Path(folder) / "state.git")


@given(scenarios, st.permutations(range(4)), st.sampled_from([1, 2, 5]))
def test_commits_are_the_same_however_long_the_work_takes(
    scenario: Scenario, seconds: list[int], limit: int
) -> None:
    calm = tuple(Turn() if isinstance(step, Turn) else step for step in scenario.steps)
    slowly = tuple(
        replace(plan, seconds=took, own_limit=None)
        for plan, took in zip(scenario.agents, seconds, strict=False)
    )
    first = replace(scenario, steps=calm, max_concurrency=None, in_git=False)
    second = replace(first, agents=slowly, max_concurrency=limit)
    assert made_by(run(first, "")) == made_by(run(second, ""))


def made_by(both: Both) -> list[tuple[str, dict[str, Any], list[Any]]]:
    return [
        (commit.author, {}, [operation.to_dict() for operation in commit.operations])
        for commit in both.session.context.history()
    ]
