"""The public path of patches."""

from __future__ import annotations

from .context.operations import Create, Delete, Link, Patch, Unlink, Update, operation_from_dict
from .context.relations import Relation

__all__ = ["Create", "Delete", "Link", "Patch", "Relation", "Unlink", "Update", "operation_from_dict"]
