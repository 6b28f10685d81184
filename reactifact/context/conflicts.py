"""What a merge could not decide: `MergeConflict` and the details of each contested artifact.

Owns how a conflict is told, to programs (models and fields) and to people (text). Deciding one is
`resolving`'s.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from ..errors import ReactifactError, UnreadablePayload
from ..store.canonical import decode
from ..store.database import Objects
from ..store.merge import Clash, Version
from .codec import decode_payload
from .types import TypeNotFoundError, resolve

_SHOWN = 60
_ABSENT: Any = object()


class MergeConflict(ReactifactError):
    """Both sides changed an artifact, and differently; nothing was applied.

    `conflicts` is a list of texts sorted by artifact id; `details` holds for each the models of
    base, ours and theirs and the fields that differ. `str()` shows all of it, a line a field.
    """

    def __init__(
        self,
        message: str,
        conflicts: list[str] | None = None,
        details: list[ConflictDetail] | None = None,
    ) -> None:
        super().__init__(message)
        self.conflicts = list(conflicts or [])
        self.details = list(details or [])


@dataclass(frozen=True)
class ConflictDetail:
    """One contested artifact.

    `base`, `ours` and `theirs` are models, `None` where there is none (of the base also where
    several merge bases do not agree), and the stored JSON where no class of this process reads it.
    `fields` are the names at the top level that the sides hold differently, `types` the type ids.
    """

    artifact_id: str
    base: BaseModel | dict[str, Any] | None
    ours: BaseModel | dict[str, Any] | None
    theirs: BaseModel | dict[str, Any] | None
    fields: tuple[str, ...] = ()
    types: tuple[str | None, str | None, str | None] = (None, None, None)
    stored: tuple[dict[str, Any] | None, dict[str, Any] | None, dict[str, Any] | None] = (None, None, None)

    @property
    def summary(self) -> str:
        """One line: the id, what happened, and the fields."""
        if self.ours is None or self.theirs is None:
            gone, kept = ("ours", "theirs") if self.ours is None else ("theirs", "ours")
            what = f"deleted by {gone}, changed by {kept}"
        elif self.types[1] != self.types[2]:
            what = f"{self.types[1]} in ours, {self.types[2]} in theirs"
        else:
            what = "changed differently on both sides"
        names = ", ".join(self.fields)
        return f"{self.artifact_id}: {what}" + (f" ({names})" if names else "")

    def __str__(self) -> str:
        lines = [self.summary]
        for name in self.fields:
            sides = [
                f"{side} {_shown(data.get(name, _ABSENT))}"
                for side, data in zip(("base", "ours", "theirs"), self.stored, strict=True)
                if data is not None
            ]
            lines.append(f"    {name or 'value'}: {', '.join(sides)}")
        return "\n".join(lines)


def conflict(details: list[ConflictDetail], other: str) -> MergeConflict:
    """Return the error that names every contested artifact."""
    count = len(details)
    heading = (
        f"cannot merge {other}: {count} artifact{'s' * (count != 1)} changed differently on both "
        f"sides; nothing was applied"
    )
    way_out = (
        "Settle them with merge(policy=...), with a merge function of their type "
        "(register_type(..., merge=...)), or change one side and merge again"
    )
    text = "\n".join([heading, *map(str, details), way_out])
    return MergeConflict(text, [detail.summary for detail in details], details)


def details_of(objects: Objects, clashes: Iterable[Clash]) -> list[ConflictDetail]:
    """Return what is to be said of each clash."""
    return [_detail(objects, clash) for clash in clashes]


def _detail(objects: Objects, clash: Clash) -> ConflictDetail:
    data = (_data(objects, clash.base), _data(objects, clash.ours), _data(objects, clash.theirs))
    base, ours, theirs = data
    left, right = (base if side is None else side for side in (ours, theirs))
    return ConflictDetail(
        clash.artifact_id,
        model_of(objects, clash.base),
        model_of(objects, clash.ours),
        model_of(objects, clash.theirs),
        fields=_differing(left or {}, right or {}),
        types=(_type(clash.base), _type(clash.ours), _type(clash.theirs)),
        stored=data,
    )


def _type(version: Version) -> str | None:
    return None if version.stored is None else version.stored.meta.type_id


def _differing(left: dict[str, Any], right: dict[str, Any]) -> tuple[str, ...]:
    names = left.keys() | right.keys()
    return tuple(sorted(name for name in names if left.get(name, _ABSENT) != right.get(name, _ABSENT)))


def model_of(objects: Objects, version: Version) -> BaseModel | dict[str, Any] | None:
    """Return the model of a version; its stored JSON where no class of this process reads it."""
    if version.stored is None:
        return None
    meta = version.stored.meta
    payload = objects.read(meta.payload).data
    try:
        model = resolve(meta.type_id)
        return decode_payload(model, payload, type_id=meta.type_id, revision=meta.revision)
    except (TypeNotFoundError, UnreadablePayload):
        return _data(objects, version)


def _data(objects: Objects, version: Version) -> dict[str, Any] | None:
    if version.stored is None:
        return None
    data: Any = decode(objects.read(version.stored.meta.payload).data)
    return data if isinstance(data, dict) else {"": data}


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "(none)"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
