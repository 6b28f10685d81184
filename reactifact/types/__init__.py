"""The public path of the type registry."""

from __future__ import annotations

from ..errors import TypeNotFoundError
from .ids import register, registered_types, type_id_of
from .importer import limit_imports
from .registry import migrate_payload, resolve

__all__ = [
    "TypeNotFoundError",
    "limit_imports",
    "migrate_payload",
    "register",
    "registered_types",
    "resolve",
    "type_id_of",
]
