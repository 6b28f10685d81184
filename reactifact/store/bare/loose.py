"""Loose objects, read by hand: one file an object, as git writes them on its own.

reactifact writes packs, so these come from git (a push, an unpack, a note). libgit2 reads them too, but
goes round in an endless loop on some that are damaged (seen with 1.9: a flipped byte near the end of the
compressed data), which a store that is being checked for damage must not do.
"""

from __future__ import annotations

import zlib
from typing import cast

from ...errors import StoreError
from ..objects import GitObject, Kind, Oid, object_id

_KINDS = frozenset({"blob", "tree", "commit", "tag"})


def read_loose(objects: str, oid: Oid, location: str) -> GitObject | None:
    """Return the loose object of an id below the folder `objects`, or `None` where there is none.

    Raises `StoreError`, naming the id and `location`, for one that is damaged or cannot be read.
    """
    try:
        with open(f"{objects}/{oid[:2]}/{oid[2:]}", "rb") as file:
            packed = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(
            f"object {oid} in {location} cannot be read: {error.strerror}; give this user read permission "
            f"on the store, or check the disk"
        ) from error
    found = _parsed(packed)
    if found is None or object_id(*found) != oid:
        raise StoreError(
            f"object {oid} in {location} is damaged: its file does not hold what its id says; run "
            f"`git fsck` on the store and fetch the object from a clone or a backup"
        )
    return found


def _parsed(packed: bytes) -> GitObject | None:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(packed)
    except zlib.error:
        return None
    if not inflater.eof or inflater.unused_data:
        return None
    head, end, content = data.partition(b"\0")
    kind, _, size = head.partition(b" ")
    name = kind.decode("ascii", "replace")
    if not end or name not in _KINDS or size != b"%d" % len(content):
        return None
    return GitObject(cast(Kind, name), content)
