"""What an agent reads and reacts to: single types, and groups of artifacts that belong together.

Owns `Consume`, and `CorrelatedConsume`, `JoinConsume`, `AbsentConsume` and `AllOfConsume` over groups; the
index of groups is `_context/groups`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from inspect import getattr_static
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from ._context.context import Context
from ._context.groups import DataCondition, Facts, GroupIndex, Key, Role, Rules
from ._context.working_copy import WorkingCopy
from ._store.index import Indexes
from .artifacts import Artifact
from .events import EventType
from .interrupt import WAKE, PendingAction
from .produce import ProduceCall, Types, as_types
from .triggers import Condition, Trigger

__all__ = ["AbsentConsume", "AllOfConsume", "Consume", "CorrelatedConsume", "JoinConsume", "consume"]


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

    @staticmethod
    def wake(prefix: str = "", **options: Any) -> Consume:
        """Return a consume that reacts to wakes (`effects.wake`) whose key begins with `prefix`.

        The wake is the trigger of the execution; it gives no inputs, so that it costs the same however many
        wakes there were.
        """

        def came(found: Artifact[Any]) -> bool:
            action = found.data
            is_wake = action.kind == WAKE and action.status == "dispatched"
            return is_wake and bool(action.idempotency_key.startswith(prefix))

        return _Wakes(PendingAction, came, (EventType.ARTIFACT_UPDATED,), **options)

    @staticmethod
    def all_of(
        part: type[BaseModel],
        *,
        announced_by: type[BaseModel],
        key: Key,
        expected: Expected,
        deadline: str | None = None,
    ) -> AllOfConsume:
        """Return a consume that wakes when all parts that an artifact announced are there: `AllOfConsume`."""
        return AllOfConsume(part, announced_by=announced_by, key=key, expected=expected, deadline=deadline)

    def __repr__(self) -> str:
        kind = self.artifact_type.__name__ if self.artifact_type is not None else "?"
        extra = (", condition=..." if self.condition is not None else "") + (
            "" if self.wakes else ", wakes=False"
        )
        return f"{type(self).__name__}({kind}{extra})"


class _Wakes(Consume):
    """Wakes, which are looked at one by one."""

    def collect(self, context: Context) -> list[Artifact[Any]]:
        """Return nothing: what came before does not matter."""
        return []


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
        return _read_in_order(working, self._index(working).all_parts(working), self.require)

    def _is_met(self, artifact: Artifact[Any], context: Context) -> bool:
        working = context.working
        parts = self._index(working).parts_with(working, artifact.id)
        if parts is None:
            return False
        _read_in_order(working, parts, self.require)
        return True

    def _index(self, working: WorkingCopy) -> GroupIndex:
        return _index_of(self._indexes, self._lock, self._rules, working)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._label()})"


Expected = Callable[[Any], int | Collection[str]]
"""Says, of the data of a plan, how many parts are to come, or the ids of their artifacts."""


class Gathered(NamedTuple):
    """What came of the parts that a plan announced, in order of creation."""

    plan: Artifact[Any]
    parts: list[Artifact[Any]]
    is_complete: bool


class AllOfConsume(BaseConsume):
    """The parts that one artifact, the plan, announced: all of them, or those that came by a deadline.

    `key(data)` says of a plan and of a part which plan it belongs to, and `expected(data)` of the plan how
    many parts are to come, or which ids they have. It wakes once when the last of them is there, and again
    when one of a complete group is written anew. With `deadline`, the prefix of a wake's key, it also wakes
    when the wake `deadline + str(key)` comes (`effects.wake`, planned with the plan) and parts are
    missing. `gathered(call)` gives plan and parts. Raises `ValueError` where both types are the same.
    """

    def __init__(
        self,
        part: type[BaseModel],
        *,
        announced_by: type[BaseModel],
        key: Key,
        expected: Expected,
        deadline: str | None = None,
    ) -> None:
        if part is announced_by:
            raise ValueError(f"{part.__name__} cannot announce itself: name the type that says how many come")
        self.part = part
        self.plan = announced_by
        self._expected = expected
        self._deadline = deadline
        self._rules = Rules(key, [Role(announced_by, None, False), Role(part, None, False)])
        self._indexes: WeakKeyDictionary[Indexes, GroupIndex] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def to_triggers(self) -> list[Trigger]:
        """Return the triggers of plan, parts and deadline."""
        found = [
            Trigger(event_type, kind, context_condition=self._is_last, owner=self)
            for kind in (self.plan, self.part)
            for event_type in self.event_types
        ]
        if self._deadline is not None:
            found.append(
                Trigger(
                    EventType.ARTIFACT_UPDATED, PendingAction, context_condition=self._is_late, owner=self
                )
            )
        return found

    def types(self) -> tuple[type[BaseModel], ...]:
        """Return the types that are read."""
        return self.plan, self.part

    def collect(self, context: Context) -> list[Artifact[Any]]:
        """Return plans and parts of all groups that are complete, or whose deadline came, in order."""
        working = context.working
        found = [
            artifact_id
            for key, members in self._index(working).all_members(working).items()
            if self._is_complete(working, members) or self._has_come(working, key)
            for artifact_id in members
        ]
        return _read_in_order(working, found, self.types())

    def gathered(self, call: ProduceCall) -> Gathered | None:
        """Return the plan and the parts that an execution was woken for; `None` where the plan is gone."""
        working, trigger = call.context.working, call.trigger
        key: Any = None
        if trigger is not None and isinstance(trigger.data, PendingAction) and self._deadline is not None:
            key = trigger.data.idempotency_key.removeprefix(self._deadline)
            groups = self._index(working).all_members(working)
            members = next((found for one, found in groups.items() if str(one) == key), {})
        else:
            known = None if trigger is None else self._index(working).members_with(working, trigger.id)
            members = {} if known is None else known[1]
        plans = [artifact_id for artifact_id, facts in members.items() if 0 in facts.roles]
        if not plans:
            return None
        parts = [artifact_id for artifact_id, facts in members.items() if 1 in facts.roles]
        artifacts = {one.id: one for one in _read_in_order(working, [*plans, *parts], self.types())}
        in_order = [artifact for artifact in artifacts.values() if artifact.id in parts]
        return Gathered(artifacts[plans[0]], in_order, self._is_complete(working, members))

    def _is_complete(self, working: WorkingCopy, members: Mapping[str, Facts]) -> bool:
        plans = [artifact_id for artifact_id, facts in members.items() if 0 in facts.roles]
        parts = {artifact_id for artifact_id, facts in members.items() if 1 in facts.roles}
        stored = working.state.stored(plans[0]) if plans else None
        if stored is None:
            return False
        expected = self._expected(working.artifact(stored).data)
        return len(parts) >= expected if isinstance(expected, int) else parts.issuperset(expected)

    def _is_last(self, artifact: Artifact[Any], context: Context) -> bool:
        """Whether a group is complete and an artifact the one of it that was written last."""
        working = context.working
        known = self._index(working).members_with(working, artifact.id)
        if known is None or not self._is_complete(working, known[1]):
            return False
        _read_in_order(working, known[1], self.types())
        stored = (working.state.stored(artifact_id) for artifact_id in known[1])
        last = max((one.meta.written, one.meta.id) for one in stored if one is not None)
        return last[1] == artifact.id

    def _is_late(self, wake: Artifact[Any], context: Context) -> bool:
        """Whether a wake is the deadline of a plan some of whose parts are missing."""
        action, prefix, working = wake.data, self._deadline, context.working
        if prefix is None or action.kind != WAKE or action.status != "dispatched":
            return False
        if not action.idempotency_key.startswith(prefix):
            return False
        key = action.idempotency_key.removeprefix(prefix)
        for one, members in self._index(working).all_members(working).items():
            if str(one) == key and any(0 in facts.roles for facts in members.values()):
                _read_in_order(working, members, self.types())
                return not self._is_complete(working, members)
        return False

    def _has_come(self, working: WorkingCopy, key: Any) -> bool:
        stored = None if self._deadline is None else working.state.stored(f"action:{self._deadline}{key}")
        return stored is not None and working.artifact(stored).data.status == "dispatched"

    def _index(self, working: WorkingCopy) -> GroupIndex:
        return _index_of(self._indexes, self._lock, self._rules, working)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.part.__name__} announced by {self.plan.__name__})"


def _index_of(
    known: WeakKeyDictionary[Indexes, GroupIndex], lock: threading.Lock, rules: Rules, working: WorkingCopy
) -> GroupIndex:
    """Return the index of a consume over the history that a view belongs to."""
    indexes = working.state.indexes
    with lock:
        found = known.get(indexes)
        if found is None:
            found = known[indexes] = GroupIndex(rules)
        return found


def _read_in_order(
    working: WorkingCopy, artifact_ids: Iterable[str], kinds: Iterable[type[BaseModel]]
) -> list[Artifact[Any]]:
    """Return artifacts in order of creation, noted as read, in a size that does not grow with what exists."""
    found = [one for one in map(working.state.stored, artifact_ids) if one is not None]
    found.sort(key=lambda one: (one.meta.sequence, one.meta.id))
    if working.is_tracking and len(found) <= SINGLE_READS:
        for one in found:
            working.note_read(one.meta.id, one)
    elif working.is_tracking:
        for kind in kinds:
            working.note_listing(kind)
    return [working.artifact(one) for one in found]


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
