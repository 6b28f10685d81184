"""Ready functions that merge two changes of one value, or of one artifact.

Owns the functions for values (`counter`, `as_set`, `append_only`), those that make a merge function
of a type from them (`per_field`, `last_writer`), and the marker with which any of them leaves a
conflict. All give the same result whichever side is ours. When they run is `resolving`'s business,
and the runtime's for two patches of one generation.

    register_type(Post, merge=per_field(views=counter, tags=as_set, log=append_only))
    register_type(Profile, merge=last_writer("changed_at"))

A function is called as `f(base, ours, theirs)`. `base` is `None` where both sides created it, and a
value's function gets `MISSING` for a field that one of the three does not have.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import pydantic_core
from pydantic import BaseModel

from .codec import encode_payload

M = TypeVar("M", bound=BaseModel)


class Marker(enum.Enum):
    """What a merge function may answer or be given besides values."""

    CONFLICT = "conflict"
    MISSING = "missing"


CONFLICT: Final = Marker.CONFLICT
"""Returned by a merge function or a policy: the two changes do not go together."""
MISSING: Final = Marker.MISSING
"""Given to a value's function where there is no value, on the side or in the base."""

ValueFunction = Callable[[Any, Any, Any], Any]
ModelFunction = Callable[[M | None, M, M], Any]


def unless_both(base: Any, ours: Any, theirs: Any) -> Any:
    """Merge a value three-way: the side that changed it wins, equal changes agree, else `CONFLICT`."""
    if ours == theirs or theirs == base:
        return ours
    return theirs if ours == base else CONFLICT


def counter(base: Any, ours: Any, theirs: Any) -> Any:
    """Add up what each side added to a number, equal or not: +1 and +1 is +2."""
    if ours is MISSING or theirs is MISSING or ours is None or theirs is None:
        return unless_both(base, ours, theirs)
    return ours + theirs - (0 if base is MISSING or base is None else base)


def as_set(base: Any, ours: Any, theirs: Any) -> Any:
    """Merge a set, or a list or tuple used as one: what either side added and neither removed.

    In a list, what the base holds keeps its order; what was added follows, sorted as JSON.
    """
    if not isinstance(ours, _COLLECTIONS) or not isinstance(theirs, _COLLECTIONS):
        return unless_both(base, ours, theirs)
    old, mine, other = (
        _by_json(side if isinstance(side, _COLLECTIONS) else ()) for side in (base, ours, theirs)
    )
    kept = [item for key, item in old.items() if key in mine and key in other]
    added = {key: item for key, item in (mine | other).items() if key not in old}
    return type(ours)([*kept, *(added[key] for key in sorted(added))])


_COLLECTIONS = (set, frozenset, list, tuple)


def append_only(base: Any, ours: Any, theirs: Any) -> Any:
    """Merge a list that only grows: the base, then what each side appended.

    What one side appended stays together; which side comes first follows from the content. A side
    that did more than append is a `CONFLICT` unless only one side changed anything.
    """
    if not isinstance(ours, list | tuple) or not isinstance(theirs, list | tuple):
        return unless_both(base, ours, theirs)
    old: Any = base if isinstance(base, list | tuple) else ours[:0]
    size = len(old)
    if ours[:size] != old or theirs[:size] != old:
        return unless_both(base, ours, theirs)
    first, second = sorted((ours[size:], theirs[size:]), key=lambda part: [_json(item) for item in part])
    return type(ours)([*old, *first, *second])


def per_field(**functions: ValueFunction) -> ModelFunction[Any]:
    """Return a merge function of a type that merges field by field.

    Fields without a function merge three-way; one that both sides changed differently leaves the
    whole artifact in conflict. Raises, at the first merge, `TypeError` for a name that is no field.
    """

    def merge(base: M | None, ours: M, theirs: M) -> Any:
        unknown = functions.keys() - dict(ours).keys() - dict(theirs).keys() - type(ours).model_fields.keys()
        if unknown:
            raise TypeError(
                f"per_field() of {type(ours).__qualname__} names {sorted(unknown)}, which are no fields of it"
            )
        old, mine, other = ({} if side is None else dict(side) for side in (base, ours, theirs))
        result: dict[str, Any] = {}
        for name in dict.fromkeys([*mine, *other]):
            sides = (old.get(name, MISSING), mine.get(name, MISSING), other.get(name, MISSING))
            function = functions.get(name, unless_both)
            result[name] = sides[1] if sides[1] == sides[2] == sides[0] else function(*sides)
            if result[name] is CONFLICT:
                return CONFLICT
        return _rebuilt(ours, {name: value for name, value in result.items() if value is not MISSING})

    return merge


def last_writer(field: str) -> ModelFunction[Any]:
    """Return a merge function of a type: the side whose `field` is greater wins whole.

    `None` is less than anything. On a tie the side whose stored JSON sorts last wins.
    """

    def merge(base: M | None, ours: M, theirs: M) -> Any:
        try:
            one, two = getattr(ours, field), getattr(theirs, field)
        except AttributeError as error:
            raise TypeError(f"last_writer({field!r}): {error}") from error
        if one == two:
            return max(ours, theirs, key=encode_payload)
        if one is None or two is None:
            return theirs if one is None else ours
        return theirs if one < two else ours

    return merge


def _rebuilt(model: M, values: dict[str, Any]) -> M:
    gone = dict(model).keys() - values.keys()
    copied = model.model_copy(update=values)
    for name in gone:  # an extra of ours that theirs removed
        delattr(copied, name)
    return copied


def _json(value: Any) -> bytes:
    return pydantic_core.to_json(value, by_alias=False)


def _by_json(items: Iterable[Any]) -> dict[bytes, Any]:
    return {_json(item): item for item in items}
