"""Commits on a session's branch as somebody makes them with git, made without git."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import anyio
from support import Note

from reactifact import SessionStore
from reactifact._store.branch import MAIN
from reactifact._store.names import branch_ref
from reactifact._store.object_db import Staging, blob_entry
from reactifact._store.objects import CommitObject, Oid, Signature
from reactifact._store.trees import Path, lookup, update, walk
from reactifact.checkpoints import InMemoryKVBackend

ANN = Signature("Ann", "ann@example.com", 1_780_000_000)
BEN = Signature("Ben", "ben@example.com", 1_780_000_100)
REF = branch_ref("s", MAIN)


def session(**texts: str) -> tuple[Staging, Oid]:
    """Return the objects of a store whose session `s` holds notes, and the tip of its branch."""
    store = SessionStore(InMemoryKVBackend())

    async def fill() -> None:
        async with store.edit("s", message="begin") as context:
            for name, text in texts.items():
                context.create(Note(text=text), id=name)

    anyio.run(fill)
    objects = Staging(store.database)
    return objects, store.database.backend.refs(REF)[REF]


def payload_path(objects: Staging, commit: Oid, name: str) -> Path:
    """Return the path of an artifact's payload in the tree of a commit."""
    files = (path for path, _ in walk(objects, objects.commit(commit).tree))
    return next(path for path in files if path[0] == "artifacts" and path[-1] == f"{name}.json")


def commit_on(
    objects: Staging,
    parents: list[Oid],
    files: Mapping[Path, bytes | None],
    *,
    who: Signature = ANN,
    tree_of: Oid | None = None,
) -> Oid:
    """Put a commit that changes files (`None`: removes them) of its first parent's tree."""
    edits = {
        path: None if data is None else blob_entry(objects.put("blob", data)) for path, data in files.items()
    }
    tree = update(objects, objects.commit(tree_of or parents[0]).tree, edits)
    assert tree is not None
    return objects.put_commit(CommitObject(tree, tuple(parents), who, who, "by hand\n"))


def amended(objects: Staging, commit: Oid, message: str, files: Mapping[Path, bytes | None]) -> Oid:
    """Put a commit again as `git commit --amend` does: its extra header is carried along."""
    made = objects.commit(commit)
    edits = {
        path: None if data is None else blob_entry(objects.put("blob", data)) for path, data in files.items()
    }
    tree = update(objects, made.tree, edits)
    assert tree is not None
    return objects.put_commit(replace(made, tree=tree, message=message, committer=ANN))


def payload(objects: Staging, commit: Oid, name: str) -> bytes:
    """Return the bytes of an artifact's payload."""
    entry = lookup(objects, objects.commit(commit).tree, payload_path(objects, commit, name))
    assert entry is not None
    return objects.read(entry.oid).data
