"""What an agent reads and reacts to: single types, and groups of artifacts that belong together.

Owns `Consume`, and `CorrelatedConsume`, `JoinConsume` and `AbsentConsume` over groups; the index of groups
is `_context/groups`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from inspect import getattr_static
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from ._context.context import Context
from ._context.groups import DataCondition, GroupIndex, Key, Role, Rules
from ._context.working_copy import WorkingCopy
from ._store.index import Indexes
from .artifacts import Artifact
from .events import EventType
from .produce import Types, as_types
from .triggers import Condition, Trigger

__all__ = ["AbsentConsume", "Consume", "CorrelatedConsume", "JoinConsume", "consume"]


# -- what an agent reads and reacts to: `BaseConsume`, and `Consume` for a single type --


DEFAULT_EVENTS = (EventType.ARTIFACT_CREATED, EventType.ARTIFACT_UPDATED)


class BaseConsume(ABC):
    """What the members of `Agent.consumes` have in common."""

    event_types: Iterable[EventType] = DEFAULT_EVENTS
    wakes: bool = True
    debounce: bool = False

    @abstractmethod
    def to_triggers(self) -> list[Trigger]:
        """Return the triggers that wake the agent; none when the consume does not wake."""

    @abstractmethod
    def types(self) -> tuple[type[BaseModel], ...]:
        """Return the types that are read."""

    @abstractmethod
    def collect(self, context: Context) -> list[Artifact[Any]]:
        """Return the live artifacts that match, in order of creation."""


def refuse_idle_debounce(consume: BaseConsume, label: str) -> None:
    """Refuse `debounce` where nothing ever wakes. Raises `ValueError`."""
    if consume.debounce and not consume.wakes:
        raise ValueError(
            f"debounce is meaningless on a consume of {label} with wakes=False: "
            f"it never wakes anybody; drop one of the two"
        )


class Consume(BaseConsume):
    """Artifacts of a type (subclasses included as inputs, exact type to wake).

    `wakes=False` feeds inputs without waking. `debounce=True` makes one run of several events of a
    batch. Defaults come from class attributes.
    """

    artifact_type: type[BaseModel] | None = None
    condition: Condition | None = None

    def __init__(
        self,
        artifact_type: type[BaseModel] | None = None,
        condition: Condition | None = None,
        event_types: Iterable[EventType] | None = None,
        *,
        wakes: bool | None = None,
        debounce: bool | None = None,
    ) -> None:
        kind = artifact_type if artifact_type is not None else type(self).artifact_type
        if kind is None:
            raise ValueError(
                f"{type(self).__name__} has no artifact type: pass one, or set artifact_type on the class"
            )
        # a function as class attribute is a condition on artifacts, not a method
        own = getattr_static(type(self), "condition", None)
        own = own.__func__ if isinstance(own, staticmethod) else own
        self.artifact_type = kind
        self.condition = condition if condition is not None else own
        self.event_types = tuple(event_types if event_types is not None else type(self).event_types)
        self.wakes = type(self).wakes if wakes is None else wakes
        self.debounce = type(self).debounce if debounce is None else debounce
        refuse_idle_debounce(self, kind.__name__)

    def to_triggers(self) -> list[Trigger]:
        """Return one trigger per event type; none when the consume does not wake."""
        if not self.wakes:
            return []
        return [
            Trigger(kind, self.artifact_type, self.condition, debounce=self.debounce, owner=self)
            for kind in self.event_types
        ]

    def types(self) -> tuple[type[BaseModel], ...]:
        """Return the types that are read."""
        return () if self.artifact_type is None else (self.artifact_type,)

    def collect(self, context: Context) -> list[Artifact[Any]]:
        """Return the live artifacts that match, subclasses included, in order of creation."""
        found = context.list_artifacts(self.artifact_type)
        return found if self.condition is None else [a for a in found if self.condition(a)]

    @classmethod
    def by_field(cls, artifact_type: type[BaseModel], field: str, value: Any, **options: Any) -> Consume:
        """Return a consume of the artifacts whose `field` equals `value`."""
        return cls(artifact_type, lambda found: getattr(found.data, field, None) == value, **options)

    @classmethod
    def by_status(cls, artifact_type: type[BaseModel], status: Any, **options: Any) -> Consume:
        """Return a consume of the artifacts whose `status` equals `status`."""
        return cls.by_field(artifact_type, "status", status, **options)


def consume(
    artifact_type: type[BaseModel],
    condition: Condition | None = None,
    event_types: Iterable[EventType] | None = None,
    **options: Any,
) -> Consume:
    """Return a `Consume`."""
    return Consume(artifact_type, condition, event_types, **options)


# -- consumes over groups of artifacts --


Conditions = Mapping[type[BaseModel], DataCondition]

SINGLE_READS = 100
"""How many parts are noted one by one as read; beyond that, their types are noted as listed."""


class CorrelatedConsume(BaseConsume):
    """Groups of artifacts that share a key: every required type there, no forbidden one.

    `key(data)` names the group of an artifact and must be hashable; `require_conditions` and
    `forbid_conditions` map a type to a condition on its data: an artifact that fails it is not part of
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

    def _index(self, working: WorkingCopy) -> GroupIndex:
        indexes = working.state.indexes
        with self._lock:
            found = self._indexes.get(indexes)
            if found is None:
                found = self._indexes[indexes] = GroupIndex(self._rules)
            return found

    def _note(self, working: WorkingCopy, parts: list[str]) -> None:
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
