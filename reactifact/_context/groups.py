"""Artifacts grouped by a key: the index behind consumes that look at several types at once.

Owns `Rules` (who belongs to a group, and when it is complete) and `GroupIndex`, which stands at one
set of subtrees and moves to the next by comparing the two, so that an event costs what changed and
not what exists. Nothing here notes a read; what counts as read is the consume's to say.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import BaseModel

from .._store.layout import Intent, Meta, file_path
from .._store.ledger import Ledger, LedgerEntry
from .._store.names import encode_name
from .._store.object_db import Objects
from .._store.objects import Oid
from .._store.state import State, Stored
from .._store.trees import Path, compare, lookup, subtree, walk
from ..errors import MissingObject, TypeNotFoundError, add_note
from ..interrupt import PendingAction
from ..types.registry import resolve
from .working_copy import WorkingCopy

DataCondition = Callable[[Any], bool]
"""A condition on the data of an artifact, not on the artifact."""

Key = Callable[[Any], Hashable]

_KNOWN_VERSIONS = 32_768  # a consume keeps what it said of so many versions: all branches share it


class Role(NamedTuple):
    """A part that a group must have (or, `is_forbidden`, must not have)."""

    model: type[BaseModel]
    condition: DataCondition | None
    is_forbidden: bool


class Facts(NamedTuple):
    """What the rules say of one version: the roles it fills, and its group if it fills any."""

    roles: tuple[int, ...]
    key: Hashable


_OUTSIDE = Facts((), None)


class Rules:
    """Who belongs to which group, and when a group counts."""

    def __init__(self, key: Key, roles: Iterable[Role]) -> None:
        self.key = key
        self.roles = tuple(roles)
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, Oid], Facts] = OrderedDict()

    def candidates(self, type_id: str) -> tuple[int, ...] | None:
        """Return the roles that a stored type may fill; `None` for a type that does not resolve."""
        try:
            model = resolve(type_id)
        except TypeNotFoundError:
            return None
        return tuple(i for i, role in enumerate(self.roles) if issubclass(model, role.model))

    def judge(self, artifact_id: str, data: BaseModel, candidates: Iterable[int]) -> Facts:
        """Return what the rules say of the data of an artifact. Errors of conditions and key pass."""
        try:
            filled = tuple(i for i in candidates if self._holds(self.roles[i], data))
            if not filled:
                return _OUTSIDE
            key = self.key(data)
            hash(key)
        except Exception as error:
            add_note(
                error,
                f"raised by the key or a condition of a consume for artifact {artifact_id!r}: both take "
                f"the data of every artifact of the types concerned, and a key must be hashable",
            )
            raise
        return Facts(filled, key)

    def known(self, meta: Meta) -> Facts | None:
        """Return what was said of a version before, on whichever branch, or `None`."""
        where = (meta.type_id, meta.payload)
        with self._lock:
            found = self._known.get(where)
            if found is not None:
                self._known.move_to_end(where)
            return found

    def remember(self, meta: Meta, facts: Facts) -> None:
        """Keep what was said of a version, for a bounded number of them."""
        with self._lock:
            self._known[meta.type_id, meta.payload] = facts
            if len(self._known) > _KNOWN_VERSIONS:
                self._known.popitem(last=False)

    @staticmethod
    def _holds(role: Role, data: BaseModel) -> bool:
        return role.condition is None or bool(role.condition(data))


class Group:
    """The artifacts of one key, with a count for each role."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.members: dict[str, Facts] = {}
        self.counts = [0] * len(rules.roles)

    def copy(self) -> Group:
        """Return a group of its own with the same members."""
        twin = Group(self.rules)
        twin.members = dict(self.members)
        twin.counts = list(self.counts)
        return twin

    def add(self, artifact_id: str, facts: Facts) -> None:
        """Let an artifact join."""
        self.members[artifact_id] = facts
        for role in facts.roles:
            self.counts[role] += 1

    def remove(self, artifact_id: str) -> None:
        """Let an artifact leave."""
        for role in self.members.pop(artifact_id).roles:
            self.counts[role] -= 1

    @property
    def is_complete(self) -> bool:
        """Whether all required parts are there and no forbidden one."""
        pairs = zip(self.rules.roles, self.counts, strict=True)
        return all(bool(count) is not role.is_forbidden for role, count in pairs)

    def parts(self) -> list[str]:
        """Return the ids of the required parts of a complete group: it holds no others."""
        return list(self.members)


@dataclass(slots=True)
class _Edit:
    """What became of one file below a type's subtree."""

    type_id: str
    path: Path
    stored: Stored | None
    facts: Facts


class GroupIndex:
    """The groups of one consume over one line of history, at the subtrees it was last asked for."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._lock = threading.RLock()
        self._root: Oid | None = None
        self._is_whole = True  # False while a stored type does not resolve, as it may later
        self._trees: dict[str, Oid] = {}
        self._files: dict[tuple[str, Path], tuple[Oid, str]] = {}  # -> payload, artifact id
        self._members: dict[str, Facts] = {}
        self._groups: dict[Hashable, Group] = {}
        self._complete: set[Hashable] = set()
        self._reads_actions = any(issubclass(PendingAction, role.model) for role in rules.roles) or any(
            issubclass(role.model, PendingAction) for role in rules.roles
        )
        self._delivery: tuple[Oid | None, Oid | None] = (None, None)

    # -- questions -----------------------------------------------------------------------------

    def parts_with(self, working: WorkingCopy, artifact_id: str) -> list[str] | None:
        """Return the required parts of the group an artifact is a part of; `None` unless it counts."""
        with self._lock:
            seen = self._seen(working)
            facts = seen.get(artifact_id, self._members.get(artifact_id))
            if facts is None:
                return None
            group = self._group(facts.key, seen)
            return group.parts() if group.is_complete else None

    def all_parts(self, working: WorkingCopy) -> list[str]:
        """Return the required parts of all groups that count, in no order."""
        with self._lock:
            seen = self._seen(working)
            touched = {facts.key for facts in seen.values() if facts is not None}
            touched |= {self._members[i].key for i in seen if i in self._members}
            keys = [*(self._complete - touched), *touched]
            groups = [self._group(key, seen) for key in keys]
            return [part for group in groups if group.is_complete for part in group.parts()]

    def members_with(
        self, working: WorkingCopy, artifact_id: str
    ) -> tuple[Hashable, dict[str, Facts]] | None:
        """Return the key and the members of the group an artifact is in, complete or not; `None` for none."""
        with self._lock:
            seen = self._seen(working)
            facts = seen.get(artifact_id, self._members.get(artifact_id))
            return None if facts is None else (facts.key, dict(self._group(facts.key, seen).members))

    def all_members(self, working: WorkingCopy) -> dict[Hashable, dict[str, Facts]]:
        """Return the members of every group, complete or not, by key."""
        with self._lock:
            seen = self._seen(working)
            keys = {*self._groups, *(facts.key for facts in seen.values() if facts is not None)}
            found = {key: self._group(key, seen).members for key in keys}
            return {key: dict(members) for key, members in found.items() if members}

    def _group(self, key: Hashable, seen: dict[str, Facts | None]) -> Group:
        """Return the group of a key with the changes of a view on top."""
        group = self._groups.get(key) or Group(self.rules)
        gone = [i for i in seen if i in group.members]
        came = [(i, facts) for i, facts in seen.items() if facts is not None and facts.roles]
        came = [(i, facts) for i, facts in came if facts.key == key]
        if not gone and not came:
            return group
        group = group.copy()
        for artifact_id in gone:
            group.remove(artifact_id)
        for artifact_id, facts in came:
            group.add(artifact_id, facts)
        return group

    def _seen(self, working: WorkingCopy) -> dict[str, Facts | None]:
        """Move to the subtrees of a view and judge what it has changed on top of them."""
        self._move(working)
        state = working.state
        changed = {*state.changed, *(state.intents if self._reads_actions else ())}
        seen: dict[str, Facts | None] = {}
        for artifact_id in changed:
            stored = state.stored(artifact_id)
            facts = _OUTSIDE if stored is None else self._judged(working, stored)
            seen[artifact_id] = facts if facts.roles else None
        return seen

    # -- judging -------------------------------------------------------------------------------

    def _judged(self, working: WorkingCopy, stored: Stored) -> Facts:
        """Return the facts of a version; each payload is decoded once."""
        meta = stored.meta
        candidates = self.rules.candidates(meta.type_id)
        if not candidates:
            return _OUTSIDE
        known = self.rules.known(meta)
        if known is not None:
            return known
        data = working.model(meta, working.state.payload(meta))
        facts = self.rules.judge(meta.id, data, candidates)
        if not isinstance(data, PendingAction):  # an action changes with its delivery, its payload does not
            self.rules.remember(meta, facts)
        return facts

    # -- moving --------------------------------------------------------------------------------

    def _move(self, working: WorkingCopy) -> None:
        """Stand at the subtrees of a view. Judges first, so that an error leaves the index as it was."""
        state = working.state
        if self._root != state.roots.artifacts or not self._is_whole:
            self._move_files(working)
        if self._reads_actions:
            self._move_deliveries(working)

    def _move_files(self, working: WorkingCopy) -> None:
        state = working.state
        trees: dict[str, Oid] = {}
        edits: list[_Edit] = []
        is_whole = True
        stored_types = state.indexes.type_ids(state.objects, state.roots)
        for type_id in sorted({*self._trees, *stored_types}):
            candidates = self.rules.candidates(type_id)
            is_whole = is_whole and candidates is not None
            if not candidates:
                if type_id in self._trees:
                    trees[type_id] = self._trees[type_id]
                continue
            tree = subtree(state.objects, state.roots.artifacts, (encode_name(type_id),))
            if tree is not None:
                trees[type_id] = tree
            edits += self._edits(working, type_id, tree)
        self._apply(edits)
        self._trees, self._root, self._is_whole = trees, state.roots.artifacts, is_whole

    def _edits(self, working: WorkingCopy, type_id: str, tree: Oid | None) -> list[_Edit]:
        state = working.state
        changes = self._changes(state.objects, type_id, tree)
        entries = {path: lookup(state.objects, state.roots.meta, path) for path, new in changes if new}
        state.objects.prefetch(new for _, new in changes if new is not None)
        state.objects.prefetch(entry.oid for entry in entries.values() if entry is not None)
        edits = []
        for path, new in changes:
            entry = entries.get(path)
            stored = None if new is None or entry is None else state.stored_at(entry.oid)
            facts = _OUTSIDE if stored is None else self._judged(working, stored)
            edits.append(_Edit(type_id, path, stored, facts))
        return edits

    def _changes(self, objects: Objects, type_id: str, tree: Oid | None) -> list[tuple[Path, Oid | None]]:
        """Return (path, new payload) of every file that differs from where the index stands."""
        try:
            return [(path, new) for path, _, new in compare(objects, self._trees.get(type_id), tree)]
        except MissingObject:
            pass  # the index stands on another branch, at a tree that is not published yet
        before = {path: payload for (kind, path), (payload, _) in self._files.items() if kind == type_id}
        after = dict(walk(objects, tree))
        paths = sorted(before.keys() | after.keys())
        return [(path, after.get(path)) for path in paths if before.get(path) != after.get(path)]

    def _apply(self, edits: list[_Edit]) -> None:
        for edit in edits:  # first all that go: an artifact that changed its type goes and comes
            gone = self._files.pop((edit.type_id, edit.path), None)
            if gone is not None:
                self._replace(gone[1], _OUTSIDE)
        for edit in edits:
            if edit.stored is not None:
                meta = edit.stored.meta
                self._files[edit.type_id, edit.path] = (meta.payload, meta.id)
                self._replace(meta.id, edit.facts)

    def _replace(self, artifact_id: str, facts: Facts) -> None:
        before = self._members.pop(artifact_id, None)
        if before is not None:
            self._groups[before.key].remove(artifact_id)
            self._note_group(before.key)
        if facts.roles:
            self._members[artifact_id] = facts
            self._groups.setdefault(facts.key, Group(self.rules)).add(artifact_id, facts)
            self._note_group(facts.key)

    def _note_group(self, key: Hashable) -> None:
        group = self._groups[key]
        if group.is_complete:
            self._complete.add(key)
        else:
            self._complete.discard(key)
        if not group.members:
            del self._groups[key]

    # -- deliveries ----------------------------------------------------------------------------

    def _move_deliveries(self, working: WorkingCopy) -> None:
        """Judge the actions again whose delivery moved: their files stay as they are."""
        state = working.state
        stand = (working.ledger.tip, state.roots.outbox)
        if stand == self._delivery:
            return
        judged: dict[str, Facts] = {}
        for artifact_id in self._delivered(working.ledger, state):
            entry = lookup(state.objects, state.roots.meta, file_path(artifact_id))
            if entry is not None:
                judged[artifact_id] = self._judged(working, state.stored_at(entry.oid))
        for artifact_id, facts in judged.items():
            self._replace(artifact_id, facts)
        self._delivery = stand

    def _delivered(self, ledger: Ledger, state: State) -> set[str]:
        tip, outbox = self._delivery
        try:
            ledgers = compare(ledger.staged, _entries(ledger, tip), _entries(ledger, ledger.tip))
            found = {
                LedgerEntry.decode(ledger.staged.read(blob).data).action_id
                for _, old, new in ledgers
                for blob in (old, new)
                if blob is not None
            }
            found |= {
                Intent.decode(state.objects.read(blob).data).action_id
                for _, old, new in compare(state.objects, outbox, state.roots.outbox)
                for blob in (old, new)
                if blob is not None
            }
            return found
        except MissingObject:  # as in `_changes`; then all actions are looked at
            return {i for (kind, _), (_, i) in self._files.items() if _is_action(kind)}


def _entries(ledger: Ledger, tip: Oid | None) -> Oid | None:
    return None if tip is None else subtree(ledger.staged, ledger.staged.commit(tip).tree, ("ledger",))


def _is_action(type_id: str) -> bool:
    try:
        return issubclass(resolve(type_id), PendingAction)
    except TypeNotFoundError:
        return False
