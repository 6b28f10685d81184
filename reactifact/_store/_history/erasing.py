"""A history made anew without some artifacts, or without some fields of them: every commit, tree and record.

Owns `Spec` (what goes, and what stands in its place) and `Rewriter`, a pure rewriting of commits. Change-Ids,
versions and their numbers stay; ids of commits do not. What is to go, and moving refs, is
`_sessions/erase`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from blake3 import blake3

from ...errors import MissingObject
from .. import canonical
from ..commits import (
    CommitRecord,
    commit_message,
    make_ledger_commit,
    own_record,
    read_roots,
    safe_text,
    state_hash,
    subject,
)
from ..layout import (
    BOOKKEEPING,
    Meta,
    ReadRecord,
    Roots,
    Waiting,
    decode_edges,
    encode_edges,
    file_path,
    versions_path,
    waiting_path,
)
from ..ledger import LedgerEntry, entries_of, joined_trees
from ..migrations import RECORD_FILE, current_tree
from ..names import encode_name
from ..object_db import Staging, blob_entry
from ..objects import TREE_MODE, CommitObject, Oid, TreeEntry
from ..trees import Path, lookup, subtree, update, walk

ACTION = "action:"
"""What the id of an action begins with; the rest is its key."""

_SHORTEST = 4  # characters of a value that is looked for in free text

Leaf = Callable[[str, Oid], Oid | None]


# -- what is to go --


@dataclass(frozen=True, slots=True)
class Cleared:
    """A payload without its personal fields, and the schema revision that it has."""

    payload: str
    revision: str


@dataclass(frozen=True)
class Spec:
    """What is erased from a session, and what stands in its place.

    `tokens` are the artifacts that go, each with what stands where its id stood. `cleared` are those that
    lose fields alone, by id and then by the id of a payload. `values` are texts of what goes, looked for in
    free text (messages, errors); `calls` are the keys of the model calls that it was part of.
    """

    tokens: Mapping[str, str]
    cleared: Mapping[str, Mapping[Oid, Cleared]] = field(default_factory=dict)
    values: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()

    @cached_property
    def name(self) -> str:
        """A name for what the erasure makes of a history: the same in every copy of the store."""
        parts = [*sorted(self.tokens.values()), *sorted(oid for one in self.cleared.values() for oid in one)]
        return blake3("\n".join(parts).encode()).hexdigest()[:16]

    @cached_property
    def texts(self) -> dict[str, str]:
        """What is replaced where a text is exactly this: ids and keys, each with its token."""
        found = dict(self.tokens)
        for name, token in self.tokens.items():
            if name.startswith(ACTION):
                found[name.removeprefix(ACTION)] = token
        return found

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        wanted: dict[str, str] = {}
        for name, token in self.texts.items():
            for form in (name, safe_text(name), encode_name(name)):
                wanted[form] = token
        for value in self.values:
            if len(value) >= _SHORTEST:
                wanted.setdefault(value, "[erased]")
        self.__dict__["_wanted"] = wanted
        parts = "|".join(re.escape(one) for one in sorted(wanted, key=len, reverse=True))
        return re.compile(rf"(?<![\w-])(?:{parts})(?![\w-])") if wanted else None

    def without(self, text: str) -> str:
        """Return a free text without what is erased."""
        pattern = self._pattern
        if pattern is None:
            return text
        wanted: dict[str, str] = self.__dict__["_wanted"]
        return pattern.sub(lambda match: wanted[match[0]], text)

    def without_ids(self, text: str) -> str:
        """Return a text of a record, where a word means what it says, without the ids of what is erased."""
        pattern = self._ids
        return text if pattern is None else pattern.sub(lambda match: self.tokens[match[0]], text)

    @cached_property
    def _ids(self) -> re.Pattern[str] | None:
        return named(self.tokens)

    def names(self, text: str) -> bool:
        """Tell whether a text names one of the artifacts, those that lose fields alone included."""
        return self._names is not None and self._names.search(text) is not None

    @cached_property
    def _names(self) -> re.Pattern[str] | None:
        return named({*self.texts, *self.cleared})

    def with_more(self, other: Spec) -> Spec:
        """Return a spec of what either names; what stands for an artifact stays."""
        cleared = {
            name: {**other.cleared.get(name, {}), **self.cleared.get(name, {})}
            for name in {**self.cleared, **other.cleared}
        }
        return Spec(
            {**other.tokens, **self.tokens},
            cleared,
            tuple(dict.fromkeys([*self.values, *other.values])),
            tuple(sorted({*self.calls, *other.calls})),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        return {
            "tokens": dict(self.tokens),
            "cleared": {
                name: {oid: asdict(one) for oid, one in found.items()} for name, found in self.cleared.items()
            },
            "values": list(self.values),
            "calls": list(self.calls),
        }

    @staticmethod
    def from_dict(record: Mapping[str, Any]) -> Spec:
        """Return the spec of a dictionary."""
        cleared = {
            name: {oid: Cleared(**one) for oid, one in found.items()}
            for name, found in record["cleared"].items()
        }
        return Spec(dict(record["tokens"]), cleared, tuple(record["values"]), tuple(record["calls"]))


def named(names: Iterable[str]) -> re.Pattern[str] | None:
    """Return what finds some ids in a text, as whole words; `None` for no ids."""
    parts = "|".join(re.escape(one) for one in sorted(names, key=len, reverse=True))
    return re.compile(rf"(?<![\w-])(?:{parts})(?![\w-])") if parts else None


def born(first: Meta) -> str:
    """Return what tells when an artifact was made, and nothing of what it holds."""
    return f"{first.sequence}\n{first.created_at}\n{first.created_by or ''}"


def token_of(mark: str, *, is_whole: bool) -> str:
    """Return what stands for an artifact from now on.

    The same in every copy of the store, so that two that erase it come to the same commits.
    """
    return f"{'erased' if is_whole else 'cleared'}-{blake3(mark.encode()).hexdigest()[:16]}"


# -- commits without it --


class Rewriter:
    """Makes commits anew without what a spec names; what does not change keeps its id.

    Commits are handed in after their parents, ledgers before the branches that name their commits.
    """

    def __init__(self, staged: Staging, spec: Spec) -> None:
        self.commits: dict[Oid, Oid] = {}
        """Every commit that was looked at, and what it is now."""
        self.first: set[Oid] = set()
        """Those that held something themselves while none of their parents did."""
        self.calls: set[str] = set()
        """The keys of the model calls of commits that touched what goes."""
        self.held = 0
        self.waiting = 0
        self._staged = staged
        self._spec = spec
        self._metas: dict[Oid, Oid | None] = {}
        self._trees: dict[tuple[str, Oid], Oid | None] = {}

    @property
    def changed(self) -> dict[Oid, Oid]:
        """The commits that are others now."""
        return {old: new for old, new in self.commits.items() if old != new}

    def add(self, commit: Oid) -> Oid:
        """Return what a commit is without what goes."""
        known = self.commits.get(commit)
        if known is None:
            known = self.commits[commit] = self._commit(commit)
            if known != commit and all(self.commits[p] == p for p in self._staged.commit(commit).parents):
                self.first.add(commit)
        return known

    def _commit(self, oid: Oid) -> Oid:
        found = self._staged.commit(oid)
        parents = tuple(self.commits[parent] for parent in found.parents)
        record = own_record(self._staged, oid)
        if record is None:
            return self._foreign(oid, found, parents)
        if record.kind == "ledger":
            return self._ledger(oid, found, record, parents)
        tree = current_tree(self._staged, oid)
        roots = read_roots(self._staged, oid)
        made_roots = self.roots(roots)
        made_record = self._record(record)
        if made_roots == roots and parents == found.parents and made_record == record:
            message = self._message(found, record, record)
            return (
                oid if message == found.message else self._staged.put_commit(replace(found, message=message))
            )
        made_record = replace(made_record, compactions=[self._spec.name])
        made_tree = self._grafted(tree, roots, made_roots)
        made = replace(
            found,
            tree=made_tree,
            parents=parents,
            message=self._message(found, record, made_record),
            record=made_record.header(made_tree, parents, state_hash(made_roots)),
        )
        return self._staged.put_commit(made)

    def _grafted(self, tree: Oid, old: Roots, new: Roots) -> Oid:
        edits: dict[Path, TreeEntry | None] = {(BOOKKEEPING, RECORD_FILE): None}  # of format 1
        for name in Roots._fields:
            was, now = getattr(old, name), getattr(new, name)
            if was != now:
                path = (name,) if name in _TOP else (BOOKKEEPING, name)
                edits[path] = None if now is None else TreeEntry(TREE_MODE, now)
        made = update(self._staged, tree, edits)
        return self._staged.put_tree({}) if made is None else made

    def _foreign(self, oid: Oid, found: CommitObject, parents: tuple[Oid, ...]) -> Oid:
        """A commit that somebody made with git: its tree and words, and no record that it carried along."""
        tops = {name: subtree(self._staged, found.tree, (name,)) for name in _TOP}
        below = {
            name: subtree(self._staged, found.tree, (BOOKKEEPING, name))
            for name in Roots._fields
            if name not in _TOP
        }
        roots = Roots(**tops, **below)
        tree = self._grafted(found.tree, roots, self.roots(roots))
        message = self._spec.without(found.message)
        if (tree, parents, message) == (found.tree, found.parents, found.message):
            carried = self._spec.names(found.record)
            return oid if not carried else self._staged.put_commit(replace(found, record=""))
        return self._staged.put_commit(replace(found, tree=tree, parents=parents, message=message, record=""))

    def _message(self, found: CommitObject, old: CommitRecord, new: CommitRecord) -> str:
        note = _NOTED.search(found.message)
        if found.record and found.message.partition("\n")[0] != subject(old):
            return self._spec.without(found.message)  # somebody amended it
        if old == new and found.message == self._spec.without(found.message):
            return found.message
        return commit_message(new, note[0].strip() if note is not None else "")

    # -- the record of a commit --------------------------------------------------------------------

    def _record(self, record: CommitRecord) -> CommitRecord:
        spec = self._spec
        gone = spec.tokens
        operations, erased = [], dict[str, str]()
        touched = any(one[0] in gone or one[0] in spec.cleared for one in [*record.reads, *record.writes])
        for operation in record.operations:
            names = [operation.get("artifact_id"), operation.get("target_id"), operation.get("id")]
            lost = next((name for name in names if name in gone), None)
            if lost is None:
                operations.append(self._operation(operation))
                touched = touched or operation.get("artifact_id") in spec.cleared
                continue
            touched = True
            erased[gone[lost]] = str(operation.get("data_type") or erased.get(gone[lost], ""))
        trigger = record.trigger
        if trigger is not None:
            name = trigger.get("artifact_id")
            touched = touched or name in gone or name in spec.cleared
            trigger = self._plain(trigger)
        details = self._plain(record.details)
        if "delivered" in details:
            details["delivered"] = [spec.texts.get(key, key) for key in details["delivered"]]
        if touched:
            self.calls.update(str(call.get("request")) for call in details.get("calls", ()))
            details.pop("calls", None)
        if erased:
            known = {one["token"]: one["type"] for one in details.get("erased", ())}
            details["erased"] = [{"token": t, "type": k} for t, k in sorted({**known, **erased}.items())]
        fork = record.fork
        if fork is not None and fork.get("commit") in self.commits:
            fork = {**fork, "commit": self.commits[str(fork["commit"])]}
        return replace(
            record,
            message="" if touched and record.kind in _SPEAKING else spec.without(record.message),
            trigger=trigger,
            operations=operations,
            reads=[[gone[r[0]], -1] if r[0] in gone else r for r in record.reads],
            writes=[one for one in record.writes if one[0] not in gone],
            ledger=None if record.ledger is None else self.commits.get(record.ledger, record.ledger),
            missing_ledgers=[self.commits.get(one, one) for one in record.missing_ledgers],
            fork=fork,
            details=details,
        )

    def _operation(self, operation: dict[str, Any]) -> dict[str, Any]:
        cleared = self._spec.cleared.get(str(operation.get("artifact_id")))
        if cleared is None:
            return operation
        payload = operation.get("payload")
        if payload is not None:
            made = cleared.get(str(payload))
            return operation if made is None else {**operation, **self._written(made)}
        if "data" not in operation:
            return operation
        # of a version that no tree holds
        oid = self._staged.put("blob", canonical.encode(operation["data"]))
        made = cleared.get(oid)
        if made is None:
            return operation
        return {**operation, "data": canonical.decode(made.payload.encode()), "revision": made.revision}

    def _written(self, made: Cleared) -> dict[str, Any]:
        return {"payload": self._staged.put("blob", made.payload.encode()), "revision": made.revision}

    def _plain(self, value: Any) -> Any:
        """Return JSON data without what goes: exact names, ids of commits, texts that hold a name."""
        if isinstance(value, str):
            return self.commits.get(value) or self._spec.without_ids(value)
        if isinstance(value, list):
            return [self._plain(item) for item in value]
        if isinstance(value, dict):
            name = value.get("artifact_id")
            lost = _DATA if name in self._spec.tokens or name in self._spec.cleared else ()
            return {key: self._plain(item) for key, item in value.items() if key not in lost}
        return value

    # -- the tree of a commit ----------------------------------------------------------------------

    def roots(self, roots: Roots) -> Roots:
        """Return the subtrees of a commit without what goes."""
        return roots._replace(
            artifacts=self._once("artifacts", roots.artifacts, self._artifacts),
            relations=self._once("relations", roots.relations, self._relations),
            outbox=self._once("outbox", roots.outbox, self._outbox),
            meta=self._once("meta", roots.meta, self._bookkeeping),
            versions=self._once("versions", roots.versions, self._versions),
            held=self._once("held", roots.held, self._kept_results),
            queue=self._once("queue", roots.queue, self._queue),
        )

    def _once(self, kind: str, root: Oid | None, make: Callable[[Oid], Oid | None]) -> Oid | None:
        if root is None:
            return None
        if (kind, root) not in self._trees:
            self._trees[kind, root] = make(root)
        return self._trees[kind, root]

    def _leaves(self, kind: str, root: Oid, leaf: Leaf) -> Oid | None:
        """Return a tree with each file put through `leaf`; every subtree is looked at once."""

        def mapped(tree: Oid) -> Oid | None:
            before = self._staged.tree(tree)
            after: dict[str, TreeEntry] = {}
            for name, entry in before.items():
                is_tree = entry.mode == TREE_MODE
                new = self._once(kind, entry.oid, mapped) if is_tree else leaf(name, entry.oid)
                if new is not None:
                    after[name] = TreeEntry(entry.mode, new)
            if after == before:
                return tree
            return self._staged.put_tree(after) if after else None

        return mapped(root)

    def _artifacts(self, root: Oid) -> Oid | None:
        edits: dict[Path, TreeEntry | None] = {}
        for folder in self._staged.tree(root):
            for name in self._spec.tokens:
                path = (folder, *file_path(name))
                if lookup(self._staged, root, path) is not None:
                    edits[path] = None
            for name, cleared in self._spec.cleared.items():
                path = (folder, *file_path(name))
                entry = lookup(self._staged, root, path)
                made = None if entry is None else cleared.get(entry.oid)
                if made is not None:
                    edits[path] = blob_entry(self._staged.put("blob", made.payload.encode()))
        return update(self._staged, root, edits)

    def _relations(self, root: Oid) -> Oid | None:
        def leaf(_: str, oid: Oid) -> Oid | None:
            source, edges = decode_edges(self._staged.read(oid).data)
            if source in self._spec.tokens:
                return None
            left = tuple(edge for edge in edges if edge.target not in self._spec.tokens)
            if left == edges:
                return oid
            return self._staged.put("blob", encode_edges(source, left)) if left else None

        return self._leaves("relations-file", root, leaf)

    def _outbox(self, root: Oid) -> Oid | None:
        edits: dict[Path, TreeEntry | None] = {
            file_path(name): None
            for name in self._spec.tokens
            if lookup(self._staged, root, file_path(name)) is not None
        }
        return update(self._staged, root, edits)

    def _bookkeeping(self, root: Oid) -> Oid | None:
        return self._leaves("meta-file", root, lambda _, oid: self._meta(oid))

    def _versions(self, root: Oid) -> Oid | None:
        edits: dict[Path, TreeEntry | None] = {}
        for name in (*self._spec.tokens, *self._spec.cleared):
            folder = versions_path(name)
            if subtree(self._staged, root, folder) is None:
                continue
            edits[folder] = None
            if name in self._spec.cleared:
                kept = self._kept_versions(subtree(self._staged, root, folder))
                edits[folder] = None if kept is None else TreeEntry(TREE_MODE, kept)

        def leaf(name: str, oid: Oid) -> Oid | None:
            return self._meta(oid) if name == "meta.json" else oid

        edited = update(self._staged, root, edits)
        return None if edited is None else self._leaves("versions-file", edited, leaf)

    def _kept_versions(self, folder: Oid | None) -> Oid | None:
        edits: dict[Path, TreeEntry | None] = {}
        for path, oid in walk(self._staged, folder):
            made = self._meta(oid) if path[-1] == "meta.json" else None
            if made is not None and made != oid:
                edits[path] = blob_entry(made)
                edits[*path[:-1], "payload.json"] = blob_entry(
                    Meta.decode(self._staged.read(made).data).payload
                )
        return update(self._staged, folder, edits)

    def _meta(self, oid: Oid) -> Oid | None:
        """Return the bookkeeping of a version, with that of all versions before it."""
        waiting = [oid]
        while waiting:
            top = waiting[-1]
            if top in self._metas:
                waiting.pop()
                continue
            try:
                meta = Meta.decode(self._staged.read(top).data)
            except MissingObject:
                self._metas[top] = top  # trimmed, and gone
                continue
            if meta.previous is not None and meta.previous not in self._metas:
                waiting.append(meta.previous)
                continue
            self._metas[top] = self._made_meta(top, meta)
            made = self._metas[top]
            if made is not None:
                self._metas.setdefault(made, made)
        return self._metas[oid]

    def _made_meta(self, oid: Oid, meta: Meta) -> Oid | None:
        gone = self._spec.tokens
        if meta.id in gone:
            return None
        reads = tuple(ReadRecord(gone[r.artifact_id], -1) if r.artifact_id in gone else r for r in meta.reads)
        previous = None if meta.previous is None else self._metas[meta.previous]
        made = replace(meta, reads=reads, previous=previous)
        cleared = self._spec.cleared.get(meta.id, {}).get(meta.payload)
        if cleared is not None:
            data = cleared.payload.encode()
            made = replace(
                made,
                payload=self._staged.put("blob", data),
                content_hash=canonical.content_hash(data),
                revision=cleared.revision,
            )
        return oid if made == meta else self._staged.put("blob", made.encode())

    def _kept_results(self, root: Oid) -> Oid | None:
        def leaf(_: str, oid: Oid) -> Oid | None:
            if not self._spec.names(self._staged.read(oid).data.decode("utf-8", "replace")):
                return oid
            self.held += 1
            return None

        return self._leaves("held-file", root, leaf)

    def _queue(self, root: Oid) -> Oid | None:
        edits: dict[Path, TreeEntry | None] = {}
        for path, oid in walk(self._staged, root):
            one = Waiting.decode(self._staged.read(oid).data)
            if one.event.get("artifact_id") in self._spec.tokens:
                self.waiting += 1
                edits[path] = None
                continue
            failures = one.failures and {
                agent: {**said, "error": self._spec.without(said["error"])}
                for agent, said in one.failures.items()
            }
            if failures != one.failures:
                made = one._replace(failures=failures)
                data = made.encode()
                edits[path] = None
                edits[waiting_path(made, data)] = blob_entry(self._staged.put("blob", data))
        return update(self._staged, root, edits)

    # -- the ledger --------------------------------------------------------------------------------

    def _ledger(self, oid: Oid, found: CommitObject, record: CommitRecord, parents: tuple[Oid, ...]) -> Oid:
        staged, spec = self._staged, self._spec
        root = entries_of(staged, oid)
        if len(parents) > 1:  # what both sides know together, as the check of a ledger wants it
            made_root = joined_trees(staged, *(entries_of(staged, parent) for parent in parents))
        else:
            made_root = self._once("ledger", root, self._entries)
        details = self._plain(record.details)
        if "actions" in details:
            details["actions"] = sorted(details["actions"])
        made = replace(record, message=spec.without(record.message), details=details)
        if made_root == root and parents == found.parents and made == record:
            return oid
        # branches here and in clones name the commit by the id it had
        details["replaces"] = sorted({*details.get("replaces", ()), oid})
        return make_ledger_commit(staged, made, made_root, parents)

    def _entries(self, root: Oid) -> Oid | None:
        edits: dict[Path, TreeEntry | None] = {}
        for name, token in self._spec.tokens.items():
            known = lookup(self._staged, root, file_path(name))
            if known is not None:
                entry = LedgerEntry.decode(self._staged.read(known.oid).data)
                made = replace(entry, action_id=token, intent="", error=None, refused=())
                edits[file_path(name)] = None
                edits[file_path(token)] = blob_entry(self._staged.put("blob", made.encode()))

        def leaf(_: str, oid: Oid) -> Oid:
            entry = LedgerEntry.decode(self._staged.read(oid).data)
            error = None if entry.error is None else self._spec.without(entry.error)
            return (
                oid
                if error == entry.error
                else self._staged.put("blob", replace(entry, error=error).encode())
            )

        edited = update(self._staged, root, edits)
        return None if edited is None else self._leaves("ledger-file", edited, leaf)


_TOP = ("artifacts", "relations", "outbox", "thread")
_DATA = ("data", "new_data", "payload")
_SPEAKING = ("direct", "agent", "edit", "merge")
"""Kinds of commits whose message somebody wrote, who may have said in it what goes."""
_NOTED = re.compile(r"(?<=\n\n)Stands for all commits up to version \d+\.(?=\n)")
