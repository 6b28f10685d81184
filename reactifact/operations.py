"""What a patch is made of: the operations, the patch that gathers them, and `Relation`.

Owns `Create`, `Update`, `Delete`, `Link`, `Unlink`, their dictionary shapes, and `Patch`.
Applying them to a state is `_context/apply`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel

from .artifacts import Artifact
from .types.codec import decode_dict, dump
from .types.ids import type_id_of
from .types.registry import resolve

__all__ = ["Create", "Delete", "Link", "Operation", "Unlink", "Update", "operation_from_dict"]


# -- what a patch is made of: the operations and the patch that gathers them --


@runtime_checkable
class HasId(Protocol):
    """Anything that names an artifact: an artifact or a handle."""

    @property
    def id(self) -> str: ...


Target = str | HasId
"""An artifact id, an artifact or a handle."""


def id_of(target: Target) -> str:
    """Return the artifact id that `target` names. Raises `TypeError` for anything else."""
    if isinstance(target, str):
        return target
    found = getattr(target, "id", None)
    if not isinstance(found, str):
        raise TypeError(f"{type(target).__name__} names no artifact: pass an id, an artifact or a handle")
    return found


class Operation:
    """Base of the operations."""

    def to_dict(self) -> dict[str, Any]:
        """Return the operation as plain JSON types."""
        raise TypeError(f"{type(self).__name__} is not an operation that can be stored")

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


@dataclass
class Create(Operation):
    """Create an artifact, or refresh the one that has the id.

    `id` is the wish; `artifact_id` is what the runtime gave.
    """

    data: BaseModel
    data_type: str = ""
    artifact_id: str | None = None
    id: str | None = None

    def __post_init__(self) -> None:
        self.data_type = self.data_type or type_id_of(type(self.data))

    def to_dict(self) -> dict[str, Any]:
        """Return the operation as plain JSON types."""
        return {
            "type": "create",
            "data": dump(self.data),
            "data_type": self.data_type,
            "artifact_id": self.artifact_id,
            "id": self.id,
        }


@dataclass
class Update(Operation):
    """Replace the data of an artifact."""

    artifact_id: str
    new_data: BaseModel
    data_type: str = ""

    def __post_init__(self) -> None:
        self.data_type = self.data_type or type_id_of(type(self.new_data))

    def to_dict(self) -> dict[str, Any]:
        """Return the operation as plain JSON types."""
        return {
            "type": "update",
            "artifact_id": self.artifact_id,
            "data": dump(self.new_data),
            "data_type": self.data_type,
        }


@dataclass
class Delete(Operation):
    """Remove an artifact."""

    artifact_id: str

    def to_dict(self) -> dict[str, Any]:
        """Return the operation as plain JSON types."""
        return {"type": "delete", "artifact_id": self.artifact_id}


@dataclass
class Link(Operation):
    """Add a relation."""

    artifact_id: str
    relation: str
    target_id: str

    def to_dict(self) -> dict[str, Any]:
        """Return the operation as plain JSON types."""
        return {
            "type": "link",
            "artifact_id": self.artifact_id,
            "relation": self.relation,
            "target_id": self.target_id,
        }


@dataclass
class Unlink(Operation):
    """Remove the relations that match; `None` stands for any."""

    artifact_id: str
    relation: str | None = None
    target_id: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the operation as plain JSON types."""
        return {
            "type": "unlink",
            "artifact_id": self.artifact_id,
            "relation": self.relation,
            "target_id": self.target_id,
        }


def _model(data: dict[str, Any]) -> BaseModel:
    return decode_dict(resolve(data["data_type"]), data["data"], type_id=data["data_type"])


_READERS: dict[str, Callable[[dict[str, Any]], Operation]] = {
    "create": lambda d: Create(
        _model(d), type_id_of(resolve(d["data_type"])), d.get("artifact_id"), d.get("id")
    ),
    "update": lambda d: Update(d["artifact_id"], _model(d), type_id_of(resolve(d["data_type"]))),
    "delete": lambda d: Delete(d["artifact_id"]),
    "link": lambda d: Link(d["artifact_id"], d["relation"], d["target_id"]),
    "unlink": lambda d: Unlink(d["artifact_id"], d.get("relation"), d.get("target_id")),
}


def operation_from_dict(data: dict[str, Any]) -> Operation:
    """Return the operation of a dictionary, migrated where its type asks for it.

    Raises `ValueError` for an unknown `type` and `TypeNotFoundError` for an unknown model.
    """
    reader = _READERS.get(data.get("type", ""))
    if reader is None:
        raise ValueError(
            f"unknown operation type {data.get('type')!r}: expected one of {', '.join(_READERS)}"
        )
    return reader(data)


@dataclass
class Patch:
    """Operations that are applied together or not at all."""

    operations: list[Operation] = field(default_factory=list)

    def __init__(self, operations: list[Operation] | None = None) -> None:
        self.operations = list(operations or [])

    def add(self, operation: Operation) -> Patch:
        """Append one operation."""
        self.operations.append(operation)
        return self

    def create(self, data: BaseModel, id: str | None = None) -> Patch:
        """Append a `Create`."""
        return self.add(Create(data, id=id))

    def update(self, target: Target, new_data: BaseModel) -> Patch:
        """Append an `Update`."""
        return self.add(Update(id_of(target), new_data))

    def update_fields(self, artifact: Artifact[Any], **fields: Any) -> Patch:
        """Append an `Update` that replaces `fields` and keeps the others."""
        return self.add(Update(artifact.id, with_fields(artifact.data, fields)))

    def delete(self, target: Target) -> Patch:
        """Append a `Delete`."""
        return self.add(Delete(id_of(target)))

    def link(self, source: Target, relation: str, target: Target) -> Patch:
        """Append a `Link`."""
        return self.add(Link(id_of(source), relation, id_of(target)))

    def unlink(self, source: Target, relation: str | None = None, target: Target | None = None) -> Patch:
        """Append an `Unlink`."""
        return self.add(Unlink(id_of(source), relation, None if target is None else id_of(target)))

    def merge(self, *patches: Patch | None) -> Patch:
        """Append the operations of other patches; `None` is passed over."""
        for patch in patches:
            if patch is not None:
                self.operations.extend(patch.operations)
        return self

    def is_empty(self) -> bool:
        """Tell whether there is nothing to apply."""
        return not self.operations


def with_fields(data: BaseModel, fields: dict[str, Any]) -> BaseModel:
    """Return `data` with `fields` replaced, validated. Raises `ValueError` naming a bad field."""
    model = type(data)
    unknown = sorted(fields.keys() - model.model_fields.keys())
    if unknown and model.model_config.get("extra") != "allow":
        raise ValueError(
            f"{model.__name__} has no field {', '.join(map(repr, unknown))}; "
            f"it has {', '.join(model.model_fields) or 'none'}"
        )
    current = {name: getattr(data, name) for name in model.model_fields}
    current.update(data.model_extra or {})
    values: Any = {**current, **fields}
    if model.__pydantic_root_model__:
        values = values["root"]
    return model.model_validate(values, by_alias=False, by_name=True)


# -- A named, directed relation between two artifacts --


@dataclass(frozen=True)
class Relation:
    """`source_id` stands in `relation` to `target_id`. The ends need not exist."""

    source_id: str
    relation: str
    target_id: str

    def to_dict(self) -> dict[str, Any]:
        """Return the relation as plain JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Relation:
        """Return the relation of a dictionary."""
        return cls(data["source_id"], data["relation"], data["target_id"])
