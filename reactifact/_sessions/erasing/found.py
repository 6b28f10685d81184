"""What belongs to an erasure: all versions of what was named, and actions and questions that came from it.

Owns `Wish`, what is read of the histories for it, and the spec that is made of both.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..._store import canonical
from ..._store._history.erasing import Cleared, Spec, born, named, token_of
from ..._store.commits import own_record, read_roots
from ..._store.layout import Meta
from ..._store.object_db import Database
from ..._store.objects import TREE_MODE, Oid, object_id
from ...erasure import ClearedPayload, ErasedArtifact, cleared_payload, has_personal
from ...errors import ErasureRefused, MissingObject, UnknownRevision
from ...interrupt import PendingAction, PendingQuestion, TypedQuestion
from ...types.ids import type_id_of
from ...types.registry import resolve

_DERIVED = frozenset(type_id_of(one) for one in (PendingAction, PendingQuestion, TypedQuestion))
"""Types of which an artifact that came from what is erased goes with it: they repeat it for the world."""

_TELLING = 6  # characters of a value that say whose it is
_SHORT_NAME = 4  # characters below which an id is a word like any other


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants erased, who, and why."""

    session: str
    ids: tuple[str, ...]
    fields_only: bool
    by: str
    reason: str
    when: datetime


@dataclass(slots=True)
class Found:
    """What the histories of some sessions hold: the bookkeeping of all versions, by artifact."""

    versions: dict[str, dict[Oid, Meta]] = field(default_factory=lambda: defaultdict(dict))
    loose: dict[str, list[tuple[str, str, bytes, str]]] = field(default_factory=lambda: defaultdict(list))
    """Payloads that stand in records alone, by artifact: type id, revision, bytes, the commit's Change-Id."""


def gather(database: Database, commits: Iterable[Oid]) -> Found:
    found = Found()
    seen: set[Oid] = set()

    def note(oid: Oid | None) -> None:
        while oid is not None and oid not in seen:
            seen.add(oid)
            try:
                meta = Meta.decode(database.read(oid).data)
            except MissingObject:
                return  # of a version that was trimmed
            found.versions[meta.id][oid] = meta
            oid = meta.previous

    def visit(tree: Oid | None, is_kept: bool) -> None:
        if tree is None or tree in seen:
            return
        seen.add(tree)
        entries = database.tree(tree)
        database.prefetch(entry.oid for entry in entries.values())
        for name, entry in entries.items():
            if entry.mode == TREE_MODE:
                visit(entry.oid, is_kept)
            elif not is_kept or name == "meta.json":
                note(entry.oid)

    for oid in commits:
        record = own_record(database, oid)
        if record is None or record.kind == "ledger":
            continue
        roots = read_roots(database, oid)
        visit(roots.meta, False)
        visit(roots.versions, True)
        for operation in record.operations:
            if operation.get("payload") is None and "data" in operation:
                data = canonical.encode(operation["data"])
                kind, revision = operation.get("data_type", ""), operation.get("revision", "")
                found.loose[operation["artifact_id"]].append((kind, revision, data, record.change))
    return found


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of JSON data, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _values(value: Any) -> Iterator[str]:
    """Yield the texts of JSON data, without the names of fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _values(item)


@dataclass(slots=True)
class _Closure:
    """What goes with what was asked for: the actions and the questions that came from it or name it."""

    database: Database
    found: Found
    values: tuple[str, ...]
    is_by_fields: bool
    because: dict[str, str] = field(default_factory=dict)

    def of(self, wanted: Iterable[str]) -> dict[str, str]:
        """Return those actions and questions, each with the id of what it came from."""
        gone = list(wanted)
        types = {meta.type_id for name in gone for meta in self.found.versions[name].values()}
        placed = {
            kind: min(m.sequence for n in gone for m in self.found.versions[n].values() if m.type_id == kind)
            for kind in types
        }
        others = {
            name: list(metas.values())
            for name, metas in self.found.versions.items()
            if name not in gone and any(meta.type_id in _DERIVED for meta in metas.values())
        }
        telling = named(value for value in self.values if len(value) >= _TELLING)
        while True:
            exact = dict(zip(gone, gone, strict=True))
            words = named(one for one in exact if len(one) >= _SHORT_NAME or not one.isalnum())
            fresh = {}
            for name, metas in others.items():
                cause = next((c for m in metas if (c := self._cause(m, exact, words, telling, placed))), None)
                if cause is not None:
                    fresh[name] = cause
            if not fresh:
                return self.because
            self.because.update(fresh)
            gone += fresh
            for name in fresh:
                del others[name]

    def _cause(
        self,
        meta: Meta,
        exact: Mapping[str, str],
        words: re.Pattern[str] | None,
        telling: re.Pattern[str] | None,
        placed: Mapping[str, int],
    ) -> str | None:
        cause = next((exact[one.artifact_id] for one in meta.reads if one.artifact_id in exact), None)
        texts = [meta.id, *_texts(json.loads(self.database.read(meta.payload).data))]
        for text in texts if cause is None else ():
            match = words.search(text) if words is not None else None
            cause = exact.get(text) or (None if match is None else exact[match[0]])
            if cause is not None:
                break
        if cause is None and telling is not None:
            listed = any(placed.get(one.type_id, one.sequence) < one.sequence for one in meta.listings)
            if listed and any(telling.search(text) for text in texts):
                cause = next(iter(exact.values()))
        if cause is not None and self.is_by_fields:
            said = named(self.values)
            if said is None or not any(said.search(text) for text in texts):
                return None
        return cause


def spec_of(database: Database, wish: Wish, found: Found) -> tuple[Spec, list[ErasedArtifact]]:
    """Return what goes, and what it is. Raises `UnknownRevision`, `ErasureRefused`."""
    versions = {name: dict(found.versions.get(name, {})) for name in wish.ids}
    unknown = [name for name, metas in versions.items() if not metas and name not in found.loose]
    if unknown:
        raise UnknownRevision(
            f"no branch or tag of session {wish.session!r} holds, or ever held, "
            f"{', '.join(map(repr, unknown))}: nothing was erased"
        )
    cleared: dict[str, dict[Oid, Cleared]] = {}
    fields: dict[str, tuple[str, ...]] = {}
    values: dict[str, None] = {}
    for name, metas in versions.items():
        payloads = [(m.type_id, m.revision, database.read(m.payload).data, m.version) for m in metas.values()]
        payloads += [(kind, revision, data, -1) for kind, revision, data, _ in found.loose.get(name, ())]
        if wish.fields_only:
            cleared[name], fields[name] = _without_fields(name, payloads, values)
        else:
            values.update((text, None) for *_, data, _ in payloads for text in _values(json.loads(data)))
    because = _Closure(database, found, tuple(values), wish.fields_only).of(wish.ids)
    tokens: dict[str, str] = {}
    listed = []
    for name in (*wish.ids, *because):
        metas = found.versions.get(name, {})
        first = min(metas.values(), key=lambda m: (m.sequence, m.version), default=None)
        kinds = [m.type_id for m in metas.values()] or [kind for kind, *_ in found.loose[name]]
        mark = found.loose[name][0][3] if first is None else born(first)
        token = token_of(mark, is_whole=name not in cleared)
        if name not in cleared:
            tokens[name] = token
        count = len({m.version for m in metas.values()}) or len(found.loose[name])
        came = because.get(name, "")
        listed.append(ErasedArtifact(name, token, kinds[-1], count, came, fields.get(name, ())))
    return Spec(tokens, cleared, tuple(values)), listed


def _without_fields(
    name: str, payloads: Sequence[tuple[str, str, bytes, int]], values: dict[str, None]
) -> tuple[dict[Oid, Cleared], tuple[str, ...]]:
    """Return each payload of an artifact without its personal fields, by its id, and the names of those."""
    made: dict[Oid, Cleared] = {}
    fields: dict[str, None] = {}
    for type_id, revision, data, version in payloads:
        model = resolve(type_id)
        if not has_personal(model):
            raise ErasureRefused(
                f"{model.__name__} marks no field as personal, so nothing of {name!r} can be erased alone: "
                f"mark them (`email: Annotated[str, Personal()]`), or erase the whole artifact"
            )
        found: ClearedPayload = cleared_payload(
            model, data, type_id=type_id, revision=revision, artifact=name, version=version
        )
        if found.fields:
            made[object_id("blob", data)] = Cleared(found.payload.decode(), found.revision)
            fields.update(dict.fromkeys(found.fields))
            values.update(dict.fromkeys(found.values))
    return made, tuple(fields)
