"""Models to payload bytes and back, so that what is read is what was written.

Owns the faithful encoding: a payload is validated back when it is written and refused if it does
not come back equal. The bytes are canonical JSON; which model an id stands for is the registry's
knowledge. Payloads name fields by their names, never by aliases, and hold no computed fields.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Set
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, NamedTuple, TypeVar
from uuid import UUID
from weakref import ref

import pydantic_core
from pydantic import BaseModel, ValidationError

from .._store import canonical
from ..errors import PayloadError, UnreadablePayload, text_of
from . import registry
from .equality import Difference, children, difference
from .ids import ByModel

M = TypeVar("M", bound=BaseModel)
Shape = Callable[[Any], Any]
"""Makes what is stored of the dumped data of a model."""

_SHOWN = 80
_MAX_DEPTH = 32
_plain_texts: ByModel[frozenset[str]] = ByModel()


def encode_payload(model: BaseModel, shape: Shape | None = None) -> bytes:
    """Return the canonical bytes of a model; equal data gives equal bytes.

    With `shape`, of what that makes of its dumped data, once that was found to be faithful. Raises
    `PayloadError`, naming class, field and reason, when the data cannot be written or would not come back
    equal.
    """
    dumped = _dumped(model)
    data = written = _bytes_of(model, dumped)
    if len(data) > _LONG and (shortened := _shortened(model)) is not None:
        model = shortened
        written = dump_payload(model)
    try:
        back = type(model).__pydantic_validator__.validate_json(written, by_alias=False, by_name=True)
    except ValidationError as error:
        raise _not_valid_back(model, error) from error
    found = difference(model, back)
    if found is not None:
        raise _not_equal(model, found)
    return data if shape is None else canonical.encode(shape(dumped))


_LONG = 64 * 1024


def _shortened(model: BaseModel) -> BaseModel | None:
    """Return a copy of a model in which long texts are short, `None` where that could make a difference.

    What stands in a field that is a text and nothing else comes back from JSON as it is, whatever its length,
    and in a model where no function validates or writes anything the rest does not depend on it. So it need
    not be held once more, only to be compared.
    """
    values = model.__dict__
    long = [
        name for name in _texts(type(model)) if type(text := values.get(name)) is str and len(text) > _LONG
    ]
    if not long:
        return None
    copy = BaseModel.__copy__(model)
    copy.__dict__.update({name: values[name][:_SHOWN] for name in long})
    return copy


def _texts(cls: type[BaseModel]) -> frozenset[str]:
    """Return the fields that are texts without any condition, none where functions see to the data."""
    known = _plain_texts.get(ref(cls))
    if known is None:
        schema: Any = cls.__pydantic_core_schema__
        known = frozenset()
        if schema["type"] == "model" and not _mentions(schema, _asks_a_function, set()):
            fields = schema["schema"].get("fields", {})
            known = frozenset(name for name, field in fields.items() if _is_plain_text(field["schema"]))
        _plain_texts.keep(cls, known)
    return known


def _asks_a_function(schema: Mapping[str, Any]) -> bool:
    return (
        str(schema.get("type")).startswith("function")
        or any(
            schema.get(key)
            for key in (
                "serialization",
                "serialization_exclude",
                "custom_init",
                "post_init",
                "computed_fields",
            )
        )
        or any(key.startswith("str_") for key in schema)  # of a config: it may strip or change texts
        or bool(schema.get("default_factory_takes_data") or schema.get("serialization_exclude_if"))
    )


def _is_plain_text(schema: Mapping[str, Any]) -> bool:
    while schema["type"] in ("default", "nullable"):
        schema = schema["schema"]
    return schema["type"] == "str" and not schema.keys() - {"type", "metadata"}


def dump_payload(model: BaseModel, shape: Shape | None = None) -> bytes:
    """Return what `encode_payload` does, without asking whether it would come back equal.

    Raises `PayloadError` when the data cannot be written.
    """
    dumped = _dumped(model)
    return _bytes_of(model, dumped if shape is None else shape(dumped))


def _bytes_of(model: BaseModel, dumped: Any) -> bytes:
    try:
        return canonical.encode(dumped)
    except (ValueError, TypeError) as error:
        raise _not_json(model, error) from error


def decode_payload(model: type[M], data: bytes, *, type_id: str, revision: str | None) -> M:
    """Return the model in payload bytes that were written under `type_id` and schema `revision`.

    The migrate hook runs only when the revision differs from that of `model`. Raises
    `UnreadablePayload` when the payload does not fit the model; what a hook raises is passed on.
    """
    if not is_of_revision(model, revision) and registry.has_migrate_hook(type_id):
        return decode_dict(model, _parsed(data, type_id), type_id=type_id)
    return _validated(model, data, type_id)


BEYOND = "+"
"""What ends the revision of a payload that also holds fields which that revision does not declare."""


def is_of_revision(model: type[BaseModel], revision: str | None) -> bool:
    """Tell whether a payload of `revision` is in the present shape of `model`."""
    return revision is not None and revision.removesuffix(BEYOND) == registry.revision_of(model)


def decode_dict(model: type[M], payload: Any, *, type_id: str) -> M:
    """Return the model in dumped data (a dict, but for a `RootModel`) whose revision is not known.

    The migrate hook of the type runs if there is one. Raises `UnreadablePayload` when the result
    does not fit the model; what a hook raises is passed on.
    """
    migrated: Any = registry.migrate_payload(type_id, payload) if isinstance(payload, dict) else payload
    try:
        # Through JSON, because strict models take a date or a tuple from nowhere else.
        data = pydantic_core.to_json(migrated, by_alias=False, inf_nan_mode="constants")
    except ValueError as error:
        raise UnreadablePayload(
            f"the payload of type {type_id!r} is no JSON data: {text_of(error)}"
        ) from error
    return _validated(model, data, type_id)


def dump(model: BaseModel) -> Any:
    """Return the data of a model as plain JSON values, as snapshots and diffs show it.

    A dict of its fields, for a `RootModel` what stands at its root. Raises `PayloadError` for data
    that has no JSON form.
    """
    return _dumped(model)


def _dumped(model: BaseModel) -> Any:
    cls = type(model)
    traits = _traits.get(ref(cls)) or _traits_of(cls)
    serializer = cls.__pydantic_serializer__
    try:
        if traits.writes_nan_as_text:  # which pydantic does in JSON alone
            data = serializer.to_json(model, round_trip=True, by_alias=False, warnings=False)
            dumped = pydantic_core.from_json(data)
        else:
            dumped = serializer.to_python(model, mode="json", round_trip=True, by_alias=False, warnings=False)
    except Exception as error:  # serializers of users raise what they like
        raise _not_dumped(model, error) from error
    return _ordered(model, dumped) if traits.may_hold_sets else dumped


# --- what a schema says; sets in one order -------------------------------------------------------------


class _Traits(NamedTuple):
    """What the schema of a class says of how it is dumped."""

    may_hold_sets: bool
    writes_nan_as_text: bool


_traits: ByModel[_Traits] = ByModel()


def _traits_of(cls: type[BaseModel]) -> _Traits:
    known = _traits.get(ref(cls))
    if known is None:
        schema = cls.__pydantic_core_schema__
        known = _Traits(
            _mentions(schema, lambda part: part.get("type") in ("set", "frozenset"), set()),
            _mentions(schema, lambda part: part.get("ser_json_inf_nan") == "strings", set()),
        )
        _traits.keep(cls, known)
    return known


def _mentions(schema: Any, what: Callable[[Mapping[str, Any]], bool], met: set[int]) -> bool:
    if isinstance(schema, Mapping):
        if what(schema):
            return True
        inner: Any = schema.values()
    elif isinstance(schema, (list, tuple)):
        inner = schema
    else:
        return False
    if id(schema) in met:
        return False
    met.add(id(schema))
    return any(_mentions(one, what, met) for one in inner)


def _ordered(value: Any, dumped: Any) -> Any:
    """Return `dumped` with every list that stands for a set sorted.

    Value and dump are walked side by side; where a custom serializer gave another form, it is kept.
    """
    if not isinstance(dumped, (list, dict)):
        return dumped
    while isinstance(value, BaseModel) and type(value).__pydantic_root_model__:
        value = value.root  # type: ignore[attr-defined]
    if isinstance(value, BaseModel) and not _traits_of(type(value)).may_hold_sets:
        return dumped
    if isinstance(dumped, list):
        parts = [item for _, item in children(value)]
        if len(parts) == len(dumped):
            dumped = [_ordered(part, item) for part, item in zip(parts, dumped, strict=True)]
        return _sorted(dumped) if isinstance(value, Set) else dumped
    return _ordered_items(value, dumped)


def _ordered_items(value: Any, dumped: dict[str, Any]) -> dict[str, Any]:
    parts = dict(children(value))
    if isinstance(value, BaseModel) or hasattr(value, "__dataclass_fields__"):
        return {
            name: _ordered(parts[f".{name}"], item) if f".{name}" in parts else item
            for name, item in dumped.items()
        }
    if len(parts) != len(dumped):
        return dumped
    return {
        name: _ordered(part, item) for (name, item), part in zip(dumped.items(), parts.values(), strict=True)
    }


def _sorted(items: list[Any]) -> list[Any]:
    kinds = {type(item) for item in items}
    if kinds == {str} or kinds == {int}:
        return sorted(items)
    try:
        return sorted(items, key=canonical.encode)
    except (ValueError, TypeError):
        return items  # it cannot be written at all, and is refused with its path when it is encoded


# --- reading -----------------------------------------------------------------------------------------


def _parsed(data: bytes, type_id: str) -> Any:
    try:
        return canonical.decode(data)
    except ValueError as error:
        raise UnreadablePayload(
            f"the payload of type {type_id!r} is no JSON ({error}): the store is damaged or was edited by "
            f"hand; run `git fsck` and restore the file from an earlier commit"
        ) from error


def _validated(model: type[M], data: bytes, type_id: str) -> M:
    try:
        found: M = model.__pydantic_validator__.validate_json(data, by_alias=False, by_name=True)
        return found
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        path = _location(first["loc"])
        if first["type"] == "json_invalid":
            _parsed(data, type_id)
        raise UnreadablePayload(
            f"a stored payload of type {type_id!r} does not fit {model.__qualname__}: "
            f"{model.__qualname__}{path}: {first['msg']}. If the model changed since it was written, call "
            f"register_type({model.__name__}, migrate=...) with a hook that brings older payloads up to date"
        ) from error


def _location(parts: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


# --- refusals ----------------------------------------------------------------------------------------


def _refusal(model: BaseModel, path: str, reason: str, way_out: str) -> PayloadError:
    name = type(model).__qualname__.rpartition("<locals>.")[2]
    if _is_ours(model):
        way_out = _conversion(_at(model, path))
    return PayloadError(
        f"{name}{path} cannot be stored: {reason}. {way_out[0].upper()}{way_out[1:]}. Nothing was written"
    )


def _is_ours(model: BaseModel) -> bool:
    """Tell whether a class is reactifact's own, so that nobody can change its fields or its config."""
    return type(model).__module__.partition(".")[0] == __name__.partition(".")[0]


def _at(value: Any, path: str) -> Any:
    """Return the value at a path as refusals show it; for a key that is not a text, the key."""
    while path:
        for part, item in children(value):
            if path.startswith(part):
                if part.startswith("[") and isinstance(value, Mapping):
                    key = next(key for key in value if part == f"[{key!r}]")
                    if not isinstance(key, str):
                        return {key: item}
                value, path = item, path[len(part) :]
                break
        else:
            return value
    return value


def _conversion(value: Any) -> str:
    """Return how a value becomes plain JSON data before it is given to reactifact."""
    if _is_secret(value):
        return f"{_PLAIN}: give a name, and let the dispatcher look the secret up in its resources"
    for kinds, how in _CONVERSIONS:
        if isinstance(value, kinds):
            return f"{_PLAIN}: {how}"
    return "give plain JSON data here: texts, finite numbers, True, False, None, lists and dicts of them"


def _is_secret(value: Any) -> bool:
    from pydantic import SecretBytes, SecretStr  # nobody waits for them who has none

    return isinstance(value, (SecretStr, SecretBytes))


_PLAIN = "what is given here is plain JSON data (texts, numbers, lists, dicts)"
_CONVERSIONS: tuple[tuple[Any, str], ...] = (
    (BaseModel, 'pass value.model_dump(mode="json")'),
    ((bytes, bytearray), "pass base64.b64encode(value).decode(), or value.decode() where it is text"),
    (datetime, "pass value.isoformat(), after value.astimezone(timezone.utc) where it has a zone"),
    ((date, time), "pass value.isoformat()"),
    (timedelta, "pass value.total_seconds()"),
    (Enum, "pass value.value"),
    (float, "pass None where there is no number, or a text"),
    ((Decimal, UUID, PurePath), "pass str(value)"),
    ((Set, tuple, deque), "pass a list (sorted(value) for a set)"),
    (
        str,
        "pass a plain text that UTF-8 can hold: str(value), decoded correctly where it comes from",
    ),
    (Mapping, "pass a dict whose keys are texts: {str(key): item for key, item in value.items()}"),
)


def _not_dumped(model: BaseModel, error: Exception) -> PayloadError:
    path, value = _innermost(model, _has_no_dump)
    if isinstance(value, (bytes, bytearray)):
        return _refusal(model, path, "these bytes are no UTF-8 text", _BASE64)
    said = text_of(error)
    reason = f"{_shown(value)} has no JSON form ({said})" if path else f"it has no JSON form ({said})"
    return _refusal(model, path, reason, _SERIALIZER)


def _not_json(model: BaseModel, error: Exception) -> PayloadError:
    path, value = _innermost(model, _is_unwritable)
    if isinstance(value, float):
        reason, way_out = f"JSON has no {value}", _FINITE
    elif isinstance(value, str):
        reason = f"the text {_shown(value)} holds a lone surrogate, which UTF-8 has no form for"
        way_out = "decode the text correctly where it comes from"
    else:
        reason, way_out = text_of(error), "store plainer data"
    return _refusal(model, path, reason, way_out)


def _not_valid_back(model: BaseModel, error: ValidationError) -> PayloadError:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    reason = f"what would be written does not validate when it is read ({first['msg']})"
    way_out = "let the serializers write what the validators read, and give each key and value a JSON form"
    return _refusal(model, _location(first["loc"]), reason, way_out)


def _not_equal(model: BaseModel, found: Difference) -> PayloadError:
    reason, way_out = _explained(found)
    return _refusal(model, "".join(found.path), reason, way_out)


_BASE64 = 'set ser_json_bytes="base64" and val_json_bytes="base64" in the model_config of the model'
_FINITE = (
    'set ser_json_inf_nan="strings" in the model_config of the model, use None for a missing number, or '
    "refuse it in a validator"
)
_SERIALIZER = "give the field a field_serializer and a field_validator that undo each other"


def _explained(found: Difference) -> tuple[str, str]:
    """Return why a value does not come back, and the way out."""
    written, back, owner = found.written, found.back, found.owner
    if _is_secret(written):
        return (
            "a secret is written as asterisks",
            "keep secrets in the runtime's resources, or give the field a field_serializer that reveals it",
        )
    if isinstance(written, (float, Decimal)) and not math.isfinite(written):
        return f"JSON has no {written}", _FINITE
    came_back = f"{_shown(written)} would come back as {_shown(back)}"
    if isinstance(owner, BaseModel) and found.field is not None:
        if found.field in (owner.__pydantic_private__ or {}):
            return f"a private attribute is not stored: {came_back}", "make it a field, or leave it unset"
        info = type(owner).model_fields.get(found.field)
        if info is not None and info.exclude:
            return f"an excluded field is not stored: {came_back}", "drop exclude from the field"
    if found.kind == "zone":
        return (
            f"a time is stored with its offset and not with the zone {_shown(written.tzinfo)}: adding a day "
            f"would give another hour where the zone changes its clocks",
            "store the moment in UTC (value.astimezone(timezone.utc)) and the name of the zone in a field of "
            "its own, or give the field a field_serializer and a field_validator that keep both",
        )
    if found.kind == "fold":
        return (
            f"fold={written.fold}, which of two equal clock times is meant, is not stored",
            "store an aware time in UTC (value.astimezone(timezone.utc)), or set fold=0 if it means nothing",
        )
    if found.kind == "order":
        return f"the order of keys is not stored: {came_back}", "use a list of pairs where the order matters"
    if found.kind == "key":
        return (
            f"keys are texts in JSON: the key {came_back}",
            "declare the type of the keys (dict[int, ...]), or use texts",
        )
    if isinstance(written, type(back)) and type(written) is not type(back):
        return _subclass(written, back, came_back)
    if isinstance(written, (bytes, bytearray)):
        return came_back, _BASE64
    return f"{came_back} ({type(written).__name__}, {type(back).__name__})", _WAY_OUT


_WAY_OUT = (
    "declare the type that the value has (for several, a union with a discriminator), or give the field a "
    "field_serializer and a field_validator that undo each other"
)


def _subclass(written: Any, back: Any, came_back: str) -> tuple[str, str]:
    sub, base = type(written).__name__, type(back).__name__
    return (
        f"the field holds a {sub} and would come back as its base {base}: {came_back}",
        f"declare {sub} there, or a union of the subclasses with a discriminator",
    )


def _innermost(value: Any, fails: Callable[[Any], bool], depth: int = 0) -> tuple[str, Any]:
    """Return path and value of the innermost part of `value` that `fails`."""
    if depth < _MAX_DEPTH:  # data that contains itself has no innermost part
        for part, item in children(value):
            if fails(item):
                inner, culprit = _innermost(item, fails, depth + 1)
                return part + inner, culprit
    return "", value


def _has_no_dump(value: Any) -> bool:
    try:
        pydantic_core.to_jsonable_python(value, by_alias=False)
    except Exception:
        return True
    return False


def _is_unwritable(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, str):
        return any(0xD800 <= ord(character) <= 0xDFFF for character in value)
    return any(_is_unwritable(item) for _, item in children(value))


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
