"""The public path of operations."""

from __future__ import annotations

from .context.operations import Create, Delete, Link, Operation, Unlink, Update, operation_from_dict

__all__ = ["Create", "Delete", "Link", "Operation", "Unlink", "Update", "operation_from_dict"]
