"""What the loop of `Runtime` has to do, in plain Python: dictionaries, lists and no library.

Owns the scenario that `test_runtime_property` draws and the model that says what comes of it. The model
knows nothing of git, encoding, tasks or time. Which executions were started and how each ended it is
told (that depends on time, failures and cancellations); what follows from it, it works out by itself:
state, versions, reads, commits and their order, events, who is owed what, results that are held,
deliveries.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

TASK, MARK = "Task", "Mark"
FIELDS = ("a", "b", "c")
Data = tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """One thing a produce does: a verb with the artifact, the field and the number it is about."""

    verb: str
    target: str = ""
    field: str = ""
    limit: int = 0


@dataclass(frozen=True)
class AgentPlan:
    """An agent: what wakes it, how urgent it is, how long it takes, what it does."""

    name: str
    type: str
    events: tuple[str, ...]
    even_only: bool
    priority: int
    own_limit: int | None
    seconds: int
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Event:
    kind: str
    type: str
    id: str


@dataclass
class Entry:
    event: Event
    owed: list[str] | None = None


@dataclass(frozen=True)
class Live:
    type: str
    data: Data
    version: int


@dataclass(frozen=True)
class Op:
    verb: str  # create, update, delete
    id: str
    type: str = ""
    data: Data = ()


@dataclass
class Outcome:
    """What one execution asked for."""

    agent: str
    event: Event
    reads: dict[str, int]
    patch: list[Op]
    direct: list[Op]
    writes: dict[str, int]


@dataclass
class Commit:
    author: str
    writes: list[tuple[str, int, str]]
    reads: list[tuple[str, int]]


@dataclass
class Run:
    """One execution that was seen: in which generation, and how it ended."""

    generation: int
    agent: str
    event: Event
    place: int  # how many equal events stood before it in the queue
    ending: str = "cut"  # ok, idle (ended well, having done nothing), failed, cut

    @property
    def is_good(self) -> bool:
        return self.ending in ("ok", "idle")


@dataclass
class Seen:
    """What was seen of one generation. `allowed` is how many executions the budget let start."""

    runs: list[Run]
    outside: list[Op]
    is_cut: bool
    allowed: int | None

    def left_out(self, results: list[Outcome | str | None]) -> int:
        """Return how much of the work the budget has to leave for later."""
        if self.allowed is None:
            return 0
        return max(0, results.count(None) + len(self.runs) - self.allowed)


class RunAgain(Exception):
    """Two executions changed one field: the later one runs again."""


class Mistake(AssertionError):
    """What was seen cannot be."""


@dataclass
class Action:
    key: str
    status: str = "pending"
    changes: int = 0


@dataclass
class Model:
    agents: list[AgentPlan]
    live: dict[str, Live] = field(default_factory=dict)
    actions: dict[str, Action] = field(default_factory=dict)  # in the order they were planned
    queue: list[Entry] = field(default_factory=list)
    held: list[Outcome] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)

    # -- changes -------------------------------------------------------------------------------

    def version(self, artifact_id: str) -> int:
        if artifact_id in self.actions:
            return self.actions[artifact_id].changes
        return self.live[artifact_id].version if artifact_id in self.live else -1

    def apply(self, op: Op) -> tuple[str, int, str] | None:
        """Apply one operation, queue its event, and return what a commit says it wrote."""
        known = self.live.get(op.id)
        if op.verb == "delete":
            if known is not None:
                del self.live[op.id]
                self.queue.append(Entry(Event("deleted", known.type, op.id)))
            return op.id, 0 if known is None else known.version, "delete"
        if op.type == "PendingAction":
            if op.id in self.actions:
                return op.id, 0, "update"
            self.actions[op.id] = Action(op.id.removeprefix("action:"))
            return op.id, 0, "create"
        if known is None:
            if op.verb == "update":
                return None
            self.live[op.id] = Live(op.type, op.data, 0)
            self.queue.append(Entry(Event("created", op.type, op.id)))
            return op.id, 0, "create"
        if known.data != op.data:
            known = self.live[op.id] = Live(op.type, op.data, known.version + 1)
            self.queue.append(Entry(Event("updated", op.type, op.id)))
        return op.id, known.version, "update"

    def change_directly(self, op: Op) -> None:
        """What `Context.create`, `update` and `delete` do: an id that is taken is left alone."""
        if op.verb == "create" and op.id in self.live:
            return
        if op.verb != "create" and op.id not in self.live:
            return
        self.apply(op)

    # -- planning ------------------------------------------------------------------------------

    def plan(self) -> list[tuple[AgentPlan, Entry]]:
        ordered = sorted(self.agents, key=lambda agent: agent.priority)
        work = []
        for entry in self.queue:
            asked = [agent for agent in ordered if entry.owed is None or agent.name in entry.owed]
            found = [agent for agent in asked if self._wakes(agent, entry.event)]
            entry.owed = [agent.name for agent in found]
            work += [(agent, entry) for agent in found]
        return sorted(work, key=lambda pair: pair[0].priority)

    def _wakes(self, agent: AgentPlan, event: Event) -> bool:
        if agent.type != event.type or event.kind not in agent.events:
            return False
        if not agent.even_only:
            return True
        return event.id in self.live and self.live[event.id].data[0] % 2 == 0

    # -- executing -----------------------------------------------------------------------------

    def execute(self, agent: AgentPlan, event: Event, ending: str) -> Outcome:
        """Work out what an agent asks for on the present state."""
        reads = {event.id: self.version(event.id)}
        found = Outcome(agent.name, event, reads, [], [], {})
        view = dict(self.live)
        planned: dict[str, Data | None] = {}
        for step in agent.steps if ending == "ok" else ():
            self._do(step, found, view, planned)
        for op in [*found.patch, *found.direct]:
            found.writes.setdefault(op.id, self.version(op.id))
        return found

    def _do(self, step: Step, found: Outcome, view: dict[str, Live], planned: dict[str, Data | None]) -> None:
        event = found.event
        if step.verb == "mark":
            source = view.get(event.id)
            if event.type == TASK and source is not None:
                made = f"mark:{found.agent}:{event.id}"
                planned[made] = (sum(source.data),)
                found.patch.append(Op("create", made, MARK, (sum(source.data),)))
            return
        if step.verb == "act":
            action = f"action:{step.field}:{event.id}"
            if action not in planned and action not in self.actions:
                planned[action] = ()
                found.patch.append(Op("create", action, "PendingAction"))
            return
        target = step.target
        found.reads.setdefault(target, self.version(target))
        known = view.get(target)
        if known is None or (target in planned and planned[target] is None):
            return
        if step.verb == "drop":
            planned[target] = None
            found.patch.append(Op("delete", target))
            return
        place = FIELDS.index(step.field)
        before = known.data if step.verb == "direct" else planned.get(target) or known.data
        wanted = step.limit if step.verb == "raise" else before[place] + 1
        if wanted > step.limit or wanted < before[place]:
            return
        data = _with(before, place, wanted)
        if step.verb == "direct":
            view[target] = Live(TASK, data, known.version)
            found.direct.append(Op("update", target, TASK, data))
            # the direct change is committed first: an update planned before it must not undo it
            for number, op in enumerate(found.patch):
                if op.id == target and op.data[place] == before[place]:
                    planned[target] = _with(op.data, place, wanted)
                    found.patch[number] = Op("update", target, TASK, _with(op.data, place, wanted))
            return
        planned[target] = data
        found.patch.append(Op("update", target, TASK, data))

    def is_valid(self, held: Outcome) -> bool:
        seen = {**held.reads, **held.writes}
        return all(self.version(artifact_id) == version for artifact_id, version in seen.items())

    # -- one generation ------------------------------------------------------------------------

    def generation(self, seen: Seen, isolated: bool) -> bool:
        """Go through one generation as it was seen; return whether it was committed.

        Raises `Mistake` where something ran that had no reason to, ran twice, or was left out.
        """
        work = self.plan()
        snapshot = dict(self.live)
        batch = list(self.queue)
        results: list[Outcome | str | None] = []
        waiting = list(seen.runs)
        left = [found for found in self.held if self.is_valid(found)]
        for agent, entry in work:
            mine = (agent.name, entry.event)
            place = self._place(entry)
            run = next((r for r in waiting if (r.agent, r.event, r.place) == (*mine, place)), None)
            kept = next((h for h in left if (h.agent, h.event) == mine), None)
            if run is not None:
                waiting.remove(run)
                results.append(self.execute(agent, entry.event, run.ending) if run.is_good else run.ending)
            elif kept is not None:
                left.remove(kept)
                results.append(kept)
            else:
                results.append(None)
        if waiting:
            raise Mistake(f"ran without being owed: {waiting}; work was {work}, held {self.held}")
        ran = [(run.agent, run.event) for run in seen.runs]
        again = [found for found in left if (found.agent, found.event) in ran]
        if again:
            raise Mistake(f"ran again although the results were held: {again}")
        if not seen.is_cut and results.count(None) != seen.left_out(results):
            raise Mistake(f"of {work} these ran: {seen.runs}, with {seen.allowed} runs allowed")
        for op in seen.outside:
            self.change_directly(op)
        succeeded = [result for result in results if isinstance(result, Outcome)]
        if seen.is_cut or ("failed" in results and not isolated):
            self.held = succeeded
            return False
        repeated = self._commit(succeeded, snapshot)
        pairs = list(zip(work, results, strict=True))
        self._consume(batch, [pair for pair, result in pairs if result is None or _is_in(result, repeated)])
        return True

    def _place(self, entry: Entry) -> int:
        before = next(number for number, one in enumerate(self.queue) if one is entry)
        return sum(one.event == entry.event for one in self.queue[:before])

    def _commit(self, results: list[Outcome], snapshot: dict[str, Live]) -> list[Outcome]:
        self.held = []
        again = []
        for result in results:
            try:
                patch = self._combined(result.patch, snapshot)
                direct = self._combined(result.direct, snapshot)
            except RunAgain:
                again.append(result)
                continue
            for op in direct:
                self.apply(op)
            writes = [self.apply(op) for op in patch]
            if patch:
                made = [write for write in writes if write is not None]
                self.commits.append(Commit(result.agent, made, list(result.reads.items())))
        return again

    def _combined(self, ops: list[Op], snapshot: dict[str, Live]) -> list[Op]:
        """Bring a patch to the state of now. Raises `RunAgain` where both changed one field."""
        for artifact_id in sorted({op.id for op in ops}):
            before, now = snapshot.get(artifact_id), self.live.get(artifact_id)
            if (None if before is None else before.data) == (None if now is None else now.data):
                continue
            last = [op for op in ops if op.id == artifact_id][-1]
            if last.verb == "delete":
                if now is None:
                    continue
                raise RunAgain
            if now is None:
                raise RunAgain
            if before is None:
                if now.data != last.data:
                    raise RunAgain
                merged = last.data
            else:
                merged = _merged(before.data, now.data, last.data)
            kept = Op(last.verb, artifact_id, last.type, merged)
            ops = [kept if op is last else op for op in ops if op is last or op.id != artifact_id]
        return ops

    def _consume(self, batch: list[Entry], owed: Iterable[tuple[AgentPlan, Entry]]) -> None:
        names: dict[int, list[str]] = {}
        for agent, entry in owed:
            names.setdefault(id(entry), []).append(agent.name)
        done = {id(entry) for entry in batch}
        kept = [
            entry if id(entry) not in done else Entry(entry.event, names[id(entry)])
            for entry in self.queue
            if id(entry) not in done or id(entry) in names
        ]
        self.queue = kept

    # -- delivering ----------------------------------------------------------------------------

    def pending(self) -> list[Action]:
        return [action for action in self.actions.values() if action.status == "pending"]

    def deliver(self, failing: Counter[str]) -> tuple[list[str], bool]:
        """Send what waits; return the keys in order and whether one failed."""
        tried, failed = [], False
        for action in self.pending():
            tried.append(action.key)
            action.changes += 1
            action.status = "dispatched"
            if failing[action.key] > 0:
                failing[action.key] -= 1
                action.status, failed = "failed", True
        return tried, failed

    def rearm(self) -> None:
        for action in self.actions.values():
            if action.status == "failed":
                action.status = "pending"
                action.changes += 1

    def reopened(self) -> Model:
        """What another process finds: entries that owe nobody anything are gone."""
        twin = copy.deepcopy(self)
        twin.queue = [entry for entry in twin.queue if entry.owed is None or entry.owed]
        return twin


def _is_in(result: object, results: list[Outcome]) -> bool:
    return any(result is one for one in results)


def _with(data: Data, place: int, value: int) -> Data:
    return (*data[:place], value, *data[place + 1 :])


def _merged(before: Data, now: Data, mine: Data) -> Data:
    merged = list(now)
    for place, (was, theirs, ours) in enumerate(zip(before, now, mine, strict=True)):
        if ours == was:
            continue
        if theirs != was:
            raise RunAgain
        merged[place] = ours
    return tuple(merged)
