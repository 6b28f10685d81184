"""What an answer rests on: the report, and the same as JSON and Markdown."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

from .._context.context import Context
from .._store._backends.kv import MemoryBackend
from .._store.branch import Branch
from .._store.commits import CommitRecord, own_record, state_hash
from .._store.layout import ListingRecord, Meta
from .._store.names import plain, plain_lines
from .._store.objects import Oid
from ..artifacts import Artifact
from ..replay.hashes import View, plain_data, state_digest, stored_hash

# -- the report of an answer --


FORMAT = 1


@dataclass(frozen=True, slots=True)
class ProvenanceEntry:
    """One artifact of a report, as it stood.

    `sha256` is the `data_hash` of its data, `content_hash` the blake3 of its payload. `produced_by` is
    the agent whose commit wrote it last, `None` for a direct fact, whose `author` put it there. `commit`
    is that commit's id in git and `change` its Change-Id; both are `None` where it is not committed
    yet, the first also where a compaction has folded it. `code` is the version of the agent's code,
    `reads` what the commit read as (id, version), `listings` the types it listed and at which change,
    `calls` the model calls behind it (model, hash of request and response).
    """

    artifact_id: str
    data_type: str
    version: int
    sha256: str
    produced_by: str | None
    created_at: str
    updated_at: str = ""
    type_id: str = ""
    content_hash: str = ""
    author: str = ""
    is_direct: bool = False
    commit: Oid | None = None
    change: str | None = None
    committed_at: str | None = None
    code: str = ""
    trigger: dict[str, Any] | None = None
    reads: list[list[Any]] = field(default_factory=list)
    listings: list[list[Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    distance: int = 0


class FollowedRelation(NamedTuple):
    """A relation of a report: `source, relation, target = it`. In JSON it is an object with these names."""

    source_id: str
    relation: str
    target_id: str

    def __getitem__(self, key: Any) -> Any:  # by name too, as in the JSON
        """Return a part by its place or by its name."""
        return self._asdict()[key] if isinstance(key, str) else tuple.__getitem__(self, key)


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What an answer rests on, at one commit of a session.

    `relations` are those that were followed; `sources` the distinct locators on the way. `followed`
    names the kinds of relations, `None` for all; `followed_reads` says whether what the commits read
    was followed too.
    """

    session_id: str
    context_version: int
    context_sha256: str
    answer: ProvenanceEntry
    provenance: list[ProvenanceEntry]
    relations: list[FollowedRelation]
    sources: list[str]
    branch: str = ""
    commit: Oid | None = None
    change: str = ""
    ledger: Oid | None = None
    state: str = ""
    followed: list[str] | None = None
    followed_reads: bool = False
    format: int = FORMAT

    @property
    def entries(self) -> list[ProvenanceEntry]:
        """The answer and everything behind it, the nearest first."""
        return [self.answer, *self.provenance]


def build_report(
    context: Context,
    answer_or_id: Artifact[Any] | str,
    *,
    relations: Iterable[str] | None = None,
    session_id: str = "",
    reads: bool = False,
) -> AuditReport:
    """Return what an artifact rests on, breadth first along its outgoing relations to the last source.

    All relations are followed, or those of the kinds in `relations`; with `reads` also what the commit
    that wrote an artifact had read. Raises `KeyError` for an id that is not in the context, and
    `TypeError` for one text as `relations`.
    """
    start = answer_or_id if isinstance(answer_or_id, str) else answer_or_id.id
    return report_of(View.of(context), start, relations=relations, session_id=session_id, reads=reads)


def report_of(
    view: View,
    start: str,
    *,
    relations: Iterable[str] | None = None,
    session_id: str = "",
    reads: bool = False,
) -> AuditReport:
    """Return the same of a view. Raises as `build_report` does."""
    if isinstance(relations, str):
        raise TypeError(f"relations takes several kinds of relations: pass [{relations!r}]")
    followed = None if relations is None else sorted(set(relations))
    walk = _Walk(view, None if followed is None else set(followed), reads)
    walk.run(start)
    line = view.line
    tip = line.seal()
    commits = _Commits(line, walk.found.values())
    entries = [_entry(view, meta, walk.distance[meta.id], commits) for meta in walk.found.values()]
    return AuditReport(
        session_id=session_id or _session_of(line),
        context_version=line.version,
        context_sha256=state_digest(view),
        answer=entries[0],
        provenance=entries[1:],
        relations=walk.relations,
        sources=walk.sources,
        branch=line.branch,
        commit=tip,
        change=line.change,
        ledger=line.ledger.tip,
        state=state_hash(line.state.roots) if line.state.is_clean else "",
        followed=followed,
        followed_reads=reads,
    )


def _session_of(line: Branch) -> str:
    """Return the session in a store, empty for a context that stands alone."""
    alone = line.ref is None and isinstance(line.database.backend, MemoryBackend)
    return "" if alone else line.session


class _Walk:
    """The way from an answer to its sources."""

    def __init__(self, view: View, kinds: set[str] | None, reads: bool) -> None:
        self._working = view.working
        self._kinds = kinds
        self._reads = reads
        self.found: dict[str, Meta] = {}
        self.distance: dict[str, int] = {}
        self.relations: list[FollowedRelation] = []
        self._locators: dict[str, None] = {}  # in the order in which they were met
        self._of_type: dict[str, deque[tuple[int, str]]] = {}  # by type: those that no listing has led to

    @property
    def sources(self) -> list[str]:
        """The distinct locators on the way."""
        return list(self._locators)

    def run(self, start: str) -> None:
        """Visit everything. Raises `KeyError` for a start that is not there."""
        state = self._working.state
        if state.stored(start) is None:
            raise KeyError(f"the context holds no artifact {start!r}")
        waiting = deque([(start, 0)])
        while waiting:
            artifact_id, distance = waiting.popleft()
            stored = state.stored(artifact_id)
            if artifact_id in self.found or stored is None:
                continue  # a dangling relation: it stands among the relations
            self.found[artifact_id] = stored.meta
            self.distance[artifact_id] = distance
            self._note_sources(stored.meta)
            waiting += [(target, distance + 1) for target in self._targets(stored.meta)]

    def _targets(self, meta: Meta) -> Iterator[str]:
        for edge in self._working.state.outgoing(meta.id):
            if self._kinds is None or edge.relation in self._kinds:
                self.relations.append(FollowedRelation(meta.id, edge.relation, edge.target))
                yield edge.target
        if self._reads and meta.commit is not None:  # a direct fact was given, whatever was read before
            yield from (read.artifact_id for read in meta.reads if read.version >= 0)
            for listing in meta.listings:
                yield from self._listed_at(listing)

    def _listed_at(self, listing: ListingRecord) -> Iterator[str]:
        """Yield what was listed, without what an earlier listing of the type has led to already."""
        state = self._working.state
        if listing.type_id not in self._of_type:
            found = (state.stored(artifact_id) for artifact_id in state.ids_of([listing.type_id]))
            self._of_type[listing.type_id] = deque(
                (stored.meta.sequence, stored.meta.id) for stored in found if stored is not None
            )
        waiting = self._of_type[listing.type_id]
        while waiting and waiting[0][0] < listing.sequence:
            yield waiting.popleft()[1]

    def _note_sources(self, meta: Meta) -> None:
        self._locators.update(dict.fromkeys(_locators(plain_data(self._working, meta))))


def _locators(data: Any) -> Iterator[str]:
    if isinstance(data, Mapping):
        for name, value in data.items():
            if name == "locator" and isinstance(value, str):
                if value:
                    yield value
            else:
                yield from _locators(value)
    elif isinstance(data, list):
        for item in data:
            yield from _locators(item)


class _Commits:
    """The commits that wrote some artifacts, found in one walk over the history."""

    def __init__(self, line: Branch, metas: Iterable[Meta]) -> None:
        self._objects = line.objects
        self._by_change: dict[str, tuple[Oid, CommitRecord]] = {}
        self._direct: dict[str, tuple[Oid, CommitRecord]] = {}
        changes: set[str] = set()
        direct: dict[str, Meta] = {}
        for meta in metas:
            if meta.commit is None:
                direct[meta.id] = meta
            elif meta.writer is not None:
                changes.add(meta.writer)
        self._find(line.tip, changes, direct)

    def of(self, meta: Meta) -> tuple[Oid, CommitRecord] | None:
        """Return the commit that wrote a version, `None` where the history does not hold it."""
        if meta.commit is None:
            return self._direct.get(meta.id)
        return self._by_change.get(meta.writer or "")

    def _find(self, tip: Oid | None, changes: set[str], direct: dict[str, Meta]) -> None:
        seen: set[Oid] = set()
        waiting = deque([tip] if tip is not None else [])
        while waiting and (changes or direct):
            oid = waiting.popleft()
            if oid in seen:
                continue
            seen.add(oid)
            waiting += self._objects.commit(oid).parents
            record = own_record(self._objects, oid)
            if record is None:
                continue
            if record.change in changes:
                changes.discard(record.change)
                self._by_change[record.change] = (oid, record)
            for operation in record.operations:
                meta = direct.get(operation.get("artifact_id", ""))
                if meta is not None and _wrote(operation, meta):
                    del direct[meta.id]
                    self._direct[meta.id] = (oid, record)


def _wrote(operation: Mapping[str, Any], meta: Meta) -> bool:
    return operation.get("version") == meta.version and operation.get("payload") == meta.payload


def _entry(view: View, meta: Meta, distance: int, commits: _Commits) -> ProvenanceEntry:
    found = commits.of(meta)
    commit, record = found if found is not None else (None, None)
    is_direct = meta.commit is None
    return ProvenanceEntry(
        artifact_id=meta.id,
        data_type=view.class_name(meta.type_id),
        version=view.working.version_of(meta),
        sha256=stored_hash(view, meta),
        produced_by=meta.writer_author,
        created_at=meta.created_at,
        updated_at=meta.updated_at,
        type_id=meta.type_id,
        content_hash=meta.content_hash,
        author=meta.author if is_direct else meta.writer_author or meta.author,
        is_direct=is_direct,
        commit=commit,
        change=record.change if record is not None and is_direct else (None if is_direct else meta.writer),
        committed_at=None if record is None else record.timestamp,
        code="" if record is None else record.code,
        trigger=None if record is None else record.trigger,
        reads=[] if is_direct else [[read.artifact_id, read.version] for read in meta.reads],
        listings=[] if is_direct else [[one.type_id, one.change] for one in meta.listings],
        calls=[] if record is None else list(record.details.get("calls", ())),
        distance=distance,
    )


# -- A report as JSON, for programs and for the check later, and as Markdown, for people --


_SHORT = 12


def report_to_json(report: AuditReport, *, indent: int | None = 2) -> str:
    """Return a report as JSON with sorted keys, and no character that steers a terminal."""
    record = asdict(report)
    record["relations"] = [one._asdict() for one in report.relations]
    return plain_lines(json.dumps(record, indent=indent, sort_keys=True, ensure_ascii=False))


def report_from_json(text: str | bytes) -> AuditReport:
    """Return the report in a JSON text. Raises `ValueError` for what is none, or of a newer format."""
    try:
        record: Any = json.loads(text)
        if not isinstance(record, dict):
            raise ValueError("it is no JSON object")
        version = record.get("format", FORMAT)
        if not isinstance(version, int) or version > FORMAT:
            raise ValueError(f"it has format {version!r}, and {FORMAT} is what is read here")
        record["answer"] = _rendering_entry(record["answer"])
        record["provenance"] = [_rendering_entry(entry) for entry in record["provenance"]]
        record["relations"] = [FollowedRelation(**one) for one in record["relations"]]
        return AuditReport(**{name: record[name] for name in _names(AuditReport) if name in record})
    except (KeyError, TypeError, ValueError) as error:
        cause = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(
            f"this is not an audit report ({cause}): give the JSON that `reactifact audit --json` printed"
        ) from error


def _rendering_entry(record: Mapping[str, Any]) -> ProvenanceEntry:
    return ProvenanceEntry(**{name: record[name] for name in _names(ProvenanceEntry) if name in record})


def _names(kind: type) -> list[str]:
    return [one.name for one in fields(kind)]


def report_to_markdown(report: AuditReport) -> str:
    """Return a report as Markdown: the answer, its sources, and what it rests on as a table."""
    answer = report.answer
    lines = [
        "# Audit report",
        "",
        f"- answer: {_code(answer.artifact_id)} ({_text(answer.data_type)}, version {answer.version})",
        f"- data hash: `{answer.sha256[:_SHORT]}` (sha256 `{answer.sha256}`)",
        f"- session: {_code(report.session_id) if report.session_id else 'none, the context stands alone'}"
        + (f", branch {_code(report.branch)}" if report.session_id else ""),
        f"- context version: {report.context_version}, hash `{report.context_sha256[:_SHORT]}`",
        f"- commit: {_code(report.commit) if report.commit else 'not committed'}",
        f"- state: {_code(report.state) if report.state else 'not committed'}",
        "",
        "## Sources",
        "",
    ]
    lines += [f"- {_text(source)}" for source in report.sources] or ["None of the artifacts names one."]
    lines += ["", "## Provenance", ""]
    header = ["artifact", "type", "data hash", "by", "commit", "code", "because of", "time"]
    lines += [_row(header), _row(["---"] * len(header))]
    lines += [_row(_cells(entry)) for entry in report.entries]
    if report.relations:
        lines += ["", "## Relations", ""]
        lines += [
            f"- {_code(source)} {_text(relation)} {_code(target)}"
            for source, relation, target in report.relations
        ]
    calls = [(entry, call) for entry in report.entries for call in entry.calls]
    if calls:
        lines += ["", "## Model calls", ""]
        lines += [
            f"- {_code(entry.artifact_id)}: {_text(call['model'] or 'unnamed model')}, request "
            f"`{call['request'][:_SHORT]}`, answer `{call['response'][:_SHORT]}`"
            for entry, call in calls
        ]
    return "\n".join(lines) + "\n"


def _cells(entry: ProvenanceEntry) -> list[str]:
    who = f"{_text(entry.author)} (directly)" if entry.is_direct else _text(entry.author)
    trigger = entry.trigger or {}
    kind = str(trigger.get("type", "")).removeprefix("artifact_")
    cause = f"{_text(kind)} {_code(str(trigger['artifact_id']))}" if trigger.get("artifact_id") else ""
    return [
        f"{_code(entry.artifact_id)} v{entry.version}",
        _text(entry.data_type),
        f"`{entry.sha256[:_SHORT]}`",
        who,
        f"`{entry.commit[:_SHORT]}`" if entry.commit else "",
        _text(entry.code),
        cause,
        _text(entry.committed_at or entry.updated_at),
    ]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    """Return a stored text so that it is shown as it is, whatever Markdown would make of it."""
    return "".join(f"\\{char}" if char in "\\`*_[]<>|#" else char for char in plain(text))


def _code(text: str) -> str:
    """Return a stored text as code, longer fences around what has backticks in it."""
    shown = plain(text).replace("|", "\\|")
    fence = "`"
    while fence in shown:
        fence += "`"
    padding = " " if "`" in shown else ""
    return f"{fence}{padding}{shown}{padding}{fence}"
