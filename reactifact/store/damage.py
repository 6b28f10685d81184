"""Bookkeeping that is not as reactifact writes it: one error that says so, whatever is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from types import NoneType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

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
    return _parsed(oid, found, "commit", parse_commit)


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
    for name, kinds, inner in _fields(cast("Any", type(record))):
        value = getattr(record, name)
        if type(value) not in kinds:
            raise TypeError(f"{name} is {type(value).__name__}, not {' or '.join(k.__name__ for k in kinds)}")
        if inner is not None and value is not None:
            for item in value:
                if type(item) is not inner:
                    raise TypeError(f"{name} holds {type(item).__name__}, not {inner.__name__}")
    return record


@lru_cache(maxsize=64)
def _fields(kind: Any) -> tuple[tuple[str, tuple[type, ...], type | None], ...]:
    found = []
    for name, hint in get_type_hints(kind).items():
        options = get_args(hint) if NoneType in get_args(hint) else (hint,)
        inner = None
        for option in options:
            if get_origin(option) in (list, tuple) and (item := get_args(option)[0]) is not Any:
                inner = get_origin(item) or item
        found.append((name, tuple(get_origin(option) or option for option in options), inner))
    return tuple(found)
