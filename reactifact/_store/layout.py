"""Where things stand in the tree of a commit, and what the bookkeeping files hold.

Owns the paths (DESIGN: a path depends on the artifact's id and type alone), the constant files,
and the records that are kept beside payloads: `Meta` of an artifact, `Edge` of a relation,
`Intent` of an action still waited for, `Waiting` of an event in the queue. It reads and writes no objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from blake3 import blake3

from . import canonical
from .canonical import refusing_damage, typed
from .names import encode_name, fan_out
from .objects import Oid
from .trees import Path

FORMAT_VERSION = 2
ATTRIBUTES = b"""\
* -text -merge
.reactifact/** -diff merge=union linguist-generated
outbox/** -diff merge=union linguist-generated
"""
EARLIER_ATTRIBUTES = (b"* -text -merge\n.reactifact/** -diff linguist-generated\n",)
BOOKKEEPING = ".reactifact"
WAKE = "reactifact.wake"
"""The kind of an intent to oneself: delivering it is an event in the session, and nothing is sent."""


class Roots(NamedTuple):
    """The subtrees of a commit; `None` where a subtree is empty. A snapshot is just this."""

    artifacts: Oid | None = None
    relations: Oid | None = None
    outbox: Oid | None = None
    meta: Oid | None = None
    versions: Oid | None = None
    held: Oid | None = None
    queue: Oid | None = None
    thread: Oid | None = None  # what an integration keeps; carried along, and neither read nor merged here

    def leaving(self, held: Oid | None, queue: Oid | None) -> Roots:
        """Return these subtrees with other held results and another queue."""
        return tuple.__new__(Roots, (*self[:5], held, queue, self.thread))


def artifact_path(type_id: str, artifact_id: str) -> Path:
    """Return the path of a payload below `artifacts/`."""
    return (encode_name(type_id), *file_path(artifact_id))


@lru_cache(maxsize=8192)
def file_path(identity: str) -> Path:
    """Return the fanned-out path of the JSON file of one id."""
    name = encode_name(identity, suffix=".json")  # which refuses what is no id
    digits = blake3(identity.encode()).hexdigest()  # as `fan_out`
    return digits[0], digits[1], digits[2], name


def versions_path(artifact_id: str) -> Path:
    """Return the path, below `.reactifact/versions/`, of the kept versions of one artifact."""
    return (*fan_out(artifact_id), encode_name(artifact_id))


class ReadRecord(NamedTuple):
    """An artifact that was read, at a version; -1 stands for a look-up that found nothing."""

    artifact_id: str
    version: int


class ListingRecord(NamedTuple):
    """A type that was listed: which one, at which snapshot, and the first sequence not in it."""

    type_id: str
    change: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Meta:
    """The bookkeeping of one version of an artifact."""

    id: str
    type_id: str
    version: int
    sequence: int  # place in the order of creation
    written: int  # place in the order of writes: later than every sequence given out before
    created_at: str
    updated_at: str
    payload: Oid
    content_hash: str
    revision: str
    author: str
    commit: str | None  # Change-Id of the versioned commit that wrote this version
    created_by: str | None  # Change-Id of the versioned commit that created the artifact
    writer: str | None  # Change-Id of the last versioned commit that wrote the artifact
    writer_author: str | None
    reads: tuple[ReadRecord, ...] = ()  # what `writer` read
    listings: tuple[ListingRecord, ...] = ()
    previous: Oid | None = None

    def encode(self) -> bytes:
        """Return the bytes of the meta file."""
        fields = zip(_META_NAMES, _META_VALUES(self), strict=True)
        data = canonical.encode_sorted({name: v for name, v in fields if v is not None and v != ()})
        _keep_decoded(data, self)
        return data

    @staticmethod
    def decode(data: bytes) -> Meta:
        """Return the meta record of a file."""
        found = _decoded.get(data)
        if found is None:
            found = _meta(data)
            _keep_decoded(data, found)
        return found


@refusing_damage("the bookkeeping of an artifact")
def _meta(data: bytes) -> Meta:
    record: Any = canonical.decode_record(data)
    reads = tuple(typed(ReadRecord(*read)) for read in record.pop("reads", ()))
    listings = tuple(typed(ListingRecord(*listing)) for listing in record.pop("listings", ()))
    known = {name: record.get(name) for name in _META_FIELDS}
    found = typed(Meta(**known, reads=reads, listings=listings))
    for moment in (found.created_at, found.updated_at):
        datetime.fromisoformat(moment)  # one that is no time is damage, wherever it is asked for
    return found


_decoded: dict[bytes, Meta] = {}  # what was written is read back soon: by the next generation
_DECODED = 8192
_DECODED_BYTES = 8 * 1024 * 1024  # encoded; a record of many reads takes several times that when decoded
_size = 0


def _keep_decoded(data: bytes, meta: Meta) -> None:
    global _size
    if data in _decoded or len(data) > _DECODED_BYTES // 8:
        return
    if len(_decoded) >= _DECODED or _size + len(data) > _DECODED_BYTES:
        _decoded.clear()
        _size = 0
    _decoded[data] = meta
    _size += len(data)


_META_NAMES = tuple(sorted(Meta.__dataclass_fields__))
_META_VALUES = attrgetter(*_META_NAMES)
_META_FIELDS = tuple(name for name in _META_NAMES if name not in ("reads", "listings"))


class Edge(NamedTuple):
    """One relation of a source artifact, with its place in the order of all relations."""

    relation: str
    target: str
    sequence: int


def encode_edges(source: str, edges: Sequence[Edge]) -> bytes:
    """Return the bytes of the relations file of one source."""
    links: list[Any] = [
        {"relation": edge.relation, "sequence": edge.sequence, "target": edge.target} for edge in edges
    ]
    return canonical.encode({"links": links, "source": source})


@refusing_damage("a file of relations")
def decode_edges(data: bytes) -> tuple[str, tuple[Edge, ...]]:
    """Return (source id, edges) of a relations file."""
    record: Any = canonical.decode(data)
    edges = (typed(Edge(e["relation"], e["target"], e["sequence"])) for e in record["links"])
    source = record["source"]
    if not isinstance(source, str):
        raise TypeError(f"its source is {source!r}")
    return source, tuple(edges)


@lru_cache(maxsize=8)  # whoever writes an action asks twice
@refusing_damage("an action")
def action_fields(payload: bytes) -> Mapping[str, Any]:
    """Return the fields of the payload of an action, its time in UTC."""
    record: Any = canonical.decode(payload)
    moment = record.get("not_before")
    utc = None if moment is None else datetime.fromisoformat(moment).astimezone(UTC).isoformat()
    return {**record, "kind": record["kind"], "not_before": utc}


class Intent(NamedTuple):
    """An action that the branch still waits for."""

    action_id: str
    sequence: int
    intent: str  # content hash of the payload: kind, key, payload, ordering key
    ordering_key: str | None = None
    simulated_at: str | None = None
    not_before: str | None = None  # ISO, UTC: it is not sent before
    is_wake: bool = False  # an intent to oneself

    @staticmethod
    def of(meta: Meta, payload: bytes) -> Intent | None:
        """Return what is waited for of a version of an action with a payload; `None`: it is cancelled."""
        action = action_fields(payload)
        if action.get("cancelled_at") is not None:
            return None
        return Intent(
            meta.id,
            meta.sequence,
            meta.content_hash,
            action.get("ordering_key"),
            not_before=action["not_before"],
            is_wake=action["kind"] == WAKE,
        )

    def encode(self) -> bytes:
        """Return the bytes of the outbox file."""
        record = {
            "action": self.action_id,
            "intent": self.intent,
            "not_before": self.not_before,
            "ordering_key": self.ordering_key,
            "sequence": self.sequence,
            "simulated_at": self.simulated_at,
            "wake": self.is_wake or None,
        }
        return canonical.encode_sorted({k: v for k, v in record.items() if v is not None})

    @staticmethod
    @refusing_damage("the file of a waiting action")
    def decode(data: bytes) -> Intent:
        """Return the record of an outbox file."""
        record: Any = canonical.decode(data)
        return typed(
            Intent(
                record["action"],
                record["sequence"],
                record["intent"],
                record.get("ordering_key"),
                record.get("simulated_at"),
                record.get("not_before"),
                record.get("wake", False),
            )
        )


class FailureRecord(NamedTuple):
    """How an agent failed on an event that waits."""

    times: int
    error: str  # the last one, with its type
    is_parked: bool = False  # it is not asked again before somebody says so


class Waiting(NamedTuple):
    """An event in the queue. Its file is never rewritten: what changes goes under another name."""

    event: dict[str, Any]
    owed: list[str] | None  # the agents that still owe it an execution; `None` until it is matched
    order: int  # place in the queue; several may share one where branches meet
    behind: int = 0  # place behind the event of the same order that it follows from
    failures: dict[str, Any] | None = None  # by agent: how often it failed on it, and how it did so last

    def encode(self) -> bytes:
        """Return the bytes of the queue file."""
        record: dict[str, Any] = {"behind": self.behind} if self.behind else {}
        record["event"] = dict(sorted(self.event.items()))
        if self.failures:
            record["failures"] = self.failures
        record["order"] = self.order
        if self.owed is not None:
            record["owed"] = self.owed
        is_flat = not self.failures and set(map(type, self.event.values())) <= {str}
        return canonical.encode_sorted(record) if is_flat else canonical.encode(record)

    @staticmethod
    @refusing_damage("an event of the queue")
    def decode(data: bytes) -> Waiting:
        """Return the record of a queue file."""
        record: Any = canonical.decode(data)
        event = dict(record["event"])
        behind, failures = record.get("behind", 0), record.get("failures")
        if failures is not None:
            failures = {agent: dict(typed(FailureRecord(**one))._asdict()) for agent, one in failures.items()}
        return typed(Waiting(event, record.get("owed"), record["order"], behind, failures))


def waiting_folder(event: Mapping[str, Any]) -> tuple[Path, str]:
    """Return the folder below `.reactifact/queue/` and the start of the name of an event's file.

    Both follow from the artifact and the kind of event, so that two of a kind stand side by side. Two
    levels: measured up to 30,000 events, where a commit then writes 8 KB of trees.
    """
    key = blake3(f"{event['type']}\n{event['artifact_id']}".encode("utf-8", "surrogatepass")).hexdigest()
    return (key[0], key[1]), f"{key[2:14]}-"


def waiting_path(waiting: Waiting, data: bytes) -> Path:
    """Return the path of the file that holds `data`: equal entries have equal names, so queues are sets."""
    folder, start = waiting_folder(waiting.event)
    return (*folder, f"{start}{blake3(data).hexdigest()[:14]}.json")
