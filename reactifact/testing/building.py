"""Objects and commits to fill a store with, for the conformance suite and tests beside it.

They are valid git objects with fixed authors and times: equal texts give equal ids. They are no states
of sessions, and nothing of the layers above the store reads them.
"""

from __future__ import annotations

from ..store.objects import (
    BLOB_MODE,
    TREE_MODE,
    CommitObject,
    GitObject,
    Oid,
    Signature,
    TreeEntry,
    encode_commit,
    encode_tree,
    object_id,
)
from ..store.protocol import ObjectBackend, RefUpdate

MAIN = "refs/heads/s/main"
ABSENT = "0123456789abcdef0123456789abcdef01234567"
WHO = Signature("agent", "agent@example.invalid", 1_700_000_000)


def blob(data: bytes) -> tuple[Oid, GitObject]:
    """Return a blob and its id."""
    return object_id("blob", data), GitObject("blob", data)


def commit(text: str, *parents: Oid) -> tuple[Oid, dict[Oid, GitObject]]:
    """Return a commit with one file of its own, and the four objects it is made of."""
    blob_id, payload = blob(f"{text}\n".encode())
    leaf = encode_tree({"file.json": TreeEntry(BLOB_MODE, blob_id)})
    leaf_id = object_id("tree", leaf)
    root = encode_tree({"artifacts": TreeEntry(TREE_MODE, leaf_id)})
    root_id = object_id("tree", root)
    data = encode_commit(CommitObject(root_id, parents, WHO, WHO, f"{text}\n"))
    oid = object_id("commit", data)
    return oid, {
        blob_id: payload,
        leaf_id: GitObject("tree", leaf),
        root_id: GitObject("tree", root),
        oid: GitObject("commit", data),
    }


def put(backend: ObjectBackend, name: str, text: str, expected: Oid | None = None) -> Oid:
    """Write a commit on top of `expected` and move `name` to it."""
    parents = () if expected is None else (expected,)
    oid, objects = commit(text, *parents)
    backend.write(objects, [RefUpdate(name, expected, oid)])
    return oid
