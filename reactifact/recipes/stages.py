"""Stages: which part of a pipeline has to run again when some fields of its input have changed.

Pure functions over two tables that the application keeps: `field_stages` says which stage a field
belongs to, `order` lists the stages from the first to the last. A field without a stage, or with
one that `order` does not list, takes no part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

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
