"""A patch checked whole and applied whole; and results that are kept although they are not committed yet.

Owns the preparation of operations (models encoded, ids checked) and what a kept result must find unchanged
to count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from blake3 import blake3
from pydantic import BaseModel

from .._store import canonical
from .._store.layout import ListingRecord, Meta, file_path
from .._store.names import encode_name
from .._store.objects import Oid
from .._store.state import Origin
from .._store.trees import lookup
from .._undeclared import over_stored
from ..artifacts import ACTION_TYPE, Encoded, action_note, check_text, encode, same_content
from ..commit import Write
from ..errors import IntentConflict, TypeNotFoundError, UnreadablePayload
from ..events import Event
from ..interrupt import PendingAction
from ..operations import Create, Delete, Link, Operation, Unlink, Update
from ..types.codec import decode_payload
from ..types.registry import resolve
from .working_copy import WorkingCopy

# -- applying a patch: checked whole first, then applied whole --


@dataclass(slots=True)
class Prepared:
    """One operation that is known to be storable."""

    operation: Operation
    artifact_id: str
    encoded: Encoded | None = None


def prepare(operations: Iterable[Operation], working: WorkingCopy) -> list[Prepared]:
    """Encode every payload and check every id of a patch. Nothing is changed.

    Raises `PayloadError`, `InvalidName`, or `TypeError` for what is not an operation.
    """
    prepared = []
    for operation in operations:
        if isinstance(operation, Create):
            wish = operation.artifact_id or operation.id
            artifact_id = wish if wish is not None else working.fresh_id(type(operation.data))
            prepared.append(_written(operation, artifact_id, operation.data, working))
        elif isinstance(operation, Update):
            prepared.append(_written(operation, operation.artifact_id, operation.new_data, working))
        elif isinstance(operation, Delete | Link | Unlink):
            prepared.append(Prepared(operation, operation.artifact_id))
            if isinstance(operation, Link):
                check_text(operation.relation, "relation")
                check_text(operation.target_id, "target id")
        else:
            raise TypeError(
                f"{operation!r} is not an operation: a patch holds Create, Update, Delete, Link and Unlink"
            )
        file_path(prepared[-1].artifact_id)  # raises `InvalidName` where it cannot be stored
    return prepared


def _written(operation: Operation, artifact_id: str, data: BaseModel, working: WorkingCopy) -> Prepared:
    encoded = encode(data)
    if working.state.stored(artifact_id) is not None:
        encoded = over_stored(encoded, working.state, artifact_id)
    return Prepared(operation, artifact_id, encoded)


def apply(prepared: Iterable[Prepared], working: WorkingCopy, origin: Origin) -> list[Write]:
    """Apply a prepared patch in order and return what it wrote."""
    writes: list[Write] = []
    for item in prepared:
        write = _apply_one(item, working, origin)
        if write is not None:
            writes.append(write)
    return writes


def _apply_one(item: Prepared, working: WorkingCopy, origin: Origin) -> Write | None:
    operation = item.operation
    if isinstance(operation, Create):
        operation.artifact_id = item.artifact_id
        return _create(item, working, origin)
    if isinstance(operation, Update):
        return _update(item, working, origin)
    if isinstance(operation, Delete):
        gone = working.delete(operation.artifact_id, origin)
        return Write(operation.artifact_id, 0 if gone is None else gone.version, "delete")
    if isinstance(operation, Link):
        working.link(operation.artifact_id, operation.relation, operation.target_id)
    elif isinstance(operation, Unlink):
        working.unlink(operation.artifact_id, operation.relation, operation.target_id)
    return None


def _create(item: Prepared, working: WorkingCopy, origin: Origin) -> Write:
    stored = working.state.stored(item.artifact_id)
    if stored is None:
        assert item.encoded is not None
        meta = working.write(item.artifact_id, item.encoded, origin, "create")
        return Write(item.artifact_id, meta.version, "create")
    return _refresh(item, stored.meta, working, origin, "create")


def _update(item: Prepared, working: WorkingCopy, origin: Origin) -> Write | None:
    stored = working.state.stored(item.artifact_id)
    if stored is None:
        return None
    return _refresh(item, stored.meta, working, origin, "update")


def _refresh(item: Prepared, live: Meta, working: WorkingCopy, origin: Origin, op_type: str) -> Write:
    """Write over a live artifact; equal data moves neither version nor event.

    A commit of an agent records it all the same; a direct change that changes nothing makes no commit.
    """
    encoded = item.encoded
    assert encoded is not None
    if same_content(encoded, live):
        if origin.commit is not None:
            working.state.touch(live.id, origin)
            working.journal(
                {
                    "type": op_type,
                    "artifact_id": live.id,
                    "data_type": encoded.type_id,
                    "payload": live.payload,
                    "revision": live.revision,
                    "version": live.version,
                    "unchanged": True,
                    **action_note(encoded),
                }
            )
        return Write(live.id, live.version, "update")
    meta = working.write(live.id, encoded, origin, op_type)
    return Write(live.id, meta.version, "update")


def refuse_unequal_intents(patches: Iterable[list[Prepared]], planned: dict[str, Encoded]) -> None:
    """Refuse two different actions under one key in one generation. Raises `IntentConflict`.

    `planned` holds the actions of the executions before, by id; these join them unless one is refused.
    """
    own: dict[str, Encoded] = {}
    for patch in patches:
        for item in patch:
            if item.encoded is None or item.encoded.type_id != ACTION_TYPE:
                continue
            if isinstance(item.operation, Update) and _cancels(item.operation):
                continue  # it is no other intent, but the end of one
            known = own.setdefault(item.artifact_id, planned.get(item.artifact_id, item.encoded))
            if known.payload != item.encoded.payload:
                raise IntentConflict(
                    f"two different actions were planned as {item.artifact_id!r} in one generation: "
                    f"{known.payload.decode()} and {item.encoded.payload.decode()}; "
                    f"give each intent a key of its own"
                )
    planned.update(own)


def _cancels(operation: Update) -> bool:
    return isinstance(operation.new_data, PendingAction) and operation.new_data.cancelled_at is not None


# -- results that are kept although they are not committed yet --


HeldKey = tuple[str, str]
"""(the event as text, the name the queue knows the agent by). Equal events have equal keys: a result
stands for one of them, and each needs its own."""


@dataclass(slots=True)
class HeldResult:
    """What one execution asked for, and what must be unchanged for it to count."""

    agent: str
    event: Event
    operations: list[Operation]
    direct: list[Operation]
    reads: dict[str, int]
    listings: dict[str, ListingRecord]
    writes: dict[str, int] = field(default_factory=dict)  # id -> version seen, -1: it was not there
    types: dict[str, Oid | None] = field(default_factory=dict)  # listed type -> its subtree
    calls: list[dict[str, str]] = field(default_factory=list)  # what was asked of models

    @property
    def key(self) -> HeldKey:
        """What the result is found by."""
        return held_key(self.event, self.agent)

    def note_state(self, view: WorkingCopy) -> None:
        """Note the versions of the snapshot that the result was made on."""
        for operation in [*self.operations, *self.direct]:
            artifact_id = _id(operation)
            if artifact_id is not None:
                self.writes.setdefault(artifact_id, _version(view, artifact_id))
        for type_id in self.listings:
            self.types[type_id] = _type_tree(view, type_id)

    def is_valid(self, view: WorkingCopy) -> bool:
        """Whether every version it read or writes is unchanged."""
        return _is_unchanged(view, {**self.reads, **self.writes}, self.types)

    def sealed(self, patch: Iterable[Prepared], direct: Iterable[Prepared]) -> SealedResult:
        """Return it as it is kept: with what was asked for as its checked patches have it, as data.

        The models themselves are the application's still, which may change them in place.
        """
        operations: list[Any] = [_to_dict(item) for item in patch]
        changes: list[Any] = [_to_dict(item) for item in direct]
        return SealedResult(
            agent=self.agent,
            event=self.event,
            operations=operations,
            direct=changes,
            reads=self.reads,
            listings=self.listings,
            writes=self.writes,
            types=self.types,
            calls=self.calls,
        )


class SealedResult(HeldResult):
    """A result that is kept, as data: a class that is missing must not keep a session from being opened."""

    __slots__ = ("_data", "_direct", "_operations")

    _operations: list[dict[str, Any]]
    _direct: list[dict[str, Any]]
    _data: bytes

    @property
    def operations(self) -> list[Operation]:
        """What was asked for. Raises `TypeNotFoundError`, `UnreadablePayload`, naming agent and artifact."""
        return [self._built(one) for one in self._operations]

    @operations.setter
    def operations(self, value: list[Any]) -> None:
        self._operations = value

    @property
    def direct(self) -> list[Operation]:
        """The direct changes. Raises as `operations` does."""
        return [self._built(one) for one in self._direct]

    @direct.setter
    def direct(self, value: list[Any]) -> None:
        self._direct = value

    def encode(self) -> bytes:
        """Return the bytes of the held file, which are made once: what is sealed does not change."""
        if not hasattr(self, "_data"):
            self._data = self._encoded()
        return self._data

    def _encoded(self) -> bytes:
        return canonical.encode(
            {
                "agent": self.agent,
                "event": self.event.to_dict(),
                "operations": self._operations,
                "direct": self._direct,
                "reads": [[artifact_id, version] for artifact_id, version in self.reads.items()],
                "listings": [list(listing) for listing in self.listings.values()],
                "writes": dict(self.writes),
                "types": dict(self.types),
                **({"calls": self.calls} if self.calls else {}),
            }
        )

    @staticmethod
    def decode(record: Any) -> SealedResult:
        """Return the result in the record of a held file; its operations are built when asked for."""
        listings = [ListingRecord(*raw) for raw in record["listings"]]
        return SealedResult(
            agent=record["agent"],
            event=Event.from_dict(record["event"]),
            operations=record["operations"],
            direct=record["direct"],
            reads=dict(record["reads"]),  # pairs, or what an earlier version wrote: an object, unordered
            listings={listing.type_id: listing for listing in listings},
            writes=record["writes"],
            types=record["types"],
            calls=record.get("calls", []),
        )

    def _built(self, one: Mapping[str, Any]) -> Operation:
        try:
            return _from_dict(one)
        except (TypeNotFoundError, UnreadablePayload) as error:
            raise type(error)(
                f"the result of agent {self.agent!r} that is held for {self.event.artifact_id!r} writes "
                f"artifact {one['artifact_id']!r}: {error}"
            ) from error


def held_key(event: Event, agent: str) -> HeldKey:
    """Return what the result of an agent on an event is found by."""
    return canonical.encode(event.to_dict()).decode(), agent


class HeldMemo(NamedTuple):
    """What an execution that has not ended yet keeps under a key of its own, and what it had read by then.

    `place` tells executions of one agent on equal events apart; `value` is data (see `_memo`).
    """

    agent: str
    event: Event
    place: int
    key: str
    value: Any
    reads: dict[str, int]
    types: dict[str, Oid | None]

    def is_valid(self, view: WorkingCopy) -> bool:
        """Whether every version that was read before it was made is unchanged."""
        return _is_unchanged(view, self.reads, self.types)

    def encode(self) -> bytes:
        """Return the bytes of the held file."""
        return canonical.encode({"memo": {**self._asdict(), "event": self.event.to_dict()}})

    @staticmethod
    def decode(record: Any) -> HeldMemo:
        """Return the memo in the record of a held file."""
        return HeldMemo(**{**record["memo"], "event": Event.from_dict(record["memo"]["event"])})


def type_trees(view: WorkingCopy, type_ids: Iterable[str]) -> dict[str, Oid | None]:
    """Return, for types that were listed, the subtrees by which a later change of the listing shows."""
    return {type_id: _type_tree(view, type_id) for type_id in type_ids}


def _is_unchanged(view: WorkingCopy, versions: Mapping[str, int], types: Mapping[str, Oid | None]) -> bool:
    return all(_version(view, i) == version for i, version in versions.items()) and all(
        _type_tree(view, type_id) == tree for type_id, tree in types.items()
    )


def decode_held(files: Iterable[bytes]) -> tuple[list[SealedResult], list[HeldMemo]]:
    """Return the results and the memos in held files."""
    records: list[Any] = [canonical.decode(data) for data in files]
    results = [SealedResult.decode(record) for record in records if "memo" not in record]
    return results, [HeldMemo.decode(record) for record in records if "memo" in record]


def files_of(results: Iterable[SealedResult], memos: Iterable[HeldMemo] = ()) -> dict[str, bytes]:
    """Return the files that hold some results and memos, by name; results of equal events are numbered."""
    files: dict[str, bytes] = {}
    for memo in memos:
        name = chr(0).join([*held_key(memo.event, memo.agent), str(memo.place), memo.key])
        files[f"memo-{blake3(name.encode()).hexdigest()[:32]}.json"] = memo.encode()
    count: Counter[HeldKey] = Counter()
    for found in results:
        number = count[found.key]
        count[found.key] += 1
        stem = blake3(chr(0).join(found.key).encode()).hexdigest()[:32]
        files[f"{stem}-{number}.json" if number else f"{stem}.json"] = found.encode()
    return files


def _id(operation: Operation) -> str | None:
    if isinstance(operation, Create):
        return operation.artifact_id or operation.id
    return operation.artifact_id if isinstance(operation, Update | Delete) else None


def _version(view: WorkingCopy, artifact_id: str) -> int:
    stored = view.state.stored(artifact_id)
    return -1 if stored is None else view.version_of(stored.meta)


def _type_tree(view: WorkingCopy, type_id: str) -> Oid | None:
    entry = lookup(view.state.objects, view.state.roots.artifacts, (encode_name(type_id),))
    return None if entry is None else entry.oid


def _to_dict(item: Prepared) -> dict[str, Any]:
    if item.encoded is None:
        return item.operation.to_dict()
    return {
        "type": "create" if isinstance(item.operation, Create) else "update",
        "artifact_id": item.artifact_id,
        "data_type": item.encoded.type_id,
        "revision": item.encoded.revision,
        "payload": canonical.decode(item.encoded.payload),
    }


def _from_dict(record: Mapping[str, Any]) -> Operation:
    kind = record["type"]
    if kind == "delete":
        return Delete(record["artifact_id"])
    if kind == "link":
        return Link(record["artifact_id"], record["relation"], record["target_id"])
    if kind == "unlink":
        return Unlink(record["artifact_id"], record["relation"], record["target_id"])
    data = decode_payload(
        resolve(record["data_type"]),
        canonical.encode(record["payload"]),
        type_id=record["data_type"],
        revision=record["revision"],
    )
    if kind == "create":
        return Create(data, id=record["artifact_id"])
    return Update(record["artifact_id"], data)
