"""Results that are kept although they are not committed yet.

When one execution of a generation fails, or a deadline cuts it, what the others have finished (and
often paid for) is held beside the queue, saved with it, and committed when the rest has run. Owns the
held result, its file, and the rule when it still counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from blake3 import blake3

from ..errors import TypeNotFoundError, UnreadablePayload
from ..store import canonical
from ..store.layout import ListingRecord
from ..store.names import encode_name
from ..store.objects import Oid
from ..store.trees import lookup
from .applying import Prepared
from .codec import decode_payload
from .events import Event
from .operations import Create, Delete, Link, Operation, Unlink, Update
from .types import resolve
from .working import Working

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

    def note_state(self, view: Working) -> None:
        """Note the versions of the snapshot that the result was made on."""
        for operation in [*self.operations, *self.direct]:
            artifact_id = _id(operation)
            if artifact_id is not None:
                self.writes.setdefault(artifact_id, _version(view, artifact_id))
        for type_id in self.listings:
            self.types[type_id] = _type_tree(view, type_id)

    def is_valid(self, view: Working) -> bool:
        """Whether every version it read or writes is unchanged."""
        seen = {**self.reads, **self.writes}
        return all(_version(view, i) == version for i, version in seen.items()) and all(
            _type_tree(view, type_id) == tree for type_id, tree in self.types.items()
        )

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

    __slots__ = ("_direct", "_operations")

    _operations: list[dict[str, Any]]
    _direct: list[dict[str, Any]]

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
        """Return the bytes of the held file."""
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
    def decode(data: bytes) -> SealedResult:
        """Return the result in the bytes of a held file; its operations are built when asked for."""
        record: Any = canonical.decode(data)
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


def files_of(results: Iterable[SealedResult]) -> dict[str, bytes]:
    """Return the files that hold some results, by name; those of equal events are numbered."""
    files: dict[str, bytes] = {}
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


def _version(view: Working, artifact_id: str) -> int:
    stored = view.state.stored(artifact_id)
    return -1 if stored is None else view.version_of(stored.meta)


def _type_tree(view: Working, type_id: str) -> Oid | None:
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
