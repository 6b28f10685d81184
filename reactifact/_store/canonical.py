"""Canonical JSON, and what is damaged told as an error that names it.

Owns the bytes of payloads and bookkeeping (equal data gives equal bytes), the parsing of commits and trees
with errors that name the object, and the check of a record's fields.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, wraps
from io import BytesIO
from json.encoder import encode_basestring
from operator import attrgetter
from types import NoneType
from typing import Any, NamedTuple, NoReturn, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints

from blake3 import blake3
from pydantic_core import from_json, to_json

from ..errors import StoreError
from .objects import (
    CommitObject,
    GitObject,
    Kind,
    Oid,
    TreeEntry,
    damaged,
    object_id,
    parse_commit,
    parse_tree,
)

# -- canonical JSON: the one way in which data is written, so that equal data is an equal blob --


JsonValue: TypeAlias = "Mapping[str, JsonValue] | Sequence[JsonValue] | str | int | float | bool | None"
"""What JSON can hold. Sequences are lists and tuples."""


class _Plain:
    """json's C encoder takes no indent. A container of scalars alone is a line per separator, so one
    encoder for each depth writes it without a step of Python per scalar."""

    def __init__(self, depth: int) -> None:
        self.inner = "\n" + "  " * (depth + 1)
        self.outer = "\n" + "  " * depth
        self.separator = "," + self.inner
        self.encode = json.JSONEncoder(
            ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(self.separator, ": ")
        ).encode


_LEVELS = [_Plain(depth) for depth in range(16)]
_FEW = 4  # so many scalars are written sooner one by one than an encoder of json is set up
_LONG = 64 * 1024  # characters; a longer text is written in pieces: each whole copy of it would count
_CONTAINERS = (dict, list, tuple)


def encode(value: JsonValue) -> bytes:
    """Return the canonical bytes of `value`.

    Raises `ValueError` for NaN, infinities, lone surrogates, endless or far too deep nesting, and
    `TypeError` for what JSON has no form for, keys that are not strings included.
    """
    try:
        text = _object(value, 0, "\n") if type(value) is dict else _text(value, 0, "\n")
        return text.encode()
    except _LongText:
        return _encoded_in_pieces(value)
    except UnicodeEncodeError as error:
        raise ValueError(
            f"a text with the lone surrogate {error.object[error.start]!r} cannot be written as UTF-8"
        ) from error
    except RecursionError:
        raise ValueError("the data is nested too deeply, or contains itself") from None


def encode_sorted(record: Mapping[str, Any]) -> bytes:
    """Return what `encode` does, and sooner, of a record whose keys are in order, those inside it too.

    It holds texts, whole numbers, truth values, and lists of them. Raises `ValueError` for a lone surrogate.
    """
    try:
        return to_json(record, indent=2) + b"\n"
    except ValueError:
        return encode(dict(record))  # which says what is wrong


def one_line(value: JsonValue) -> str:
    """Return `value` as one line of JSON, with sorted keys. Raises `ValueError` for NaN and infinities."""
    return _ONE_LINE(value)


_ONE_LINE = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode


def decode(data: bytes) -> JsonValue:
    """Return the value in JSON bytes, canonical or not. Raises `ValueError` for anything else."""
    try:
        found: JsonValue = _DECODER.decode(data.decode())
        return found
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def decode_record(data: bytes) -> JsonValue:
    """Return the value in the bytes of a record that holds no fractions: as `decode`, and sooner."""
    try:
        return cast(JsonValue, from_json(data, allow_inf_nan=False))
    except ValueError:
        return decode(data)  # which says what is wrong, and takes a lone surrogate


def content_hash(data: bytes) -> str:
    """Return the blake3 of `data` as 64 lower-case hex digits."""
    return blake3(data).hexdigest()


def _text(value: Any, depth: int, end: str = "") -> str:
    kind = type(value)
    if kind is str:
        return encode_basestring(value) + end
    if kind is int:
        return int.__repr__(value) + end
    if value is None:
        return "null" + end
    if kind is bool:
        return ("true" if value else "false") + end
    if isinstance(value, dict):
        return _object(value, depth, end)
    if isinstance(value, (list, tuple)):
        return _array(value, depth, end)
    return _LEVELS[0].encode(value) + end


def _object(value: dict[Any, Any], depth: int, end: str) -> str:
    if not value:
        return "{}" + end
    level = _LEVELS[depth] if depth < len(_LEVELS) else _Plain(depth)
    one_by_one = len(value) <= _FEW
    for key, item in value.items():
        if not isinstance(key, str):
            raise TypeError(f"the key {key!r} is not a string")
        if isinstance(item, _CONTAINERS):
            one_by_one = True
        elif type(item) is str and len(item) > _LONG:
            raise _LongText
    if not one_by_one:
        return f"{{{level.inner}{level.encode(value)[1:-1]}{level.outer}}}{end}"
    parts = []
    for key in sorted(value):
        item = value[key]
        kind = type(item)  # scalars without a call of their own: most of the bookkeeping is made of them
        if kind is str:
            text = encode_basestring(item)
        elif kind is int:
            text = int.__repr__(item)
        elif item is None:
            text = "null"
        else:
            text = _text(item, depth + 1)
        parts.append(f"{encode_basestring(key)}: {text}")
    return f"{{{level.inner}{level.separator.join(parts)}{level.outer}}}{end}"


class _LongText(Exception):
    """There is a long text in an object; the data is written in pieces."""


def _encoded_in_pieces(value: JsonValue) -> bytes:
    """Return what `encode` does, and hold no more than one copy of a long text on the way."""
    out = BytesIO()
    try:
        _write(value, 0, out)
    except UnicodeEncodeError as error:
        raise ValueError(
            f"a text with the lone surrogate {error.object[error.start]!r} cannot be written as UTF-8"
        ) from error
    except RecursionError:
        raise ValueError("the data is nested too deeply, or contains itself") from None
    out.write(b"\n")
    return out.getvalue()


def _write(value: Any, depth: int, out: BytesIO) -> None:
    if type(value) is str and len(value) > _LONG:
        out.write(b'"')
        for start in range(0, len(value), _LONG):
            out.write(encode_basestring(value[start : start + _LONG])[1:-1].encode())
        out.write(b'"')
        return
    if not isinstance(value, _CONTAINERS) or not value:
        out.write(_text(value, depth).encode())
        return
    level = _LEVELS[depth] if depth < len(_LEVELS) else _Plain(depth)
    is_object = isinstance(value, dict)
    for key in value if is_object else ():
        if not isinstance(key, str):
            raise TypeError(f"the key {key!r} is not a string")
    between = "{" if is_object else "["
    for item in sorted(value) if is_object else value:
        out.write(f"{between}{level.inner}".encode())
        between = ","
        if is_object:
            out.write(f"{encode_basestring(item)}: ".encode())
        _write(value[item] if is_object else item, depth + 1, out)
    out.write(f"{level.outer}{'}' if is_object else ']'}".encode())


def _array(value: list[Any] | tuple[Any, ...], depth: int, end: str) -> str:
    if not value:
        return "[]" + end
    level = _LEVELS[depth] if depth < len(_LEVELS) else _Plain(depth)
    if len(value) > _FEW and not any(isinstance(item, _CONTAINERS) for item in value):
        return f"[{level.inner}{level.encode(value)[1:-1]}{level.outer}]{end}"
    parts = [encode_basestring(item) if type(item) is str else _text(item, depth + 1) for item in value]
    return f"[{level.inner}{level.separator.join(parts)}{level.outer}]{end}"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:40]} is larger than a JSON number can be")
    return number


def decoder(
    object_pairs_hook: Callable[[list[tuple[str, Any]]], dict[str, Any]] | None = None,
) -> json.JSONDecoder:
    """Return a decoder of JSON that refuses NaN, infinities and numbers beyond them."""
    return json.JSONDecoder(
        parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=object_pairs_hook
    )


_DECODER = decoder()


# -- bookkeeping that is not as reactifact writes it --


T = TypeVar("T")


def refusing_damage(what: str) -> Callable[[Callable[[bytes], T]], Callable[[bytes], T]]:
    """Let a function that reads the bytes of a file raise `StoreError`, naming `what` the file is."""

    def decorate(function: Callable[[bytes], T]) -> Callable[[bytes], T]:
        @wraps(function)
        def read(data: bytes) -> T:
            try:
                return function(data)
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                raise damaged(f"{what} (blob {object_id('blob', data)})", error) from error

        return read

    return decorate


def commit_of(oid: Oid, found: GitObject) -> CommitObject:
    """Return the commit in an object. Raises `StoreError` for one that is something else, or damaged."""
    return parse_commit(found.data) if found.kind == "commit" else _parsed(oid, found, "commit", parse_commit)


def tree_of(oid: Oid, found: GitObject) -> dict[str, TreeEntry]:
    """Return the tree in an object. Raises `StoreError` for one that is something else, or damaged."""
    return _parsed(oid, found, "tree", parse_tree)


def _parsed(oid: Oid, found: GitObject, kind: Kind, parse: Callable[[bytes], T]) -> T:
    if found.kind != kind:
        raise StoreError(
            f"object {oid} is a {found.kind} where a {kind} should stand: what points at it was changed by "
            f"hand or is damaged; see `git log` for a commit that it may point at instead"
        )
    return parse(found.data)


def typed(record: T) -> T:
    """Return a record (a dataclass, a named tuple) if each of its fields holds what its annotation says.

    Raises `TypeError`, naming the field.
    """
    shape = _shape_of(cast("Any", type(record)))
    values = shape.values(record)
    types = tuple(map(type, values))
    if types not in shape.right:
        for (name, kinds), kind in zip(shape.fields, types, strict=True):
            if kind not in kinds:
                raise TypeError(f"{name} is {kind.__name__}, not {' or '.join(k.__name__ for k in kinds)}")
        shape.right.add(types)
    for place, inner in shape.inner:
        for item in values[place] or ():
            if type(item) is not inner:
                name = shape.fields[place][0]
                raise TypeError(f"{name} holds {type(item).__name__}, not {inner.__name__}")
    return record


class _Shape(NamedTuple):
    """What the annotations of a record say."""

    values: Callable[[Any], tuple[Any, ...]]
    fields: tuple[tuple[str, tuple[type, ...]], ...]  # name, and the types that its value may have
    inner: tuple[tuple[int, type], ...]  # which fields are lists, and the type of what they hold
    right: set[tuple[type, ...]]  # the types that the fields of a record were found to have together


@lru_cache(maxsize=64)
def _shape_of(kind: Any) -> _Shape:
    fields: list[tuple[str, tuple[type, ...]]] = []
    inner: list[tuple[int, type]] = []
    for name, hint in get_type_hints(kind).items():
        options = get_args(hint) if NoneType in get_args(hint) else (hint,)
        for option in options:
            if get_origin(option) in (list, tuple) and (item := get_args(option)[0]) is not Any:
                inner.append((len(fields), get_origin(item) or item))
        fields.append((name, tuple(get_origin(option) or option for option in options)))
    names = [name for name, _ in fields]
    if len(names) == 1:
        return _Shape(lambda record: (getattr(record, names[0]),), tuple(fields), tuple(inner), set())
    return _Shape(attrgetter(*names), tuple(fields), tuple(inner), set())
