"""Commits as reactifact writes them: the record in a header, the tree around it, the message.

Owns the shape of the header `reactifact`, the subject, body and trailers made from it, and the way
back from a commit to its record. Programs trust the record; the message is for people. Format 1 kept
the record in the tree, as `.reactifact/commit.json`, which is still read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from types import NoneType
from typing import Any, NamedTuple

from blake3 import blake3
from pydantic_core import from_json

from ..errors import DamagedRef, NotAdopted, StoreError
from . import canonical
from .canonical import refusing_damage, typed
from .layout import ATTRIBUTES, BOOKKEEPING, Roots, Waiting
from .migrations import FORMAT_FILE, RECORD_FILE, current_record, current_tree, format_file, is_current
from .names import is_ledger_ref
from .object_db import Objects, Staging, blob_entry
from .objects import TREE_MODE, CommitObject, GitObject, Oid, Signature, TreeEntry, object_id
from .trees import lookup, subtree, walk

COMMITTER = ("reactifact", "reactifact@reactifact.invalid")
_SUBJECT = 72  # characters: what `git log --oneline` and git hosts show whole
_LIKE_TRAILER = re.compile(r"[A-Za-z0-9-]+\s*[:=#]|\(cherry picked from ")
_CHANGE = re.compile(r'"change":"([^"\\]*)"')
_ROLES = {"agent": "agent", "ledger": "outbox", "root": "reactifact", "queue": "reactifact"}


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """What one commit did, and what follows from it for the next."""

    change: str  # Change-Id: stable when history is squashed
    kind: str  # root, direct, agent, merge, queue, edit, ledger, checkpoint, writes
    author: str
    timestamp: str
    session: str = ""  # session and branch are filled in by the line that commits
    branch: str = ""
    message: str = ""  # what the author says; an empty one is made from the operations
    context_version: int | None = None  # None for a commit that carries no version
    version: int = 0  # versioned commits up to here
    head: str | None = None  # Change-Id of the last versioned commit up to here
    parent_change: str | None = None  # the versioned commit before this one
    depth: int = 0  # longest way to a root, in commits
    generation: int = 0
    run_id: str = ""
    code: str = ""
    trigger: dict[str, Any] | None = None
    operations: list[dict[str, Any]] = field(default_factory=list)
    reads: list[list[Any]] = field(default_factory=list)
    listings: list[list[Any]] = field(default_factory=list)
    writes: list[list[Any]] = field(default_factory=list)
    next_sequence: int = 0
    next_event: int = 0  # place of the next event of the queue
    is_watched: bool = False  # a runtime with agents has been over the line
    ledger: Oid | None = None
    missing_ledgers: list[Oid] = field(default_factory=list)  # named before, and not in the ledger by now
    fork: dict[str, Any] | None = None
    is_session: bool = False  # the line was opened as a session, not only saved as a branch
    baseline: int = 0  # the highest version that a compaction of this line has folded
    compactions: list[str] = field(default_factory=list)  # those that the history builds on
    details: dict[str, Any] = field(default_factory=dict)

    def header(self, tree: Oid, parents: Sequence[Oid], state: str | None) -> str:
        """Return the extra header of a commit: what it did, and the tree and parents that this is about.

        `state` is the `state_hash` of that tree. For audits: the tree's id covers all that stands there.
        """
        said = {name: value for name, value in zip(_FIELDS, _VALUES(self), strict=True) if value}
        said["tree"] = tree
        if parents:
            said["parents"] = list(parents)
        if state:
            said["state"] = state
        return canonical.one_line(said)

    @staticmethod
    @refusing_damage("the record of a commit")
    def decode(data: bytes) -> CommitRecord:
        """Return the record in a header, or in the bytes of a `commit.json` of format 1."""
        record: Any = canonical.decode(data)
        return _typed_record(record)


_LEDGER = '"kind":"ledger"'
_FIELDS = tuple(f.name for f in fields(CommitRecord))
_VALUES = attrgetter(*_FIELDS)


def make_commit(
    objects: Staging,
    record: CommitRecord,
    roots: Roots,
    parents: Sequence[Oid],
    *,
    is_on_ours: bool = False,
) -> Oid:
    """Stage the tree and the commit of one record and return the commit's id.

    With `is_on_ours` the first parent is a commit that this function made here: its tree holds the files that
    are in every commit, so that they are not staged again.
    """
    if not is_on_ours:
        objects.put("blob", format_file())
        objects.put("blob", ATTRIBUTES)
    hidden, top = {FORMAT_FILE: _FORMAT}, {".gitattributes": _ATTRIBUTES}
    for entries, names in ((hidden, _HIDDEN), (top, _TOP)):
        for name in names:
            tree = getattr(roots, name)
            if tree is not None:
                entries[name] = tuple.__new__(TreeEntry, (TREE_MODE, tree))
    top[BOOKKEEPING] = tuple.__new__(TreeEntry, (TREE_MODE, objects.put_tree(hidden)))
    return _commit(objects, record, top, parents, state_hash(roots))


_FORMAT, _ATTRIBUTES = (blob_entry(object_id("blob", data)) for data in (format_file(), ATTRIBUTES))
_HIDDEN = ("meta", "versions", "held", "queue")
_TOP = ("artifacts", "relations", "outbox", "thread")


def make_ledger_commit(
    objects: Staging, record: CommitRecord, ledger: Oid | None, parents: Sequence[Oid]
) -> Oid:
    """Stage the tree and the commit of one record of a session's ledger."""
    top = {} if ledger is None else {"ledger": TreeEntry(TREE_MODE, ledger)}
    return _commit(objects, record, top, parents, None)


def _commit(
    objects: Staging,
    record: CommitRecord,
    top: dict[str, TreeEntry],
    parents: Sequence[Oid],
    state: str | None,
) -> Oid:
    tree = objects.put_tree(top)
    when = int(datetime.fromisoformat(record.timestamp).timestamp())
    commit = CommitObject(
        tree=tree,
        parents=tuple(parents),
        author=author_signature(record, when),
        committer=Signature(*COMMITTER, when),
        message=_message(record),
        record=record.header(tree, parents, state),
    )
    return objects.put_commit(commit)


def operation_payload(objects: Objects, operation: Mapping[str, Any]) -> bytes:
    """Return the payload that an operation of a record wrote. Raises `KeyError` for one that writes none.

    One that no tree of the commit holds stands in the operation itself, as `data`.
    """
    oid = operation["payload"]
    return canonical.encode(operation["data"]) if oid is None else objects.read(oid).data


def read_record(objects: Objects, commit: Oid) -> CommitRecord | None:
    """Return the record of a commit, or `None` for one that reactifact did not make.

    Raises `FormatTooNew`, and `StoreError` for an older format that no step leads on from.
    """
    return _record_of(objects, objects.commit(commit))


def _record_of(objects: Objects, found: CommitObject) -> CommitRecord | None:
    tree = found.tree
    if found.record:
        if not is_sealed(found):
            return None  # carried along by an amend
        if _LEDGER in found.record and (of_ledger := _in_header(found.record)).kind == "ledger":
            return of_ledger  # its tree names no format
        if is_current(objects, tree):
            return _in_header(found.record)
        return CommitRecord.decode(current_record(objects, tree, found.record.encode()))
    entry = lookup(objects, tree, (BOOKKEEPING, RECORD_FILE))  # of format 1
    if entry is not None:
        return CommitRecord.decode(current_record(objects, tree, objects.read(entry.oid).data))
    entry = lookup(objects, tree, (RECORD_FILE,))
    data = None if entry is None else objects.read(entry.oid).data
    try:
        record = None if data is None else CommitRecord.decode(data)
    except StoreError:
        return None  # somebody else's file of that name
    return record if record is not None and record.kind == "ledger" else None


def earlier_record(objects: Objects, commit: Oid) -> CommitRecord | None:
    """Return the record of a commit on which one stands that was read: what it says of its format is right.

    A record in a header is in today's format, or in a later one, and nothing earlier is on top of that. So
    its trees are not looked at.
    """
    found = objects.commit(commit)
    return _in_header(found.record) if found.record and is_sealed(found) else read_record(objects, commit)


class Listed(NamedTuple):
    """What tells one commit of a line from the others; the rest of its record is decoded when asked for."""

    change: str
    parent_change: str | None
    context_version: int | None
    version: int
    record: CommitRecord | str  # a text is the header, not decoded yet

    def whole(self) -> CommitRecord:
        """Return the record. Raises `StoreError` for one that is damaged."""
        return _in_header(self.record) if isinstance(self.record, str) else self.record


def listed_record(objects: Objects, commit: Oid, item: GitObject) -> Listed | None:
    """Return what is needed to list a commit, which `item` holds; `earlier_record` returns the whole.

    Raises `StoreError` for a header that is not JSON, or says another type of what is returned.
    """
    match = _AS_WRITTEN.match(item.data)
    said = None if match is None else _quickly_said(match[3])
    if match is None or said is None:
        record = earlier_record(objects, commit)
        if record is None:
            return None
        return Listed(record.change, record.parent_change, record.context_version, record.version, record)
    parents = match[2].decode().split()[1::2]
    if said.get("tree") != match[1].decode() or said.get("parents", []) != parents:
        return None  # carried along by an amend
    found = Listed(
        said.get("change", ""),
        said.get("parent_change"),
        said.get("context_version"),
        said.get("version", 0),
        match[3].decode(),
    )
    kinds = (type(found.change), type(found.parent_change), type(found.context_version), type(found.version))
    if kinds not in _LISTED:
        found.whole()  # refuses it
    return found


_AS_WRITTEN = re.compile(
    rb"tree ([0-9a-f]{40})\n((?:parent [0-9a-f]{40}\n)*)"
    rb"author [^\n]*\ncommitter [^\n]*\nreactifact (\{[^\n]*\})\n"
)
_LISTED = {(str, p, c, int) for p in (str, NoneType) for c in (int, NoneType)}


def _quickly_said(header: bytes) -> dict[str, Any] | None:
    """Return what a header says, `None` for one that only the parser of `_said` may judge."""
    try:
        said: Any = from_json(header, allow_inf_nan=False)
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def nearest_record(objects: Objects, commit: Oid) -> CommitRecord | None:
    """Return the record of a commit, else of the nearest one of ours on its line of first parents."""
    records = (read_record(objects, oid) for oid in down_from(objects, commit))
    return next(filter(None, records), None)


def down_from(objects: Objects, commit: Oid | None) -> Iterator[Oid]:
    """Yield a commit and its first parents; each is read when the one below it is asked for."""
    while commit is not None:
        yield commit
        commit = next(iter(objects.commit(commit).parents), None)


def own_record(objects: Objects, commit: Oid) -> CommitRecord | None:
    """Return the record of a commit that reactifact made, `None` for one of anybody else.

    A record counts for the tree and the parents that it names: an amended commit carries it along, and
    is somebody's own unless the message alone is another. In format 1, which kept it in the tree, the
    trailer in the message tells a commit made by hand on a checkout.
    """
    found = objects.commit(commit)
    record = _record_of(objects, found)
    if found.record:
        return record
    if record is None or f"\nChange-Id: {safe_text(record.change)}\n" not in found.message:
        return None
    return record


_DECODED = 64  # headers of the commits looked at last; each may be as large as what its commit did


@lru_cache(maxsize=_DECODED)
def _in_header(header: str) -> CommitRecord:
    return _decoded(header.encode())


@refusing_damage("the record of a commit")
def _decoded(data: bytes) -> CommitRecord:
    said = _said(data.decode())
    return _typed_record(said)


def _typed_record(said: Mapping[str, Any]) -> CommitRecord:
    record = typed(CommitRecord(**{name: said[name] for name in _FIELDS if name in said}))
    datetime.fromisoformat(record.timestamp)  # one that is no time is damage, wherever it is asked for
    return record


@lru_cache(maxsize=_DECODED)
def _said(header: str) -> Mapping[str, Any]:
    return _plain(header.encode())


@refusing_damage("the record of a commit")
def _plain(data: bytes) -> dict[str, Any]:
    record: Any = canonical.decode(data)
    return {**record, "tree": record["tree"], "parents": record.get("parents", [])}


def is_sealed(commit: CommitObject) -> bool:
    """Tell whether the header of a commit is about exactly its tree and its parents. Raises `StoreError`."""
    said = _said(commit.record)
    return bool(said["tree"] == commit.tree and said["parents"] == list(commit.parents))


def before_amend(objects: Objects, commit: CommitObject) -> CommitObject | None:
    """Return the commit of ours that somebody amended, `None` for any other, or where its tree is gone."""
    if not commit.record:
        return None
    try:
        said = _said(commit.record)
        if said["tree"] == commit.tree or said["parents"] != list(commit.parents):
            return None
        objects.tree(said["tree"])
        record = CommitRecord.decode(current_record(objects, said["tree"], commit.record.encode()))
    except StoreError:
        return None
    when = int(datetime.fromisoformat(record.timestamp).timestamp())
    return replace(
        commit,
        tree=said["tree"],
        author=author_signature(record, when),
        committer=Signature(*COMMITTER, when),
        message=_message(record),
    )


def said_state(commit: CommitObject) -> str | None:
    """Return the `State` that a commit says of itself, in its header, or in its message in format 1."""
    if commit.record:
        return _said(commit.record).get("state")
    _, found, rest = commit.message.rpartition("\nState: ")
    return rest.partition("\n")[0] if found else None


def said_change(commit: CommitObject) -> str:
    """Return the Change-Id that a commit says of itself, its record being left unread; empty for none."""
    if commit.record:
        found = _CHANGE.search(commit.record)  # of the record's own keys with that name it comes first
        return found[1] if found else ""
    _, found_trailer, rest = commit.message.rpartition("\nChange-Id: ")  # format 1
    return rest.partition("\n")[0] if found_trailer else ""


def says_version(commit: CommitObject) -> bool:
    """Tell whether a commit says of itself that it carries a version."""
    if commit.record:
        return '"context_version":' in commit.record
    return "\nContext-Version: " in commit.message  # format 1


def require_record(objects: Objects, commit: Oid, what: str) -> CommitRecord:
    """Return the record of a commit. Raises `StoreError`, naming `what`, where it has none."""
    record = own_record(objects, commit)
    if record is None:
        raise _not_ours(commit, what)
    return record


def require_kind(objects: Objects, commit: Oid, ref: str, *, is_ledger: bool = False) -> None:
    """Refuse a commit of a ledger on a branch, and any other on a ledger. Raises `DamagedRef`."""
    top = objects.tree(objects.commit(commit).tree)
    found = BOOKKEEPING not in top and ("ledger" in top or RECORD_FILE in top or not top)
    if found and not top:  # a ledger that stands for a lost one and holds nothing
        record = own_record(objects, commit)
        found = record is not None and record.kind == "ledger"
    if found is not is_ledger:
        raise DamagedRef(
            ref,
            "it",
            f"points at {commit[:12]}, a commit of another kind: {'no' if is_ledger else 'a'} ledger",
            f"set it with `git update-ref {ref} <commit>` to what it was, from a clone, a backup"
            f"{', the trailer `Ledger` of a branch' if is_ledger else ''} or `git fsck --lost-found`",
        )


def _not_ours(commit: Oid, what: str) -> NotAdopted:
    """Say what to do about a commit that somebody made with git."""
    if is_ledger_ref(what):
        way_out = "deliveries are recorded by reactifact alone; move the ref back to a commit that it made"
    else:
        way_out = (
            "opening the branch to write (SessionStore.open, BranchStore.load_branch) adopts it; a commit "
            "that is to be looked at must be one of reactifact's (see `git log`)"
        )
    return NotAdopted(f"{what} points at {commit[:12]}, a commit made with git: {way_out}", commit)


def read_roots(objects: Objects, commit: Oid, what: str = "") -> Roots:
    """Return the subtrees of a commit. Raises as `read_record` does, saying `what` it stands on, if given."""
    tree = current_tree(objects, commit, what)
    names = ("artifacts", "relations", "outbox")
    top = [subtree(objects, tree, (name,)) for name in names]
    hidden = [subtree(objects, tree, (BOOKKEEPING, name)) for name in ("meta", "versions", "held", "queue")]
    return Roots(*top, *hidden)._replace(thread=subtree(objects, tree, ("thread",)))


def read_queue(objects: Objects, commit: Oid) -> list[Waiting]:
    """Return the events that wait at a commit, in order. Raises as `read_record` does."""
    found = [
        Waiting.decode(objects.read(oid).data) for _, oid in walk(objects, read_roots(objects, commit).queue)
    ]
    return sorted(found, key=lambda one: (one.order, one.behind))


def check_state(objects: Objects, commit: Oid, roots: Roots, what: str) -> None:
    """Refuse a commit whose payloads were changed by hand under its old message (an amend).

    A state of an older format is another one by now; what it was is what its own tree says.

    Raises `StoreError`.
    """
    own = objects.commit(commit).tree
    if own != current_tree(objects, commit):
        roots = Roots(*(subtree(objects, own, (name,)) for name in ("artifacts", "relations")))
    said = said_state(objects.commit(commit))
    if said is not None and said != state_hash(roots):
        raise StoreError(
            f"{what} points at {commit[:12]}, a commit of reactifact's that was changed by hand: its state "
            f"is not the one it names; move the ref back to what it was, and make the change "
            f"with BranchStore.edit"
        )


def state_hash(roots: Roots) -> str:
    """Return the `State` of a commit: blake3 over the subtree ids that a merge compares."""
    text = f"artifacts {roots.artifacts or '-'}\nrelations {roots.relations or '-'}\n"
    return blake3(text.encode()).hexdigest()


# -- what people read ------------------------------------------------------------------------


def author_signature(record: CommitRecord, when: int) -> Signature:
    """Return the git author of a record: the agent, or whoever made a direct change."""
    return tuple.__new__(Signature, (*_author(record.author, record.kind), when))


@lru_cache(maxsize=256)
def _author(author: str, kind: str) -> tuple[str, str]:
    name, _, rest = author.partition("<")
    email = rest.rstrip("> ") if rest.rstrip().endswith(">") else ""
    if not email or any(c in email for c in "<> \n\0"):
        name = author
        email = f"{_ROLES.get(kind, 'application')}@reactifact.invalid"
    return safe_text(name.strip(), "<>") or "unnamed", safe_text(email)


@lru_cache(maxsize=4096)
def safe_text(text: str, also: str = "") -> str:
    """Percent-encode what could break or forge a commit message: control characters, `%`,
    a dash or blank at the start, and the characters in `also`."""
    if text.isprintable() and "%" not in text and text[:1] not in ("-", " ") and not also:
        return text
    out = []
    for index, char in enumerate(text):
        edge = char in "- " and index == 0
        if char == "%" or char in also or edge or not char.isprintable():
            out.append("".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass")))
        else:
            out.append(char)
    return "".join(out)


def subject(record: CommitRecord) -> str:
    """Return the sentence that `git log --oneline` shows, of at most 72 characters."""
    return _cut(_sentence(record, _phrases(record)))[0]


def _sentence(record: CommitRecord, phrases: Sequence[str]) -> str:
    if record.message:
        said = safe_text(record.message.strip().split("\n")[0])
        whole = f"{said}, {', '.join(phrases)}" if record.kind == "queue" and phrases else said
        return whole if len(whole) <= _SUBJECT else said
    who = safe_text(record.author.partition("<")[0].strip()) or "unnamed"
    whole = f"{who}: {', '.join(phrases) or 'nothing to record'}"
    if len(whole) <= _SUBJECT:
        return whole
    for shown in range(len(phrases) - 1, 0, -1):
        some = f"{who}: {', '.join(phrases[:shown])} and {len(phrases) - shown} more"
        if len(some) <= _SUBJECT:
            return some
    return f"{who}: {len(phrases)} changes" if len(phrases) > 1 else whole


def _phrases(record: CommitRecord) -> list[str]:
    """Return what a commit did, in words; last the intents that it takes from the outbox, and what went."""
    found = [_phrase(operation) for operation in record.operations] if record.operations else []
    if record.details:
        found += [f"delivered {_shown(key)}" for key in record.details.get("delivered", ())]
        found += [f"erased {_class(one['type'])}{one['token']}" for one in record.details.get("erased", ())]
    return found


def _class(type_id: str) -> str:
    name = safe_text(type_id.rpartition(".")[2])
    return f"{name} " if name else ""


def _cut(text: str) -> tuple[str, bool]:
    """Return a text that fits into a subject, and whether something of it was cut off."""
    return (text, False) if len(text) <= _SUBJECT else (text[: _SUBJECT - 3] + "...", True)


def _phrase(operation: dict[str, Any]) -> str:
    kind = str(operation.get("type", ""))
    name = _shown(operation.get("artifact_id", ""))
    if kind in ("link", "unlink"):
        relation, target = operation.get("relation") or "any", operation.get("target_id") or "any"
        return f"{kind} {name} {_shown(relation)} {_shown(target)}"
    if operation.get("action"):
        return f"act {_shown(operation['action'])}"
    version = operation.get("version")
    if kind in ("create", "update") and version is not None:
        # a create of what was there is an update, or changed nothing
        kind = "keep" if operation.get("unchanged") else "create" if version == 0 else "update"
    class_name = str(operation.get("data_type", "")).rpartition(".")[2]
    return f"{kind} {safe_text(class_name)} {name}" if class_name else f"{kind} {name}"


def _shown(part: object) -> str:
    """Return a name as a message shows it: not too long, and made safe."""
    text = str(part)
    if len(text) > 80:
        text = text[:77] + "..."
    is_safe = text.isprintable() and "%" not in text and text[:1] not in ("-", " ")  # as `safe_text` finds it
    return text if is_safe else safe_text(text)


def _message(record: CommitRecord) -> str:
    """Return the message: subject, a body only where that says more, trailers."""
    phrases = _phrases(record)
    sentence = _sentence(record, phrases)
    shown, is_cut = _cut(sentence)
    lines = record.message.strip().split("\n") if "\n" in record.message else []
    said = [safe_text(line) for line in lines[1:] if line.strip()] if lines else []
    if is_cut and record.message:
        said.insert(0, sentence)
    is_told = not is_cut and sentence.endswith((": " + ", ".join(phrases), ", " + ", ".join(phrases)))
    body = said if is_told and phrases else said + phrases
    trailers = [f"{key}: {safe_text(value)}" for key, value in trailers_of(record) if value]
    parts = [shown]
    if body:
        parts.append("\n".join([_unlike_trailer(line) for line in body]))
    if trailers:
        parts.append("\n".join(trailers))
    return "\n\n".join(parts) + "\n"


def _unlike_trailer(line: str) -> str:
    """Return a line of a body, indented where git would read it as a trailer."""
    return f"  {line}" if _LIKE_TRAILER.match(line) else line


def trailers_of(record: CommitRecord) -> list[tuple[str, str]]:
    """Return the trailers of a commit, which are for people: all else stands in its record."""
    trigger = record.trigger or {}
    cause = f"{trigger.get('type', '')} {trigger.get('artifact_id', '')}".strip()
    return [
        ("Agent", record.author if record.kind == "agent" else ""),
        ("Trigger", cause),
        ("Run", record.run_id),
    ]


def commit_message(record: CommitRecord, note: str = "") -> str:
    """Return the message of a record, with a paragraph more below its subject where there is a note."""
    return with_note(_message(record), note) if note else _message(record)


def with_note(message: str, note: str) -> str:
    """Return a message with a paragraph more below its subject."""
    head, _, rest = message.rstrip("\n").partition("\n\n")
    return "\n\n".join(part for part in (head, note, rest) if part) + "\n"
