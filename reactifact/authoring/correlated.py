"""Consumes over groups of artifacts: all parts there (`JoinConsume`), or one missing (`AbsentConsume`).

Owns what wakes, what is fed and what counts as read. The groups are found through an index
(`groups`), one for each line of history a consume is used with.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from ..context import Context
from ..context.artifacts import Artifact
from ..context.events import EventType
from ..context.working import Working
from ..store.index import Indexes
from .consume import DEFAULT_EVENTS, BaseConsume, refuse_idle_debounce
from .groups import DataCondition, GroupIndex, Key, Role, Rules
from .produce import Types, as_types
from .triggers import Trigger

Conditions = Mapping[type[BaseModel], DataCondition]

SINGLE_READS = 100
"""How many parts are noted one by one as read; beyond that, their types are noted as listed."""


class CorrelatedConsume(BaseConsume):
    """Groups of artifacts that share a key: every required type there, no forbidden one.

    `key(data)` names the group of an artifact and must be hashable; `require_conditions` and
    `forbid_conditions` map a type to a condition on its data: an artifact that fails it is no part of
    the group. Wakes on an event of exactly a required type whose artifact is now a part of such a
    group, never on an event of a forbidden type, and not on a deletion. Subclasses count as parts.

    Raises `ValueError` for an empty `require`, for a condition on a type that is not named, and for
    `debounce` with `wakes=False`.
    """

    def __init__(
        self,
        *,
        key: Key,
        require: Types,
        require_conditions: Conditions | None = None,
        forbid: Types = (),
        forbid_conditions: Conditions | None = None,
        event_types: Iterable[EventType] = DEFAULT_EVENTS,
        wakes: bool = True,
        debounce: bool = False,
    ) -> None:
        self.key = key
        self.require = tuple(dict.fromkeys(as_types(require)))
        self.forbid = tuple(dict.fromkeys(as_types(forbid)))
        if not self.require:
            raise ValueError(f"{type(self).__name__} requires no type: name at least one in require")
        required = _conditions("require", self.require, require_conditions)
        forbidden = _conditions("forbid", self.forbid, forbid_conditions)
        self.event_types = tuple(event_types)
        self.wakes = wakes
        self.debounce = debounce
        refuse_idle_debounce(self, self._label())
        roles = [Role(kind, required.get(kind), False) for kind in self.require]
        roles += [Role(kind, forbidden.get(kind), True) for kind in self.forbid]
        self._rules = Rules(key, roles)
        self._indexes: WeakKeyDictionary[Indexes, GroupIndex] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def _label(self) -> str:
        return " and ".join(kind.__name__ for kind in self.require)

    def to_triggers(self) -> list[Trigger]:
        """Return one trigger for each required type and event type; none when it does not wake."""
        if not self.wakes:
            return []
        return [
            Trigger(event_type, kind, context_condition=self._is_met, debounce=self.debounce, owner=self)
            for kind in self.require
            for event_type in self.event_types
        ]

    def types(self) -> tuple[type[BaseModel], ...]:
        """Return the types that are read, the forbidden ones last."""
        return tuple(dict.fromkeys((*self.require, *self.forbid)))

    def collect(self, context: Context) -> list[Artifact[Any]]:
        """Return the parts of all complete, unblocked groups, in order of creation."""
        working = context.working
        found = [working.state.stored(part) for part in self._index(working).all_parts(working)]
        stored = sorted(
            (one for one in found if one is not None), key=lambda one: (one.meta.sequence, one.meta.id)
        )
        self._note(working, [one.meta.id for one in stored])
        return [working.artifact(one) for one in stored]

    def _is_met(self, artifact: Artifact[Any], context: Context) -> bool:
        working = context.working
        parts = self._index(working).parts_with(working, artifact.id)
        if parts is None:
            return False
        self._note(working, parts)
        return True

    def _index(self, working: Working) -> GroupIndex:
        indexes = working.state.indexes
        with self._lock:
            found = self._indexes.get(indexes)
            if found is None:
                found = self._indexes[indexes] = GroupIndex(self._rules)
            return found

    def _note(self, working: Working, parts: list[str]) -> None:
        """Note what the match rests on, in a size that does not grow with what exists."""
        if not working.is_tracking:
            return
        if len(parts) <= SINGLE_READS:
            for part in parts:
                working.note_read(part, working.state.stored(part))
        else:
            for kind in self.require:
                working.note_listing(kind)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._label()})"


class JoinConsume(CorrelatedConsume):
    """Groups that hold at least one artifact of every type. Raises `ValueError` below two types."""

    def __init__(
        self,
        *types: type[BaseModel],
        key: Key,
        part_conditions: Conditions | None = None,
        event_types: Iterable[EventType] = DEFAULT_EVENTS,
        wakes: bool = True,
        debounce: bool = False,
    ) -> None:
        if len(set(types)) < 2:
            raise ValueError(
                f"{type(self).__name__} joins at least two types, not {len(set(types))}: "
                f"name the others, or use Consume for one type alone"
            )
        super().__init__(
            key=key,
            require=types,
            require_conditions=part_conditions,
            event_types=event_types,
            wakes=wakes,
            debounce=debounce,
        )


class AbsentConsume(CorrelatedConsume):
    """Artifacts of a type for whose key there is no artifact of `absent_type`.

    With `absent_condition`, only an artifact that meets it blocks; with `condition`, only artifacts
    that meet it count. Both take data.
    """

    def __init__(
        self,
        artifact_type: type[BaseModel],
        *,
        absent_type: type[BaseModel],
        key: Key,
        absent_condition: DataCondition | None = None,
        condition: DataCondition | None = None,
        event_types: Iterable[EventType] = DEFAULT_EVENTS,
        wakes: bool = True,
        debounce: bool = False,
    ) -> None:
        super().__init__(
            key=key,
            require=artifact_type,
            require_conditions=None if condition is None else {artifact_type: condition},
            forbid=absent_type,
            forbid_conditions=None if absent_condition is None else {absent_type: absent_condition},
            event_types=event_types,
            wakes=wakes,
            debounce=debounce,
        )


def _conditions(what: str, types: tuple[type[BaseModel], ...], given: Conditions | None) -> Conditions:
    for kind in given or {}:
        if kind not in types:
            name = getattr(kind, "__name__", kind)
            raise ValueError(f"{what}_conditions names {name}, which {what} does not: add it there")
    return dict(given or {})
