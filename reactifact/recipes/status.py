"""A status that follows from a context, and the stages that a change reaches."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from .._context.context import Context
from ..artifacts import Artifact
from ..produce import Produce, ProduceCall

# -- `StatusMachine` --


M = TypeVar("M", bound=BaseModel)


class StatusMachine(Produce[M]):
    """Keeps the status of the artifacts of one type, the owners.

    Subclass it with `artifact_type` (or derive from `StatusMachine[YourModel]`), `terminal` and
    `next_status`. An owner and what belongs to it share a key, which stands in their field
    `query_id_field`. On any event whose artifact has a key, the owner with that key gets what
    `next_status` says into its field `status_field`, unless it says `None` or the same, or the
    owner's status is in `terminal`. Of several owners with one key it is the first created.

    An owner whose id is its key is found at once; others are looked for among all of the type.
    """

    terminal: frozenset[str] = frozenset()
    query_id_field: str = "query_id"
    status_field: str = "status"

    def __init__(self, artifact_type: type[BaseModel] | None = None, **options: Any) -> None:
        if type(self).next_status is StatusMachine.next_status:
            raise TypeError(f"{type(self).__name__} does not say which status comes next: write next_status")
        super().__init__(artifact_type, **options)

    def next_status(self, context: Context, key: str) -> str | Awaitable[str | None] | None:
        """Return the status that the owner with a key should have, `None` to leave it. May be async."""
        raise NotImplementedError(f"{type(self).__name__}.next_status")

    def owner_key(self, artifact: Artifact[M]) -> str | None:
        """Return the key of an owner: its field `query_id_field`, or its id where it has no such field."""
        if self.query_id_field in type(artifact.data).model_fields:
            return _text(getattr(artifact.data, self.query_id_field))
        return artifact.id

    def on_transition(
        self, call: ProduceCall[Any], artifact: Artifact[M], old: str, new: str
    ) -> Awaitable[None] | None:
        """Do what goes with a change of status, as effects of the same commit. May be async."""

    async def produce(self, call: ProduceCall[Any]) -> None:
        """Set the status of the owner that the event is about."""
        key = self._key(call.trigger)
        owner = None if key is None else self._owner(call, key)
        if key is None or owner is None:
            return
        old = getattr(owner.data, self.status_field)
        if old in self.terminal:
            return
        new = self.next_status(call.context, key)
        if inspect.isawaitable(new):
            new = await new
        if new is None or new == old:
            return
        call.effects.update(owner, **{self.status_field: new})
        done = self.on_transition(call, owner, old, new)
        if inspect.isawaitable(done):
            await done

    def _key(self, trigger: Artifact[Any] | None) -> str | None:
        if trigger is None:
            return None
        if isinstance(trigger.data, self._type):
            return self.owner_key(trigger)
        return _text(getattr(trigger.data, self.query_id_field, None))

    def _owner(self, call: ProduceCall[Any], key: str) -> Artifact[M] | None:
        near: Artifact[Any] | None = call.trigger
        if near is None or not isinstance(near.data, self._type):
            near = call.context.get(key)
        if near is not None and isinstance(near.data, self._type) and self.owner_key(near) == key:
            return near
        owners: list[Artifact[Any]] = call.context.list_artifacts(self._type)
        return next((owner for owner in owners if self.owner_key(owner) == key), None)

    @property
    def _type(self) -> type[BaseModel]:
        assert self.artifact_type is not None  # the constructor refuses a produce without one
        return self.artifact_type


def _text(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)


# -- stages --


S = TypeVar("S")

Fields = BaseModel | Mapping[str, Any]


def changed_fields(old: Fields | None, new: Fields, *, ignore: Iterable[str] = ()) -> frozenset[str]:
    """Return the names of the fields that differ and are not `None` in `new`.

    Both are models or mappings. With `old` being `None` every field that `new` sets counts.
    """
    before, after = _values(old), _values(new)
    ignored = frozenset(ignore)
    return frozenset(
        name
        for name, value in after.items()
        if name not in ignored and value is not None and (name not in before or before[name] != value)
    )


def _values(fields: Fields | None) -> dict[str, Any]:
    if isinstance(fields, BaseModel):
        return dict(fields)  # the values as they are, extra fields included
    return dict(fields or {})


def earliest_stage(changed: Iterable[str], *, field_stages: Mapping[str, S], order: Sequence[S]) -> S | None:
    """Return the first stage, in `order`, that one of the changed fields belongs to, or `None`."""
    touched = [field_stages[name] for name in changed if name in field_stages]
    return next((stage for stage in order if stage in touched), None)


def downstream_fields(target: S, *, field_stages: Mapping[str, S], order: Sequence[S]) -> frozenset[str]:
    """Return the fields of the stage `target` and of every later one; none for an unknown stage."""
    stages = list(order)
    if target not in stages:
        return frozenset()
    later = stages[stages.index(target) :]
    return frozenset(name for name, stage in field_stages.items() if stage in later)
