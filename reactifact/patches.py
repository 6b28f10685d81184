"""The public path of patches."""

from __future__ import annotations

from .operations import Create, Delete, Link, Patch, Relation, Unlink, Update, operation_from_dict

__all__ = ["Create", "Delete", "Link", "Patch", "Relation", "Unlink", "Update", "operation_from_dict"]
