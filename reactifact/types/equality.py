"""Where two pieces of model data differ: the test of a faithful round trip.

Owns what counts as the same: the same types all the way down (`True` is not `1`), equal values, and
private attributes, and what `==` does not look at: the zone and `fold` of a time, the sign of a zero, the
digits of a Decimal, the bound of a deque. An `int` may come back as a `float` of that value where one is
declared. Not compared, because nothing computes with it: the label of a fixed offset, `UUID.is_safe`.
"""

from __future__ import annotations

import dataclasses
import struct
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NamedTuple
from uuid import UUID

from pydantic import BaseModel

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "nothing"})()
"""Stands for a value that one side does not have."""

_ATOMS = frozenset({str, int, bool, bytes, type(None), date, timedelta, UUID})


_PLAIN = _ATOMS | {float, Decimal, datetime, time}


class Difference(NamedTuple):
    """The first place where two values differ."""

    path: tuple[str, ...]  # ready to be joined: `.name`, `[3]`
    written: Any
    back: Any
    owner: Any = None  # the model, mapping or sequence that holds the value
    field: str | None = None  # its field there, where the owner is a model
    kind: Literal["value", "key", "order", "zone", "fold"] = "value"


def difference(written: Any, back: Any) -> Difference | None:
    """Return where `back` differs from `written`, `None` if it is the same data."""
    kind = type(written)
    if kind is not type(back):
        if kind is int and type(back) is float and written == back:
            return None
        return Difference((), written, back)
    if kind in _ATOMS:
        return None if written == back else Difference((), written, back)
    if kind is float or kind is Decimal:
        return None if _digits(written) == _digits(back) else Difference((), written, back)
    if kind is list or kind is tuple:
        return _sequence(written, back)
    if kind is dict:
        return _mapping(written, back)
    if isinstance(written, BaseModel):
        return _model(written, back)
    if isinstance(written, (datetime, time)):
        return _time(written, back)
    if isinstance(written, Mapping):
        return _mapping(written, back)
    if isinstance(written, Set):
        return _set(written, back)
    if isinstance(written, Enum):
        return None if written is back or written == back else Difference((), written, back)
    if dataclasses.is_dataclass(written):
        return _members(written, _dataclass_items(written), dict(_dataclass_items(back)))
    if _is_sequence(written):
        return _sequence(written, back)
    if not _equal(written, back):
        return Difference((), written, back)
    return _attributes(written, back)


def children(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield path part and value of everything directly inside `value`."""
    if isinstance(value, BaseModel):
        yield from ((f".{name}", item) for name, item in _stored(value).items())
    elif isinstance(value, Mapping):
        yield from ((f"[{key!r}]", item) for key, item in value.items())
    elif isinstance(value, Set):
        yield from (("{}", item) for item in value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((f".{name}", item) for name, item in _dataclass_items(value))
    elif _is_sequence(value):
        yield from ((f"[{index}]", item) for index, item in enumerate(value))


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, memoryview))


def _stored(model: BaseModel) -> dict[str, Any]:
    fields = type(model).model_fields
    values = {name: value for name, value in model.__dict__.items() if name in fields}
    return {**values, **(model.__pydantic_extra__ or {})}


def _model(written: BaseModel, back: BaseModel) -> Difference | None:
    ours, theirs = written.__dict__, back.__dict__
    for name in type(written).__pydantic_fields__:  # `model_fields` is a call, which warns on an instance
        value, other = ours.get(name, MISSING), theirs.get(name, MISSING)
        if type(value) is type(other) and type(value) in _ATOMS:
            if value == other:
                continue
        elif (found := difference(value, other)) is None:
            continue
        else:
            return _inside(found, f".{name}", written, name)
        return Difference((f".{name}",), value, other, written, name)
    if written.__pydantic_extra__ or back.__pydantic_extra__:
        extra = written.__pydantic_extra__ or {}
        found = _members(written, iter(extra.items()), back.__pydantic_extra__ or {})
        if found is not None:
            return found
    return _private(written, back) if written.__pydantic_private__ else None


def _private(written: BaseModel, back: BaseModel) -> Difference | None:
    theirs = back.__pydantic_private__ or {}
    for name, value in (written.__pydantic_private__ or {}).items():
        other = theirs.get(name, MISSING)
        # A lock or a client that the class makes anew for each instance is not data.
        if type(value) is type(other) and _compares_by_identity(type(value)):
            continue
        found = difference(value, other)
        if found is not None:
            return _inside(found, f".{name}", written, name)
    return None


def _compares_by_identity(cls: type) -> bool:
    inherited: Any = cls.__eq__
    return inherited is object.__eq__


def _members(owner: Any, items: Iterator[tuple[str, Any]], back: Mapping[str, Any]) -> Difference | None:
    met = set()
    for name, value in items:
        met.add(name)
        found = difference(value, back.get(name, MISSING))
        if found is not None:
            return _inside(found, f".{name}", owner, name)
    for name in back:
        if name not in met:
            return Difference((f".{name}",), MISSING, back[name], owner, name)
    return None


def _mapping(written: Mapping[Any, Any], back: Mapping[Any, Any]) -> Difference | None:
    keys = {key: key for key in back}
    for key, value in written.items():
        other = keys.get(key, MISSING)
        if type(other) is not type(key):
            return Difference((f"[{key!r}]",), key, _closest_key(key, other, keys), written, kind="key")
        if type(key) is not str and (found := difference(key, other)) is not None:
            return _inside(found, f"[{key!r}]", written)
        found = difference(value, back[key])
        if found is not None:
            return _inside(found, f"[{key!r}]", written)
    for key in back:
        if key not in written:
            return Difference((f"[{key!r}]",), MISSING, key, written, kind="key")
    if isinstance(written, OrderedDict) and list(written) != list(back):
        return Difference((), list(written), list(back), written, kind="order")
    if isinstance(written, defaultdict):
        made, other = written.default_factory, back.default_factory  # type: ignore[attr-defined]
        return None if made == other else Difference((".default_factory",), made, other, written)
    return None


def _closest_key(key: Any, other: Any, keys: Mapping[Any, Any]) -> Any:
    if other is not MISSING:
        return other
    return next((one for one in keys if str(one) == str(key)), MISSING)


def _set(written: Set[Any], back: Set[Any]) -> Difference | None:
    theirs = {item: item for item in back}
    for item in written:
        found = difference(item, theirs.get(item, MISSING))
        if found is not None:
            return _inside(found, "{}", written)
    return None if len(written) == len(back) else Difference((), written, back)


def _sequence(written: Any, back: Any) -> Difference | None:
    for index, (value, other) in enumerate(zip(written, back, strict=False)):
        found = difference(value, other)
        if found is not None:
            return _inside(found, f"[{index}]", written)
    if isinstance(written, deque) and written.maxlen != back.maxlen:
        return Difference((".maxlen",), written.maxlen, back.maxlen, written)
    return None if len(written) == len(back) else Difference((), written, back)


def _dataclass_items(value: Any) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(value):
        yield field.name, getattr(value, field.name, MISSING)


def _time(written: Any, back: Any) -> Difference | None:
    # `==` calls times in the hour that a zone repeats unequal to any other zone; the offsets tell.
    plain, other = written.replace(tzinfo=None, fold=0), back.replace(tzinfo=None, fold=0)
    if plain != other or written.utcoffset() != back.utcoffset():
        return Difference((), written, back)
    if not _is_same_zone(written.tzinfo, back.tzinfo):
        return Difference((), written, back, kind="zone")
    return None if written.fold == back.fold else Difference((), written, back, kind="fold")


def _is_same_zone(written: tzinfo | None, back: tzinfo | None) -> bool:
    """Tell whether two zones, whose offsets agree at one moment, agree at all others."""
    if written is back or written is None or back is None:
        return written is back
    if written == back:
        return True
    # Without a moment, a zone whose offset never changes tells it, and any other one tells nothing.
    offset = written.utcoffset(None)
    return offset is not None and offset == back.utcoffset(None)


def _digits(value: float | Decimal) -> Any:
    """Return what a number is made of, so that 0.0 is not -0.0, 1.0 is not 1.00, and NaN is NaN."""
    return struct.pack("<d", value) if isinstance(value, float) else value.as_tuple()


def _attributes(written: Any, back: Any) -> Difference | None:
    """Compare the plain attributes of two objects of a foreign class, whose `==` may look at none of them."""
    ours, theirs = getattr(written, "__dict__", {}), getattr(back, "__dict__", {})
    for name in ours.keys() & theirs.keys():  # what is cached may stand in one of them alone
        if type(ours[name]) in _PLAIN and (found := difference(ours[name], theirs[name])) is not None:
            return _inside(found, f".{name}", written)
    return None


def _equal(written: Any, back: Any) -> bool:
    try:
        return bool(written == back)
    except Exception:
        return False  # a value that cannot be compared cannot be shown to have come back


def _inside(found: Difference, part: str, owner: Any, field: str | None = None) -> Difference:
    path = (part, *found.path)
    if found.owner is None:
        return found._replace(path=path, owner=owner, field=field)
    return found._replace(path=path)
