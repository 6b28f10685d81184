"""Loose objects, read by hand: one file an object, as git writes them on its own.

reactifact writes packs, so these come from git (a push, an unpack, a note). libgit2 reads them too, but
goes round in an endless loop on some that are damaged (seen with 1.9: a flipped byte near the end of the
compressed data), which a store that is being checked for damage must not do.
"""

from __future__ import annotations

import re
import zlib
from typing import cast

from ...errors import StoreError
from ..objects import GitObject, Kind, Oid, object_id, require_size

_HEAD = re.compile(rb"(blob|tree|commit|tag) (0|[1-9][0-9]{0,17})")
_LONGEST_HEAD = 32


def read_loose(objects: str, oid: Oid, location: str, max_object: int) -> GitObject | None:
    """Return the loose object of an id below the folder `objects`, or `None` where there is none.

    Raises `StoreError`, naming the id and `location`, for one that is damaged or cannot be read, and
    `ObjectTooLarge` for one that says it has more than `max_object` bytes.
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
    found = _parsed(packed, f"object {oid} in {location}", max_object)
    if found is None or object_id(*found) != oid:
        raise StoreError(
            f"object {oid} in {location} is damaged: its file does not hold what its id says; run "
            f"`git fsck` on the store and fetch the object from a clone or a backup"
        )
    return found


def _parsed(packed: bytes, what: str, max_object: int) -> GitObject | None:
    inflater = zlib.decompressobj()
    try:
        head, end, begun = inflater.decompress(packed, _LONGEST_HEAD).partition(b"\0")
        match = _HEAD.fullmatch(head)
        if not end or match is None:
            return None
        size = int(match[2])
        require_size(what, size, max_object)
        content = begun + inflater.decompress(inflater.unconsumed_tail, max(1, size + 1 - len(begun)))
    except zlib.error:
        return None
    if len(content) != size or not inflater.eof or inflater.unused_data:
        return None
    return GitObject(cast(Kind, match[1].decode()), content)
