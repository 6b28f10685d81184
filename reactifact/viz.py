"""Agents and contexts as Mermaid diagrams."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import count

from pydantic import BaseModel

from ._context.context import Context
from ._store.layout import Meta
from ._store.names import plain
from ._store.state import State
from .agents import Agent
from .consume import DEFAULT_EVENTS, BaseConsume, CorrelatedConsume
from .produce import as_types
from .recipes.status import StatusMachine

__all__ = ["blueprint", "context_to_mermaid"]


# -- the text of a Mermaid flowchart: nodes, groups, edges, and labels that may hold anything --


# Everything else has a meaning to Mermaid, to markdown or to HTML in some place of a label.
_UNSAFE = re.compile(r"""[^\w \-:.,/()+=@'!?]""")
# In a line with these words Mermaid takes `:...#...;` for a colour and eats the end of an entity.
_STYLING = ("style", "classDef")
# A label that begins like a list item is taken for markdown and not shown at all.
_LIST_ITEM = re.compile(r"^(\s*(?:\d+)?)([-+.)])(?=\s|$)")


def label(text: str) -> str:
    """Return any text as a quoted label: one line, characters with a meaning as entities."""
    shown = _UNSAFE.sub(lambda found: _entity(found[0]), plain(text))
    if any(word in shown for word in _STYLING):
        shown = shown.replace(":", _entity(":"))
    shown = _LIST_ITEM.sub(lambda found: found[1] + _entity(found[2]), shown)
    return f'"{shown}"' if shown.strip() else f'"{_entity(" ")}"'


def _entity(char: str) -> str:
    return f"#{ord(char)};"


def node(identity: str, text: str, shape: str = "[]") -> str:
    """Return a node; `shape` holds its brackets: `[]` a box, `()` a rounded one, `([])` a stadium."""
    half = len(shape) // 2
    return f"{identity}{shape[:half]}{label(text)}{shape[half:]}"


def edge(source: str, target: str, text: str | None = None, *, dotted: bool = False) -> str:
    """Return an edge from one node to another, with a label where there is a text."""
    arrow = "-.->" if dotted else "-->"
    return f"{source} {arrow} {target}" if text is None else f"{source} {arrow}|{label(text)}| {target}"


def group(identity: str, text: str, lines: Iterable[str]) -> list[str]:
    """Return a subgraph around lines."""
    return [f"subgraph {identity}[{label(text)}]", *indented(lines), "end"]


def indented(lines: Iterable[str]) -> list[str]:
    """Return lines one level deeper."""
    return [f"    {line}" for line in lines]


def flowchart(direction: str, lines: Iterable[str]) -> str:
    """Return the diagram. `direction` is `LR` or `TD`."""
    return "\n".join([f"flowchart {direction}", *indented(lines)]) + "\n"


# -- diagrams in Mermaid: what agents are wired to, and what a context holds --


BLUEPRINT = "Agents"
LIFECYCLE = "lifecycle"
"""The label of an edge from a status machine to the type whose status it keeps."""

Model = type[BaseModel]

# -- agents --------------------------------------------------------------------------------------


def blueprint(agents: Agent | Iterable[Agent], *, with_stages: bool = True, title: str = BLUEPRINT) -> str:
    """Return a flowchart of agents: the types they consume, and the types they may create.

    An edge into an agent is labelled with its kind of consume and the events it wakes on; a dotted
    one feeds it without waking. A type that only a consume forbids is drawn dotted too. With `with_stages`
    agents are grouped by the generation of a turn in which they can first run, if what no agent
    creates was there before it.
    """
    listed = [agents] if isinstance(agents, Agent) else list(agents)
    types = _Types()
    edges = [line for number, agent in enumerate(listed) for line in _wiring(f"a{number}", agent, types)]
    boxes = [node(f"a{number}", agent.name, "([])") for number, agent in enumerate(listed)]
    if with_stages:
        lines = []
        for stage, members in enumerate(_stages(listed), start=1):
            lines += group(f"S{stage}", f"stage {stage}", [boxes[number] for number in members])
    else:
        lines = boxes
    drawn = [node(identity, name) for identity, name in types.named()]
    return flowchart("LR", [*group("B", title, lines), *drawn, *edges])


class _Types:
    """The types that are drawn, each under an id of its own."""

    def __init__(self) -> None:
        self._ids: dict[Model, str] = {}

    def id_of(self, model: Model) -> str:
        return self._ids.setdefault(model, f"t{len(self._ids)}")

    def named(self) -> list[tuple[str, str]]:
        """Return (id, name) of each; two classes of one name are told apart by their modules."""
        names = [model.__name__ for model in self._ids]
        return [
            (i, m.__name__ if names.count(m.__name__) == 1 else f"{m.__module__}.{m.__qualname__}")
            for m, i in self._ids.items()
        ]


def _wiring(box: str, agent: Agent, types: _Types) -> list[str]:
    lines = []
    for part in agent.consumes or ():
        forbidden = part.forbid if isinstance(part, CorrelatedConsume) else ()
        for model in part.types():
            is_absent = model in forbidden and model not in _required(part)
            text = f"{type(part).__name__} {'absent' if is_absent else _events(part)}"
            dotted = is_absent or not part.wakes
            lines.append(edge(types.id_of(model), box, text, dotted=dotted))
    if not agent.consumes:
        for trigger in agent.triggers or ():
            if trigger.artifact_type is not None:
                text = f"Trigger {_past(trigger.event_type)}"
                lines.append(edge(types.id_of(trigger.artifact_type), box, text))
    for made in agent.produces or ():
        if isinstance(made, StatusMachine):
            for model in as_types(made.artifact_type):
                lines.append(edge(box, types.id_of(model), LIFECYCLE))
            lines += [edge(box, types.id_of(model)) for model in as_types(made.also_creates)]
        else:
            lines += [edge(box, types.id_of(model)) for model in made.creates]
    return list(dict.fromkeys(lines))


def _events(part: BaseConsume) -> str:
    if not part.wakes:
        return "reads"
    kinds = tuple(part.event_types)
    return "created, updated" if kinds == DEFAULT_EVENTS else ", ".join(map(_past, kinds))


def _past(event_type: str) -> str:
    return str(event_type).removeprefix("artifact_")


def _required(part: BaseConsume) -> tuple[Model, ...]:
    return part.require if isinstance(part, CorrelatedConsume) else part.types()


def _wakers(agent: Agent) -> list[set[Model]]:
    """Return what can wake an agent: sets of types that must all be there."""
    parts = [part for part in agent.consumes or () if part.wakes]
    if parts:
        return [set(_required(part)) for part in parts]
    return [{t.artifact_type} for t in agent.triggers or () if t.artifact_type is not None]


def _stages(agents: Sequence[Agent]) -> list[list[int]]:
    """Return the numbers of the agents that can first run in each generation.

    Where only a circle is left, the first agent of it begins.
    """
    wakers = [_wakers(agent) for agent in agents]
    made = [{kind for part in agent.produces or () for kind in part.creates} for agent in agents]
    there = {kind for sets in wakers for kinds in sets for kind in kinds} - set().union(*made)
    waiting = list(range(len(agents)))
    stages = []
    while waiting:
        ready = [i for i in waiting if not wakers[i] or any(kinds <= there for kinds in wakers[i])]
        ready = ready or waiting[:1]
        stages.append(ready)
        waiting = [i for i in waiting if i not in ready]
        there = there.union(*(made[i] for i in ready))
    return stages


# -- a state -------------------------------------------------------------------------------------


def context_to_mermaid(context: Context, *, relate: bool = True, limit: int | None = None) -> str:
    """Return a flowchart of what a context holds: artifacts by type, and the relations among them.

    With `limit` only the first so many artifacts are drawn, in order of creation; a relation is drawn
    where both ends are. Raises `ValueError` for a limit below 0.
    """
    working = context.working
    _check(limit)

    def name(meta: Meta) -> str:
        model = working.type_of(meta)
        return type_name(model) if isinstance(model, str) else model.__name__

    return _drawn(working.state, working.ids(), name, relate, limit)


def state_to_mermaid(state: State, *, relate: bool = True, limit: int | None = None) -> str:
    """Return what `context_to_mermaid` does of a stored state, naming types by their ids alone."""
    _check(limit)
    return _drawn(state, state.ids_of(state.type_ids()), lambda meta: type_name(meta.type_id), relate, limit)


def _check(limit: int | None) -> None:
    if limit is not None and limit < 0:
        raise ValueError(f"cannot draw {limit} artifacts: pass a limit of 0 or more")


def _drawn(
    state: State, ids: Sequence[str], name: Callable[[Meta], str], relate: bool, limit: int | None
) -> str:
    numbers = dict(zip(ids[:limit], count()))
    types: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    for artifact_id, number in numbers.items():
        stored = state.stored(artifact_id)
        assert stored is not None
        types.setdefault(stored.meta.type_id, []).append(node(f"n{number}", artifact_id))
        names.setdefault(stored.meta.type_id, name(stored.meta))
    lines: list[str] = []
    for place, (type_id, boxes) in enumerate(types.items()):
        is_alone = list(names.values()).count(names[type_id]) == 1
        lines += group(f"T{place}", names[type_id] if is_alone else type_id, boxes)
    if relate:
        lines += _relations(state, numbers)
    return flowchart("TD", lines)


def _relations(state: State, numbers: dict[str, int]) -> list[str]:
    found = [
        (link.sequence, edge(f"n{number}", f"n{numbers[link.target]}", link.relation))
        for source, number in numbers.items()
        for link in state.outgoing(source)
        if link.target in numbers
    ]
    return [line for _, line in sorted(found)]


_QUALIFIED = re.compile(r"[\w.<>\[\], |]+")
_LEADING = re.compile(r"(?:\w+\.|<locals>\.)+(?=\w)")


def type_name(type_id: str) -> str:
    """Return the class name in a qualified name (also within a generic's), any other id as it is."""
    return _LEADING.sub("", type_id) if _QUALIFIED.fullmatch(type_id) else type_id
