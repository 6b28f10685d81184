"""Erasing a person's data: which fields of a model are personal, and what an erasure did.

Owns `Personal`, the mark on a field, `Erasure`, the report, and the clearing of a model's personal fields.
`SessionStore.erase` does the work.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from .errors import ErasureRefused, ReactifactError, text_of
from .types.codec import decode_payload, encode_payload
from .types.registry import revision_of

__all__ = ["ErasedArtifact", "Erasure", "Personal"]

_UNIONS = (typing.Union, types.UnionType)


@dataclass(frozen=True, slots=True)
class Personal:
    """Marks a field as personal: `email: Annotated[str, Personal()]`.

    An erasure of fields alone puts `placeholder` there, in every version. The model has to accept it: for a
    number or a date give one of your own, or `None` where the field takes that.
    """

    placeholder: Any = "[erased]"


@dataclass(frozen=True, slots=True)
class ErasedArtifact:
    """One artifact that goes, or loses its personal fields.

    `token` stands where its id stood. `because` is the id of the artifact that it came from, for an action or
    a question that nobody named; `fields` are the fields that were erased, empty where all of it goes.
    """

    id: str
    token: str
    type_id: str
    versions: int
    because: str = ""
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Erasure:
    """What an erasure did, or with `is_dry_run` would do. It is not stored: it names what went.

    `sessions` are those whose history was made anew, `refs` the branches, tags and ledgers that moved, and
    `dropped` the refs that went (what moves had left behind, what was rejected, what was fetched). `commits`
    counts the commits that were made anew, `held` the kept results and `waiting` the queue entries that went.
    `rests` are artifacts that read what goes and stay: look whether they say it in their own words.
    """

    artifacts: tuple[ErasedArtifact, ...]
    sessions: tuple[str, ...]
    refs: tuple[str, ...]
    dropped: tuple[str, ...]
    commits: int
    held: int
    waiting: int
    rests: tuple[str, ...]
    is_dry_run: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if name != "artifacts"
        } | {"artifacts": [{**asdict(one), "fields": list(one.fields)} for one in self.artifacts]}


@dataclass(frozen=True, slots=True)
class ClearedPayload:
    """A payload with placeholders, its schema revision, which fields got one, and what texts stood there."""

    payload: bytes
    revision: str
    fields: tuple[str, ...]
    values: tuple[str, ...]


def has_personal(model: type[BaseModel]) -> bool:
    """Tell whether a model, or one that it holds, has a field marked as personal."""
    return _has_personal(model, set())


def cleared_payload(
    model: type[BaseModel], data: bytes, *, type_id: str, revision: str, artifact: str, version: int
) -> ClearedPayload:
    """Return a payload with its personal fields replaced.

    Raises `ErasureRefused`, naming artifact, version and field, where the model does not take the
    placeholder, or the payload is not one of it any more.
    """
    where = f"version {version} of {artifact!r}"
    try:
        found = decode_payload(model, data, type_id=type_id, revision=revision)
    except (ReactifactError, ValueError) as error:
        raise ErasureRefused(
            f"the personal fields of {where} cannot be erased alone: {text_of(error)}; give its type a "
            f"migrate hook, or erase the whole artifact"
        ) from error
    fields: dict[str, None] = {}
    values: dict[str, None] = {}
    made = _cleared(found, where, "", fields, values)
    try:
        payload = encode_payload(made)
    except ReactifactError as error:
        raise ErasureRefused(f"the personal fields of {where} cannot be erased: {text_of(error)}") from error
    return ClearedPayload(payload, revision_of(type(made)), tuple(fields), tuple(values))


def _cleared(
    model: BaseModel, where: str, path: str, fields: dict[str, None], values: dict[str, None]
) -> BaseModel:
    changes: dict[str, Any] = {}
    kind = type(model)
    for name, info in kind.model_fields.items():
        value = getattr(model, name)
        full = f"{path}{name}"
        mark = _mark_of(info)
        if mark is not None:
            if value != mark.placeholder:
                changes[name] = mark.placeholder
                fields[full] = None
                values.update((text, None) for text in _texts(value))
            continue
        inner = _inner(value, where, f"{full}.", fields, values)
        if inner is not value:
            changes[name] = inner
    if not changes:
        return model
    current = {name: getattr(model, name) for name in kind.model_fields} | (model.model_extra or {})
    given: Any = {**current, **changes}
    try:
        return kind.model_validate(
            given["root"] if "root" in kind.model_fields else given, by_alias=False, by_name=True
        )
    except ValidationError as error:
        faults = error.errors(include_input=False, include_url=False, include_context=False)
        named = ", ".join(sorted({".".join(map(str, one["loc"])) or kind.__name__ for one in faults}))
        said = "; ".join(sorted({str(one["msg"]) for one in faults}))
        raise ErasureRefused(
            f"{kind.__name__} does not take the placeholder for {path}{named}, in {where}: {said}; give the "
            f"field one that it takes, Annotated[..., Personal(placeholder=...)], or erase the whole artifact"
        ) from error


def _inner(value: Any, where: str, path: str, fields: dict[str, None], values: dict[str, None]) -> Any:
    if isinstance(value, BaseModel):
        return _cleared(value, where, path, fields, values)
    if isinstance(value, dict):
        items = {key: _inner(item, where, path, fields, values) for key, item in value.items()}
        return value if all(items[key] is item for key, item in value.items()) else items
    if type(value) in (list, tuple):
        parts = [_inner(item, where, path, fields, values) for item in value]
        return value if all(new is old for new, old in zip(parts, value, strict=True)) else type(value)(parts)
    return value


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts, and the numbers as texts, that a value is made of."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    if isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _texts(item)
    elif value is not None and not isinstance(value, bool):
        yield f"{value}"


def _mark_of(info: FieldInfo) -> Personal | None:
    found = next((one for one in info.metadata if isinstance(one, Personal)), None)
    return found if found is not None else _mark_in(info.annotation)


def _mark_in(annotation: Any) -> Personal | None:
    """Return the mark of `Annotated[...]` inside a union, such as `Annotated[str, Personal()] | None`."""
    if typing.get_origin(annotation) is typing.Annotated:
        found = next((one for one in typing.get_args(annotation)[1:] if isinstance(one, Personal)), None)
        return found if found is not None else _mark_in(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in _UNIONS:
        marks = (_mark_in(option) for option in typing.get_args(annotation))
        return next((one for one in marks if one is not None), None)
    return None


def _has_personal(annotation: Any, seen: set[Any]) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if annotation in seen:
            return False
        seen.add(annotation)
        return any(
            _mark_of(info) is not None or _has_personal(info.annotation, seen)
            for info in annotation.model_fields.values()
        )
    return any(_has_personal(part, seen) for part in typing.get_args(annotation))
