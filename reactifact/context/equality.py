"""Where two pieces of model data differ: the test of a faithful round trip.

Owns what counts as the same: the same types all the way down (`True` is not `1`), equal values, and
private attributes. Stricter than `==`, with two exceptions that lose nothing: a zone may come back
as its offset at that moment, and an `int` where a `float` is declared as that float.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NamedTuple
from uuid import UUID

from pydantic import BaseModel

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "nothing"})()
"""Stands for a value that one side does not have."""

_ATOMS = frozenset({str, int, bool, float, bytes, type(None), Decimal, date, timedelta, UUID})


class Difference(NamedTuple):
    """The first place where two values differ."""

    path: tuple[str, ...]  # ready to be joined: `.name`, `[3]`
    written: Any
    back: Any
    owner: Any = None  # the model, mapping or sequence that holds the value
    field: str | None = None  # its field there, where the owner is a model
    kind: Literal["value", "key", "order"] = "value"


def difference(written: Any, back: Any) -> Difference | None:
    """Return where `back` differs from `written`, `None` if it is the same data."""
    kind = type(written)
    if kind is not type(back):
        if kind is int and type(back) is float and written == back:
            return None
        return Difference((), written, back)
    if kind in _ATOMS:
        return None if written == back else Difference((), written, back)
    if kind is list or kind is tuple:
        return _sequence(written, back)
    if isinstance(written, BaseModel):
        return _model(written, back)
    if isinstance(written, (datetime, time)):
        return None if _same_moment(written, back) else Difference((), written, back)
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
    return None if _equal(written, back) else Difference((), written, back)


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
    for name in type(written).model_fields:
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
        # A lock or a client that the class makes anew for each instance is no data.
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
    return None if len(written) == len(back) else Difference((), written, back)


def _dataclass_items(value: Any) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(value):
        yield field.name, getattr(value, field.name, MISSING)


def _same_moment(written: Any, back: Any) -> bool:
    # `==` calls times in the hour that a zone repeats unequal to any other zone; the offsets tell.
    plain, other = written.replace(tzinfo=None, fold=0), back.replace(tzinfo=None, fold=0)
    return bool(plain == other and written.utcoffset() == back.utcoffset())


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
