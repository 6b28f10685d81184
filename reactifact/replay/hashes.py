"""Hashes of data, artifacts and states: equal for equal runs, whatever the time and the ids of commits.

Owns the rules that `docs/replay.md` writes down. They are computed from what is stored, so a program
without the models can compute them too; of a model only its `transient_fields` count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple

from pydantic import BaseModel

from .._context.context import Context
from .._context.working_copy import WorkingCopy
from .._store import canonical
from .._store.branch import Branch
from .._store.layout import Meta
from ..artifacts import ACTION_TYPE, Artifact, encode
from ..errors import TypeNotFoundError
from ..resources import RuntimeResources
from ..types.codec import dump
from ..types.registry import resolve
from ..viz import type_name

Finder = Callable[[str], type[BaseModel] | None]
"""How the class of a stored type is found, `None` where there is none."""


def importing(type_id: str) -> type[BaseModel] | None:
    """Find a class, importing its module if need be, as the reading of an artifact's data does."""
    try:
        return resolve(type_id)
    except TypeNotFoundError:
        return None


class View(NamedTuple):
    """A state to be looked at: its line, what reads it, and how classes are found."""

    line: Branch
    working: WorkingCopy
    find: Finder

    @classmethod
    def of(cls, context: Context) -> View:
        """Return the view of a context."""
        return cls(context.line, context.working, importing)

    @classmethod
    def at(cls, line: Branch, find: Finder) -> View:
        """Return the view of a line alone; where `find` does not import, nothing of a user's runs."""
        working = WorkingCopy(line.state, line.ledger, RuntimeResources(), durable=False, branch=line.branch)
        return cls(line, working, find)

    def transient_fields(self, type_id: str) -> frozenset[str]:
        """Return what a stored type leaves out of its identity; nothing where its class is not found."""
        model = self.find(type_id)
        return frozenset() if model is None else transient_fields(model)

    def class_name(self, type_id: str) -> str:
        """Return the name of the class behind a type id, or what the id itself says of it."""
        model = self.find(type_id)
        return type_name(type_id) if model is None else model.__name__

    def unknown_types(self) -> list[str]:
        """Return the stored types whose classes are not found, sorted."""
        return [type_id for type_id in self.working.state.type_ids() if self.find(type_id) is None]


class Fingerprint(NamedTuple):
    """What of an artifact counts in the hash of a state."""

    artifact_id: str
    type_id: str
    version: int
    sha256: str


def content_hash(value: BaseModel | Artifact[Any] | Mapping[str, Any] | bytes) -> str:
    """Return the blake3 of a payload's canonical bytes: what the store keeps beside each version.

    Raises `PayloadError` for a model that could not be stored.
    """
    if isinstance(value, bytes):
        return canonical.content_hash(value)
    if isinstance(value, Mapping):
        return canonical.content_hash(canonical.encode(value))
    return canonical.content_hash(encode(value.data if isinstance(value, Artifact) else value).payload)


def data_hash(value: BaseModel | Mapping[str, Any]) -> str:
    """Return the sha256 of the canonical JSON of some data, without the transient fields of its model.

    Of a plain mapping all keys count. Raises `PayloadError` for data that has no JSON form.
    """
    if isinstance(value, BaseModel):
        return hash_of_plain(dump(value), transient_fields(type(value)))
    return hash_of_plain(value, ())


def artifact_hash(artifact: Artifact[Any]) -> str:
    """Return the `data_hash` of an artifact's data."""
    return data_hash(artifact.data)


def context_hash(context: Context) -> str:
    """Return the hash of a state: its version, its artifacts and its relations, no times, no commits.

    Equal for equal runs, and not changed by compaction. Costs what the state holds.
    """
    return state_digest(View.of(context))


def state_digest(view: View) -> str:
    """Return the same of a view."""
    artifacts: list[Any] = [list(found) for found in fingerprints(view)]
    relations = sorted([r.source_id, r.relation, r.target_id] for r in view.working.relations())
    record: dict[str, Any] = {
        "artifacts": artifacts,
        "relations": relations,
        "version": view.line.version,
    }
    return hashlib.sha256(canonical.encode(record)).hexdigest()


def fingerprints(view: View) -> Iterator[Fingerprint]:
    """Yield what counts of each live artifact, in order of id."""
    working = view.working
    ids = working.state.ids_of(working.state.type_ids())
    for artifact_id in sorted(ids):
        stored = working.state.stored(artifact_id)
        assert stored is not None
        meta = stored.meta
        yield Fingerprint(artifact_id, meta.type_id, working.version_of(meta), stored_hash(view, meta))


def stored_hash(view: View, meta: Meta) -> str:
    """Return the `data_hash` of a stored version, an action joined with its delivery."""
    return hash_of_plain(plain_data(view.working, meta), view.transient_fields(meta.type_id))


def plain_data(working: WorkingCopy, meta: Meta) -> Any:
    """Return the data of a stored version as plain JSON types, an action joined with its delivery."""
    payload = working.state.payload(meta)
    if meta.type_id == ACTION_TYPE:
        return dump(working.model(meta, payload))
    return canonical.decode(payload)


def hash_of_plain(data: Any, transient: Collection[str]) -> str:
    """Return the sha256 of the canonical JSON of plain data without some of its fields."""
    if transient and isinstance(data, Mapping):
        data = {name: value for name, value in data.items() if name not in transient}
    return hashlib.sha256(canonical.encode(data)).hexdigest()


def transient_fields(model: type[BaseModel]) -> frozenset[str]:
    """Return the fields that a model declares to be no part of its identity."""
    return frozenset(getattr(model, "transient_fields", ()) or ())


def counter_ids(start: int = 0) -> Callable[[str], str]:
    """Return an `id_factory` that gives `order:0000`, `note:0001` ...: one counter over all types.

    Pass it as `RuntimeResources(id_factory=counter_ids())`, so that a run makes the same ids again.
    """
    numbers = count(start)

    def make(type_name: str) -> str:
        return f"{type_name.lower()}:{next(numbers):04d}"

    return make
