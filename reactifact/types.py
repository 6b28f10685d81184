"""The public path of the type registry."""

from __future__ import annotations

from .context.types import (
    TypeNotFoundError,
    limit_imports,
    migrate_payload,
    register,
    registered_types,
    resolve,
    type_id_of,
)

__all__ = [
    "TypeNotFoundError",
    "limit_imports",
    "migrate_payload",
    "register",
    "registered_types",
    "resolve",
    "type_id_of",
]
