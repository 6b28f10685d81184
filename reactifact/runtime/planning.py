"""Which agents run on which events: matching a queue against a state.

Owns the order of work (events in order, agents by priority, debounced ones once) and the note of
which agents an event still owes. Executes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..authoring.agents import Agent
from ..context import Context
from ..context.events import Event, QueueEntry
from ..context.scope import Scope, entered
from ..context.working import Working


@dataclass(slots=True)
class Work:
    """One execution to come: an agent on an event (the last one, where several were debounced)."""

    name: str
    agent: Agent
    event: Event
    entries: list[QueueEntry]
    reads: dict[str, int] = field(default_factory=dict)
    debounced: bool = False


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


def match(
    context: Context, view: Working, agents: Sequence[Agent], queue: Sequence[QueueEntry]
) -> list[Work]:
    """Match every queued event; note in each entry which agents it owes; return the work.

    An entry that was matched before is asked only for the agents it owes and for those that were
    not there then. Conditions see the state of `view`; what they read is noted on the work.
    """
    ordered = named(agents)
    names = frozenset(name for name, _ in ordered)
    plain: list[Work] = []
    debounced: dict[tuple[str, int], Work] = {}
    scope = Scope(context, view)
    with entered(scope):
        for entry in queue:
            owed = []
            for name, agent in ordered:
                if not _is_asked(entry, name):
                    continue
                view.reads = {}
                found = agent.matching_triggers(entry.event, context)
                if not found:
                    continue
                owed.append(name)
                work = Work(name, agent, entry.event, [entry], view.reads)
                if not all(trigger.debounce for trigger in found):
                    plain.append(work)
                    continue
                work.debounced = True
                key = (name, id(found[0].artifact_type))
                if key in debounced:
                    work.entries = [*debounced[key].entries, entry]
                debounced[key] = work
            absent = [name for name in entry.owed or () if name not in names]
            entry.owed = owed + absent
            entry.considered |= names
    return sorted([*plain, *debounced.values()], key=lambda work: work.agent.priority)


def _is_asked(entry: QueueEntry, name: str) -> bool:
    if entry.owed is None or name in entry.owed:
        return True
    return bool(entry.considered) and name not in entry.considered
