"""A merge that somebody made with git is merged again by our rules when its branch is opened.

Owns what of the hand-made tree counts: the payload it holds where both sides changed an artifact
differently, because a person decided there. Everything else comes from the two parents; what the tree
holds beyond that is refused, never dropped. The ref moves by compare-and-swap, from the hand-made
commit to ours, or nothing moves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..errors import MergedByHand, ReactifactError, StaleSession, StoreError
from ..store import canonical
from ..store.database import Database, Objects
from ..store.layout import BOOKKEEPING, Roots, artifact_path, decode_edges
from ..store.line import Line
from ..store.names import branch_ref
from ..store.objects import CommitObject, Oid
from ..store.records import own_record, read_roots
from ..store.trees import Path, compare, lookup
from . import merge_verbs
from .codec import decode_payload
from .committing import Committer
from .conflicts import ConflictDetail, MergeConflict
from .encoding import encode
from .resources import RuntimeResources
from .types import resolve, revision_of

_ATTEMPTS = 4


def load(
    database: Database, session: str, branch: str, resources: RuntimeResources | None = None
) -> Line | None:
    """Read a branch, or return `None` when there is none; a merge made by hand is merged again first.

    Runs in a worker thread. Raises what `Line.load` does, `MergeConflict` where the hand-made merge
    leaves one open, `StoreError` where it holds what no merge of its parents gives; nothing has moved then.
    """
    deeper: Oid | None = None
    for _ in range(_ATTEMPTS):
        try:
            return Line.load(database, session, branch)
        except MergedByHand as error:
            ref = branch_ref(session, branch)
            if database.backend.refs(ref).get(ref) != error.commit:
                if error.commit == deeper:
                    raise  # it stands deeper in the history
                deeper = error.commit  # or the branch moved since it was read
                continue
            try:
                _rejoin(database, session, branch, error, resources or RuntimeResources())
            except StaleSession:
                continue  # somebody else moved the branch, perhaps in the same way
    return Line.load(database, session, branch)


def _rejoin(
    database: Database, session: str, branch: str, error: MergedByHand, resources: RuntimeResources
) -> None:
    made = database.commit(error.commit)
    records = [own_record(database, parent) for parent in made.parents]
    if len(records) != 2 or any(record is None or record.kind == "ledger" for record in records):
        raise error
    other = records[1]
    assert other is not None
    ref = branch_ref(session, branch)
    ours = _standing(Line.named(database, session, branch), made.parents[0])
    ours.ref, ours.published = ref, error.commit
    theirs = _standing(Line.named(database, other.session, other.branch), made.parents[1])
    tree, mine, others = (read_roots(database, oid) for oid in (error.commit, *made.parents))
    by_hand = _ByHand(database, error.commit, tree, mine, others)
    way_out = (
        f"Move the ref back with `git update-ref {ref} {made.parents[0]}`, then merge {made.parents[1][:12]} "
        f"with BranchStore.merge(into=, source=, policy=)"
    )
    heading = f"{ref} points at {error.commit[:12]}, a merge made by hand"
    committer = Committer(ours, resources)
    try:
        merge_verbs.merge(
            committer,
            Committer(theirs, resources),
            message=_message(made, error.commit),
            policy=by_hand.decide,
            dry_run=False,
            emit_events=False,
        )
    except MergeConflict as conflict:
        text = "\n".join(
            [
                f"{heading}, which leaves conflicts open; nothing was moved",
                *map(str, conflict.details),
                *(f"{name}: {reason}" for name, reason in sorted(by_hand.refused.items())),
                way_out,
            ]
        )
        raise MergeConflict(text, conflict.conflicts, conflict.details) from error
    edited = by_hand.edits(ours.objects, ours.state.roots)
    if edited:
        raise StoreError(
            f"{heading}, and {', '.join(edited)} in it is neither what a side has nor what merging them "
            f"gives: make that change with BranchStore.edit after the merge; nothing was moved. {way_out}"
        ) from error
    committer.note_queue()  # a merge leaves what the branch has still to react to
    ours.publish()


def _standing(line: Line, commit: Oid) -> Line:
    line.ledger.refresh()
    line.move_to(commit)
    return line


def _message(made: CommitObject, commit: Oid) -> str:
    said = made.message.strip().split("\n")[0].encode("utf-8", "replace").decode()
    return (
        f"{said or 'Merge by hand'}\n\n"
        f"Made by hand by {made.author.name} as {commit}; merged again by reactifact"
    )


@dataclass(slots=True)
class _ByHand:
    """The hand-made tree beside those of its two parents."""

    objects: Objects
    commit: Oid
    made: Roots
    ours: Roots
    theirs: Roots
    refused: dict[str, str] = field(default_factory=dict)  # why a payload was not taken, by artifact id

    def decide(self, detail: ConflictDetail) -> Any:
        """Return what the person decided on an artifact that both sides changed, `None` for nothing."""
        sides = {"ours": detail.types[1], "theirs": detail.types[2]}
        held: dict[str, Oid] = {}
        for type_id in sides.values():
            blob = None if type_id is None else self._blob(self.made, type_id, detail.artifact_id)
            if type_id is not None and blob is not None:
                held[type_id] = blob
        if not held:
            for side, type_id in sides.items():
                if type_id is None:
                    return side
            return self._refuse(detail, "the hand-made tree has no payload of it, and no side deleted it")
        if len(held) > 1:
            return self._refuse(detail, "the hand-made tree has a payload of it in each of its two types")
        ((type_id, blob),) = held.items()
        for side, roots in (("ours", self.ours), ("theirs", self.theirs)):
            if sides[side] == type_id and self._blob(roots, type_id, detail.artifact_id) == blob:
                return side
        return self._written(detail, type_id, blob)

    def _written(self, detail: ConflictDetail, type_id: str, blob: Oid) -> Any:
        """Return the model of a payload that the person wrote, where it is valid."""
        data = self.objects.read(blob).data
        try:
            model = resolve(type_id)
            found = decode_payload(model, data, type_id=type_id, revision=revision_of(model))
            if canonical.decode(encode(found).payload) == canonical.decode(data):
                return found
        except (ReactifactError, ValueError) as error:
            return self._refuse(detail, f"its payload in the hand-made tree is not valid: {error}")
        return self._refuse(detail, "its payload in the hand-made tree is not what its class would store")

    def _refuse(self, detail: ConflictDetail, reason: str) -> None:
        self.refused[detail.artifact_id] = reason

    def _blob(self, roots: Roots, type_id: str, artifact_id: str) -> Oid | None:
        return _at(self.objects, roots.artifacts, artifact_path(type_id, artifact_id))

    def edits(self, objects: Objects, result: Roots) -> list[str]:
        """Return the files of the hand-made tree that neither side has and whose content ours lacks."""
        tree = objects.tree(objects.commit(self.commit).tree)
        found = sorted(tree.keys() - _OWN)
        for name, read in (("artifacts", _payload), ("relations", _links)):
            made, merged = getattr(self.made, name), getattr(result, name)
            sides = (getattr(self.ours, name), getattr(self.theirs, name))
            for path, blob, ours in compare(objects, made, merged):
                if blob in [_at(objects, side, path) for side in sides]:
                    continue
                if blob is None or ours is None or read(objects, blob) != read(objects, ours):
                    found.append("/".join((name, *path)))
        return found


_OWN = {".gitattributes", BOOKKEEPING, "artifacts", "relations", "outbox"}
"""The names at the top of a commit. What a person did to bookkeeping and outbox does not count."""


def _at(objects: Objects, root: Oid | None, path: Path) -> Oid | None:
    entry = lookup(objects, root, path)
    return None if entry is None else entry.oid


def _payload(objects: Objects, blob: Oid) -> Any:
    """Return what a payload says, however it is written; its bytes where that is no JSON."""
    data = objects.read(blob).data
    try:
        return canonical.decode(data)
    except ValueError:
        return data


def _links(objects: Objects, blob: Oid) -> Any:
    """Return the relations of a file without their order; its bytes where it is none of ours."""
    data = objects.read(blob).data
    try:
        source, edges = decode_edges(data)
    except (ValueError, LookupError, TypeError):
        return data
    return source, {(edge.relation, edge.target) for edge in edges}
