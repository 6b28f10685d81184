"""A turn: generations until nothing is left to react to, or a budget ends it.

Owns the loop of one `arun`, its deadline and stop, when it saves and when it delivers, and its
statistics. One generation's work is `generation`'s, one drain `outbox`'s.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from logging import DEBUG

from anyio import Event
from anyio.lowlevel import checkpoint_if_cancelled

from .._context import delivery
from .._context.context import Context
from .._context.preload import look_ahead
from .._context.push import StoreLock, ensure_attached, publish, release_together
from .._observers import emit, observation
from ..budget import Budget, BudgetTracker, RunOutcome, RunStats
from ..errors import told
from ..interrupt import PendingAction
from ..logging import bind, get_logger
from ..threads import during
from . import drain, generation
from .config import RunInfo, Wiring
from .execution import Result
from .plan import scheduled
from .steps import Steps

log = get_logger("reactifact.runtime")


@dataclass(slots=True)
class Limits:
    """What one turn may do."""

    budget: Budget | None
    max_iterations: int

    @property
    def max_runs(self) -> int | None:
        """The number of executions, `None` for no limit."""
        return None if self.budget is None else self.budget.max_runs

    @property
    def max_seconds(self) -> float | None:
        """The deadline in seconds from the start, `None` for no limit."""
        return None if self.budget is None else self.budget.max_seconds


@dataclass(slots=True)
class Turn:
    """One turn in progress."""

    wiring: Wiring
    info: RunInfo
    limits: Limits
    started: float
    saves: bool = True
    runs: int = 0  # executions
    committed: int = 0  # those of generations that were committed: all but the last one's, where it is cut
    tried: int = 0  # deliveries
    iterations: int = 0
    errors: int = 0
    unmatched: int = 0  # events that woke nobody, in generations in which nothing ran
    outcome: RunOutcome = RunOutcome.STOPPED  # what an error or a cancellation leaves it at
    tracker: BudgetTracker = field(default_factory=BudgetTracker)
    stopping: bool = False
    known: generation.Plan | None = None
    absent: dict[str, int] = field(default_factory=dict)  # agents that events wait for, not registered
    is_over: bool = False
    kept: list[StoreLock] = field(default_factory=list)
    """The lock of a drain that has ended: it goes with that of the turn, or before an agent works again."""
    context: Context = field(init=False)
    """The context the turn works on."""
    _running: generation.Execution = field(init=False)
    _over: Event | None = None  # made by the first who waits for the end

    def __post_init__(self) -> None:
        self.context = self.wiring.context

    def around(self) -> during:
        """Let the code in a `with`, and the tasks it starts, know that they run inside the turn."""
        return during(_around, (*_around.get(), self))

    def end(self) -> None:
        """Say that the turn has ended."""
        self.is_over = True
        if self._over is not None:
            self._over.set()

    async def wait(self) -> None:
        """Wait until the turn has ended."""
        if self._over is None:
            self._over = Event()
        if not self.is_over:
            await self._over.wait()

    def is_around(self) -> bool:
        """Tell whether the present code was called by the turn, or by a task that began inside it."""
        return any(turn is self for turn in _around.get())

    def stats(self) -> RunStats:
        """Return what the turn did so far."""
        return RunStats(
            runs=self.runs,
            iterations=self.iterations,
            outcome=self.outcome,
            duration=self.context.resources.clock.monotonic() - self.started,
            errors=self.errors,
            prompt_tokens=self.tracker.prompt_tokens,
            completion_tokens=self.tracker.completion_tokens,
            cost=self.tracker.cost,
            tool_calls=self.tracker.tool_calls,
            absent=self.absent,
        )

    # -- the loop ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run generations until the turn ends, and end it; sets `outcome`."""
        outcome = await self._run_generations()
        await self._finish()
        self.absent = self.context.queue.absent
        if self.absent:
            self.wiring.tell_of_absent(self.absent)
        self.outcome = outcome

    async def _run_generations(self) -> RunOutcome:
        """Run generations until there is a reason to run no other; return it."""
        for _ in range(self.limits.max_iterations):
            ended = self._ended()
            if ended is not None:
                return ended
            if await self.run_generation() == 0 and not self._has_work():
                return RunOutcome.QUOTA_EXCEEDED if self._holds_back() else RunOutcome.COMPLETED
        return self._ended() or RunOutcome.ITERATIONS_EXHAUSTED

    async def flush(self) -> None:
        """Deliver what waits, without a generation."""
        wiring, context = self.wiring, self.context
        await self._look_ahead()
        generation.plan(context, wiring.roster)
        drained = await self._deliver()
        generation.plan(context, wiring.roster)
        if drained.tried and wiring.session is not None:
            await wiring.session.save()
        self.outcome = RunOutcome.COMPLETED
        wiring.raise_undelivered(drained)

    def _ended(self) -> RunOutcome | None:
        """Return why no further generation may start, or `None`."""
        if self.stopping:
            return RunOutcome.STOPPED
        if self.limits.budget is None and self.context.resources.quota is None:
            return None
        if self.limits.max_runs is not None and self.runs >= self.limits.max_runs and self._owes_runs():
            return RunOutcome.BUDGET_RUNS_EXCEEDED
        if self._is_quota_used_up() and self._owes_runs():
            return RunOutcome.QUOTA_EXCEEDED
        return self.tracker.exhausted(self.limits.budget)

    def _is_quota_used_up(self) -> bool:
        resources = self.context.resources
        quota = resources.quota
        return quota is not None and quota.exceeded(resources.clock, "runs", "tokens", "cost") is not None

    def _owes_runs(self) -> bool:
        """Whether some event waits for an execution, as far as it has been matched."""
        present = self.wiring.roster.names
        waiting = self.context.queue.active(present)
        return any(entry.owed is None or any(name in present for name in entry.owed) for entry in waiting)

    def _has_work(self) -> bool:
        present = self.wiring.known_roster.names
        waiting = self.context.queue.active(present)
        if waiting and any(not generation.owed_to_absent(entry, present) for entry in waiting):
            return True
        return self._delivers_now and not self._holds_back() and may_deliver(self.wiring)

    def _holds_back(self) -> bool:
        """Whether actions wait that the quota of the resources does not let out."""
        quota = self.context.resources.quota
        if quota is None:
            return False
        is_used_up = quota.exceeded(self.context.resources.clock, "sends") is not None
        return is_used_up and self._delivers_now and may_deliver(self.wiring)

    @property
    def _delivers_now(self) -> bool:
        """Whether each generation drains the outbox."""
        return self.wiring.saves_per_commit

    async def run_generation(self) -> int:
        """Run one generation and return the number of executions."""
        wiring, context = self.wiring, self.context
        if wiring.dispatcher is None:
            wiring.warn_without_dispatcher()
        if context.commits.is_remote:
            await self._look_ahead()
        wiring.deadlines.expire(context)
        planned = generation.plan(context, wiring.roster, self.known)
        self.known = None
        if not planned.work or observation() is None:
            return await self._run_generation(planned)
        from ..streaming import GenerationFailed, GenerationFinished, GenerationStarted

        number = self.iterations + 1
        emit(GenerationStarted, number=number, executions=len(planned.work))
        try:
            runs = await self._run_generation(planned)
        except BaseException as error:
            emit(GenerationFailed, number=number, error=told(error))
            raise
        emit(GenerationFinished, number=number, runs=runs)
        return runs

    async def _run_generation(self, planned: generation.Plan) -> int:
        wiring, context = self.wiring, self.context
        before = self.runs
        if planned.work:
            await self._store_inputs()
            await checkpoint_if_cancelled()  # no agent begins in a turn that is cut already
            self.iterations += 1
            self.info.generation = self.iterations
            await self._execute(planned)
        else:
            for entry in planned.batch:
                self.unmatched += entry.event.artifact_type is not PendingAction
            generation.consume(context, wiring.known_roster, planned.batch, [])
        errors = await self._deliver() if wiring.saves_per_commit else None
        is_same = errors is None or not errors.tried  # else a dispatcher may have changed the agents
        if is_same and not planned.work and self._saves_now and context.commits.is_written:
            await self._save()  # which finds nothing: what woke nobody was taken off, and no file knew of it
            return self.runs - before
        roster = wiring.known_roster if is_same else wiring.roster
        self.known = generation.plan(context, roster, self.known)
        await self._save()
        if errors is not None:
            wiring.raise_undelivered(errors)
        return self.runs - before

    async def _look_ahead(self) -> None:
        """Read what the next plan looks up."""
        commits = self.context.commits
        if commits.is_remote:
            await look_ahead(commits, queue=True, stale=self.wiring.known_roster.reacts_to_stale)

    async def _look_at_patches(self) -> None:
        """Read what committing the results looks up."""
        results = self._running.finished
        patches = [item for result in results for item in [*result.patch, *result.direct]]
        await look_ahead(
            self.context.commits,
            {item.artifact_id for item in patches},
            placed={(i.encoded.type_id, i.artifact_id) for i in patches if i.encoded is not None},
        )

    def _may_start(self) -> bool:
        """Whether the budget lets one more execution start."""
        if self.limits.budget is None and self.context.resources.quota is None:
            return True
        limit = self.limits.max_runs
        if limit is not None and self.runs + self._running.executed >= limit:
            return False
        if self._is_quota_used_up() or self.tracker.exhausted(self.limits.budget) is not None:
            return False
        resources = self.context.resources
        return resources.quota is None or resources.quota.take(resources.clock, "runs")

    async def _execute(self, planned: generation.Plan) -> None:
        context, wiring = self.context, self.wiring
        if self.kept:
            await _give_back(self.kept)
        work = planned.work
        if wiring.scheduler is not None:
            work = await scheduled(wiring.scheduler, context, work)
        context.commits.commit_direct()  # of what came in during a write, or while the scheduler thought
        line = context.commits.line
        number = (line.record.generation if line.record else 0) + 1
        steps = Steps(context, work, is_durable=self._saves_now and wiring.saves_per_step)
        self._running = generation.Execution(work, line.snapshot(), steps)
        try:
            await generation.execute_all(
                context, self._running, wiring.max_concurrency, self._may_start, self.iterations
            )
            self._count()
            if context.commits.is_remote:
                await self._look_at_patches()
            combined = await self._combined(self._running.finished)
            labels = generation.Labels(self.info.run_id, number)
            with context.commits.whole():
                again = generation.commit_all(context, combined, labels)
                waiting = [one.result.work for one in combined if one.result.waits]
                not_started = self._running.not_started
                steps.keep_memos_of([*again, *not_started, *waiting])
            generation.tell(combined, context.version)
        except BaseException:
            # cut in the middle, or failed: what has finished is kept beside the queue
            self._count()
            if self._running.results:  # else what is held already was not looked at yet
                steps.hold([r for r in self._running.finished if r.error is None])
            raise
        self.committed = self.runs
        roster = wiring.roster  # an agent may have registered or changed one
        generation.consume(context, roster, planned.batch, [*again, *not_started])
        self.known = generation.plan(context, roster)  # the commit says what is owed
        if log.isEnabledFor(DEBUG):
            extra = {"generation": self.iterations, "runs": len(combined)}
            log.debug("generation committed", extra=extra)

    def _count(self) -> None:
        self.runs += self._running.executed
        self._running.executed = 0

    async def _combined(self, results: list[Result]) -> list[generation.Combined]:
        """Return what the results that succeeded come to together, ready to be committed at once.

        Raises the first failure unless errors are isolated.
        """
        with bind(generation=self.iterations):
            while True:
                results = await self._without_failures(results)
                combined = generation.combine_all(self.context, results, self._running.snapshot)
                if len(combined) == len(results):
                    return combined

    async def _without_failures(self, results: list[Result]) -> list[Result]:
        """Return the results that succeeded; raise the first failure unless errors are isolated."""
        generation.mark_conflicts(results)
        failed = [result for result in results if result.error is not None]
        if not failed:
            return results
        self.errors += len(failed)
        for result in reversed(failed):  # an error that several raised says who was the first
            result.say_where(self.info.run_id)
        succeeded = [result for result in results if result.error is None]
        if self.wiring.isolate_errors:
            for result in failed:
                await self.wiring.report_agent_error(result)
            return succeeded
        failed = await self._without_parked(failed)
        if not failed:
            return succeeded
        self._running.steps.hold(succeeded)
        await self._save()
        assert failed[0].error is not None
        raise failed[0].error

    async def _without_parked(self, failed: list[Result]) -> list[Result]:
        """Count failures where there is a limit to them; return those of work that is tried again."""
        limit, queue = self.wiring.max_failures, self.context.queue
        if limit is None:
            return failed
        left = []
        for result in failed:
            work, error = result.work, told(result.error) if result.error is not None else ""
            # each event of debounced work stands for itself
            parked = [queue.fail(entry, work.name, error, limit) for entry in work.entries]
            if all(parked):
                extra = {"agent": work.agent.name, "artifact": work.event.artifact_id, "error": error}
                log.error("event parked: the agent is not asked again before it is re-armed", extra=extra)
                await self.wiring.report_agent_error(result)
            else:
                left.append(result)
        return left

    # -- saving and delivering -----------------------------------------------------------------

    async def _store_inputs(self) -> None:
        """Write what the application changed before an agent works on it, unless it is written already.

        A kill in the middle of the generation then loses no input, and where the store cannot be written
        nothing is paid for first. It costs a write of its own, and only in a turn that was given changes.
        """
        line = self.context.commits.line
        if line.ref is not None and self._saves_now and not line.is_published:
            await publish(self.context)

    @property
    def _saves_now(self) -> bool:
        """Whether each generation is saved."""
        wiring = self.wiring
        return self.saves and wiring.session is not None and wiring.session_save_policy != "per_turn"

    async def _save(self) -> None:
        if self._saves_now and self.wiring.session is not None:
            await self.wiring.session.save()

    async def _deliver(self) -> drain.Drained:
        # an observer may drain in turn, and have the turn wait for it
        keeps = self.context.commits.is_remote and observation() is None
        drained = await deliver(self.wiring, self.kept if keeps else None)
        self.tried += drained.tried
        return drained

    @property
    def was_idle(self) -> bool:
        """Whether events came, no agent had anything to do with them, and nothing was delivered either."""
        return bool(self.unmatched) and not self.iterations and not self.tried

    async def _finish(self) -> None:
        """End the turn: under `per_turn`, save it and then deliver what it decided."""
        wiring = self.wiring
        if wiring.saves_per_commit or not self.saves:
            return
        if wiring.session is not None:
            await wiring.session.save()
        wiring.raise_undelivered(await self._deliver())


_around: ContextVar[tuple[Turn, ...]] = ContextVar("reactifact_turns", default=())
"""The turns that the present code runs inside of: a callback may run a turn of another runtime."""


def may_deliver(wiring: Wiring) -> bool:
    """Tell whether a drain would send something; without a dispatcher it delivers wakes alone."""
    context, now = wiring.context, wiring.context.resources.clock.now()
    if not context.has_actions():
        return False
    if wiring.dispatcher is not None:
        working = context.working
        return not delivery.is_idle(working, now) and bool(delivery.outlook(working, now).ready)
    state = context.working.state
    stand = (state.roots.outbox, tuple(state.intents.values()), context.working.ledger.tip)
    if wiring.next_wake is None or wiring.next_wake[0] != stand:
        wiring.next_wake = (stand, delivery.next_wake(context.working))
    moment = wiring.next_wake[1]
    return moment is not None and moment <= now


async def deliver(wiring: Wiring, kept: list[StoreLock] | None = None) -> drain.Drained:
    """Write what was decided, then send it. Nothing is sent that is not in the store.

    `kept` is given the lock of the drain, for the caller to give back.
    """
    context = wiring.context
    if not context.has_actions():
        return drain.Drained()
    if context.commits.is_remote:
        await look_ahead(context.commits, outbox=True)
    now = context.resources.clock.now()
    if wiring.dispatcher is None:
        if not may_deliver(wiring):
            return drain.Drained()
    elif delivery.is_idle(context.working, now):
        return drain.Drained()
    is_simulated = wiring.simulate and wiring.dispatcher is not None
    simulated = delivery.sendable(context.working, now) if is_simulated else []
    if simulated:
        context.commits.note_simulated(simulated)  # with what planned them: no other drain may see them wait
    if kept:
        await _give_back(kept)
    options = wiring.outbox_options()
    publishes = ensure_attached(context)
    if publishes and (not context.commits.is_remote or options.is_apart):
        await publish(context)
        publishes = False
    drained = await drain.drain(context, wiring.dispatcher, options, kept=kept, publishes=publishes)
    drained.tried += len(simulated)
    return drained


async def _give_back(kept: list[StoreLock]) -> None:
    locks, kept[:] = [*kept], []
    await release_together(*locks)
