"""Which agents run on which events: matching a queue against a state, and in what order work begins.

Owns the order of work (events in order, agents by priority, debounced ones once), the note of which agents
an event still owes, earlier names of agents, and the queue of work that waits for a place among limits.
Executes nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Generic, TypeVar

from .._context.context import Context
from .._context.queue import Queue, QueueEntry
from .._context.working_copy import Scope, WorkingCopy, entered
from .._store import canonical
from .._store.layout import ListingRecord
from ..agents import Agent
from ..commit import Read
from ..events import Event, EventType
from ..interrupt import PendingAction, TypedQuestion
from ..triggers import Trigger
from .questions import resumed_by

# -- which agents run on which events: matching a queue against a state --


@dataclass(slots=True)
class Work:
    """One execution to come: an agent on an event (the last one, where several were debounced)."""

    name: str
    agent: Agent
    event: Event
    entries: list[QueueEntry]
    reads: dict[str, int] = field(default_factory=dict)
    listings: dict[str, ListingRecord] = field(default_factory=dict)
    debounced: bool = False
    asker: str = ""  # the name under which it asks, where it waited for an answer under an earlier one
    error: Exception | None = None  # what a condition raised while the event was matched


Scheduler = Callable[[Context, list[Any]], Awaitable[list[Any]]]
"""Gets (agent, event, reads) of all work of a generation and returns what is to run, in order."""


def named(agents: Sequence[Agent]) -> list[tuple[str, Agent]]:
    """Return agents, in the order they are asked, with the name the queue knows each by.

    Agents that share a name are told apart by their order of registration.
    """
    count: dict[str, int] = {}
    found = []
    for agent in agents:
        count[agent.name] = count.get(agent.name, 0) + 1
        number = count[agent.name]
        found.append((agent.name if number == 1 else f"{agent.name}#{number}", agent))
    return sorted(found, key=lambda pair: pair[1].priority)


def renames(agents: Sequence[Agent]) -> dict[str, str]:
    """Return the earlier names of agents, with the name the queue knows each agent by now.

    Raises `ValueError` where two agents claim one name.
    """
    if not any(agent.aliases for agent in agents):
        return {}
    known = named(agents)
    present = {name: name for name, _ in known}
    found: dict[str, str] = {}
    for name, agent in known:
        for alias in agent.aliases:
            other = present.get(alias) or found.get(alias)
            if other is not None and other != name:
                raise ValueError(
                    f"agents {other!r} and {name!r} both claim {alias!r}: what is owed to that name can "
                    f"go to one of them; take the alias from the other"
                )
            if alias != name:
                found[alias] = name
    return found


class Roster:
    """Agents as the queue knows them, and which of them an event may wake: looked through once for a kind."""

    def __init__(self, agents: Sequence[Agent]) -> None:
        self._agents = agents
        self._members = list(agents)
        self._facts = [
            (name, priority, aliases, None if triggers is None else triggers[:])  # they may be changed there
            for name, priority, aliases, triggers in map(_FACTS, agents)
        ]
        self._asked: dict[tuple[EventType, object], list[tuple[str, Agent]]] = {}
        self.ordered = named(agents)
        self.names = frozenset(name for name, _ in self.ordered)
        self.renames = renames(agents)
        triggers = [trigger for agent in agents for trigger in agent.triggers or ()]
        self.reacts_to_stale = any(t.event_type == EventType.ARTIFACT_STALE for t in triggers)

    def is_of(self, agents: Sequence[Agent]) -> bool:
        """Tell whether these are the agents, and none of them was changed."""
        return self._agents is agents and self._members == agents and self._facts == list(map(_FACTS, agents))

    def asked(self, kind: EventType, model: object) -> list[tuple[str, Agent]]:
        """Return, in the order they are asked, the agents that an event of a kind on a type may wake."""
        found = self._asked.get((kind, model))
        if found is None:
            if len(self._asked) >= _KINDS:
                self._asked.clear()
            found = [pair for pair in self.ordered if _may_wake(pair[1], kind, model)]
            self._asked[kind, model] = found
        return found

    @property
    def awaits_delivery(self) -> list[str]:
        """The agents that may react to a delivery; conditions are asked when it is matched."""
        return [name for name, _ in self.asked(EventType.ARTIFACT_UPDATED, PendingAction)]


_KINDS = 1_024
_FACTS = attrgetter("name", "priority", "aliases", "triggers")


def _may_wake(agent: Agent, kind: EventType, model: object) -> bool:
    """Tell whether an agent is to be asked: one that matches events in a way of its own always is."""
    if type(agent).matching_triggers is not Agent.matching_triggers:
        return True
    return any(
        (trigger.event_type == kind and (trigger.artifact_type is None or trigger.artifact_type is model))
        or type(trigger).matches is not Trigger.matches
        for trigger in agent.triggers or ()
    )


def match(
    context: Context,
    new_view: Callable[[], WorkingCopy],
    roster: Roster,
    queue: Queue,
    batch: Sequence[QueueEntry],
) -> list[Work]:
    """Match the events of a batch; note in the queue which agents each owes; return the work.

    An entry that was matched before is asked only for the agents it owes and for those that were
    not there then. Conditions see the state of a new view, which is made where any is to be asked; what they
    read is noted on the work.
    """
    names = roster.names
    for entry in batch:
        event = entry.event
        if event.artifact_type is TypedQuestion or roster.asked(event.type, event.artifact_type):
            return _asked(context, new_view(), roster, queue, batch)
    for entry in batch:
        queue.owe(entry, [name for name in entry.owed if name not in names] if entry.owed else [])
        entry.considered = names if entry.considered <= names else entry.considered | names
    return []


def _asked(
    context: Context, view: WorkingCopy, roster: Roster, queue: Queue, batch: Sequence[QueueEntry]
) -> list[Work]:
    names = roster.names
    plain: list[Work] = []
    debounced = _Debounced()
    scope = Scope(context, view)
    waiting: dict[tuple[str, str], Work] = {}
    with entered(scope):
        for entry in batch:
            owed = []
            resumed = resumed_by(view, entry.event) if entry.event.artifact_type is TypedQuestion else None
            asker = None if resumed is None else roster.renames.get(resumed[0], resumed[0])
            asked = roster.asked(entry.event.type, entry.event.artifact_type)
            if asker in names and all(name != asker for name, _ in asked):
                asked = [pair for pair in roster.ordered if pair in asked or pair[0] == asker]
            for name, agent in asked:
                if not entry.is_asked(name):
                    continue
                if resumed is not None and name == asker:
                    owed.append(name)
                    key = (name, canonical.one_line(resumed[1].to_dict()))
                    if key in waiting:  # it waited for several answers
                        waiting[key].entries.append(entry)
                        continue
                    waiting[key] = Work(name, agent, resumed[1], [entry], asker=resumed[0])
                    plain.append(waiting[key])
                    continue
                view.reads, view.listings = {}, {}
                try:
                    found = agent.matching_triggers(entry.event, context)
                except Exception as error:
                    owed.append(name)
                    plain.append(Work(name, agent, entry.event, [entry], error=error))
                    continue
                if not found:
                    continue
                owed.append(name)
                work = Work(name, agent, entry.event, [entry], view.reads, view.listings)
                if not all(trigger.debounce for trigger in found):
                    plain.append(work)
                    continue
                work.debounced = True
                debounced.add(work, found)
            absent = [name for name in entry.owed if name not in names] if entry.owed else []
            if resumed is not None and entry.owed is None and asker not in names:
                absent.append(resumed[0])
            queue.owe(entry, owed + absent)
            entry.considered = names if entry.considered <= names else entry.considered | names
    return sorted([*plain, *debounced.work()], key=_PRIORITY)


_PRIORITY = attrgetter("agent.priority")


async def scheduled(scheduler: Scheduler, context: Context, work: list[Work]) -> list[Work]:
    """Let a scheduler object reorder or drop work; it sees (agent, event, reads) of each.

    Raises `ValueError` when it returns something that it was not given, or something twice.
    """
    offered = [(item.agent, item.event, [Read(*read) for read in item.reads.items()]) for item in work]
    left = {id(offer): item for offer, item in zip(offered, work, strict=True)}
    chosen = []
    for offer in await scheduler(context, list(offered)):
        found = left.pop(id(offer), None)
        if found is None:  # perhaps an item of its own making that means one of ours
            same = (key for key, item in left.items() if item.agent is offer[0] and item.event is offer[1])
            found = left.pop(next(same, 0), None)
        if found is None:
            raise ValueError(
                "the scheduler returned work that it was not given, or one item twice: return items of "
                "its list, each once at most"
            )
        chosen.append(found)
    return chosen


class _Debounced:
    """Work that waits for the last event of its scope: a consume of an agent.

    An event in the scope of several consumes stands for all of them; earlier work is taken over when
    later events stand for every scope it stood for.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], Work] = {}

    def add(self, work: Work, found: Sequence[Trigger]) -> None:
        """Let an event stand for the scopes of the triggers that found it."""
        for scope in {id(trigger.debounce_scope): None for trigger in found}:
            earlier = self._last.get((work.name, scope))
            self._last[work.name, scope] = work
            if earlier is not None and all(kept is not earlier for kept in self._last.values()):
                work.entries = [*earlier.entries, *work.entries]

    def work(self) -> list[Work]:
        """Return what is left, each once."""
        return list({id(work): work for work in self._last.values()}.values())


# -- what is to begin next --


T = TypeVar("T")


class Upcoming(Generic[T]):
    """Items to begin, the first that may come first; items of one group never overtake one another.

    `group` names what an item shares its limit with, `limit` says how many of that may be in progress at
    once (`None`: any number).
    """

    def __init__(
        self, items: Iterable[T], group: Callable[[T], Hashable], limit: Callable[[T], int | None]
    ) -> None:
        self._waiting = deque(enumerate(items))
        self._group = group
        self._limit = limit
        self._held_back: dict[Hashable, deque[tuple[int, T]]] = {}  # all of it comes before what waits
        self._running: Counter[Hashable] = Counter()

    def next(self) -> T | None:
        """Take the first that may begin now, if any; `ended` has to be told when it ends."""
        ready = [held[0] for held in self._held_back.values() if self._has_room(held[0][1])]
        if ready:
            _, item = min(ready, key=lambda place: place[0])
            group = self._group(item)
            self._held_back[group].popleft()
            if not self._held_back[group]:
                del self._held_back[group]
            return self._begin(item)
        while self._waiting:
            place = self._waiting.popleft()
            if self._has_room(place[1]):
                return self._begin(place[1])
            self._held_back.setdefault(self._group(place[1]), deque()).append(place)
        return None

    def ended(self, item: T) -> None:
        """Make room for another item of its group."""
        group = self._group(item)
        self._running[group] -= 1
        if not self._running[group]:
            del self._running[group]

    def _has_room(self, item: T) -> bool:
        limit = self._limit(item)
        return limit is None or self._running[self._group(item)] < limit

    def _begin(self, item: T) -> T:
        self._running[self._group(item)] += 1
        return item
