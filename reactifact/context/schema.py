"""A digest of the shape in which a model's payloads are stored.

Owns what counts as another shape: names, types and constraints of the fields do; titles,
descriptions and aliases do not.
"""

from __future__ import annotations

import re
from typing import Any

from blake3 import blake3
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from ..store import canonical

_DIGITS = 16


def schema_digest(model: type[BaseModel]) -> str:
    """Return a short hash of the model's JSON schema, as hex digits.

    Where a field has no JSON schema, of the names and annotations of the fields instead.
    """
    return blake3(_schema_bytes(model)).hexdigest()[:_DIGITS]


def _schema_bytes(model: type[BaseModel]) -> bytes:
    try:
        schema = model.model_json_schema(by_alias=False, schema_generator=_QuietSchema, mode="validation")
        return canonical.encode(_shape(schema))
    except Exception:
        # A field that has no JSON schema, or whose own hook for it fails, must not stop a write.
        shape = {name: repr(field.annotation) for name, field in model.model_fields.items()}
        return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(sorted(shape.items()))).encode()


class _QuietSchema(GenerateJsonSchema):
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default", "skipped-discriminator"}  # noqa: RUF012


_TEXTS_FOR_PEOPLE = frozenset({"title", "description", "examples", "deprecated"})
_MAPS_OF_SCHEMAS = frozenset({"properties", "$defs", "patternProperties", "dependentSchemas"})


def _shape(schema: Any) -> Any:
    """Return a JSON schema without the texts that are written for people."""
    if isinstance(schema, list):
        return [_shape(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    shape = {}
    for key, value in schema.items():
        if key in _MAPS_OF_SCHEMAS and isinstance(value, dict):
            shape[key] = {name: _shape(one) for name, one in value.items()}
        elif key not in _TEXTS_FOR_PEOPLE:
            shape[key] = _shape(value)
    return shape
