"""What every backend refuses alike: malformed ref names, objects absent or under a wrong id, refs in the way.

Pure functions over names and bytes. It knows nothing of where refs and objects live, nor of how
ids are encoded into ref names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from ..errors import InvalidName, MissingObject, StoreError
from .objects import GitObject, Oid, object_id, require_size
from .protocol import Durability

_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{")
_OID = re.compile(r"[0-9a-f]{40}")

MAX_PART = 250
"""Bytes of one part of a ref name: a file name of 255 less git's `.lock`."""
MAX_NAME = 1023
"""Bytes of a whole ref name that git still reads."""


def check_ref_name(name: str) -> None:
    """Refuse what `git check-ref-format` refuses, and what a file system could not hold.

    Raises `InvalidName`.
    """
    parts = name.split("/")
    try:
        sizes = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:
        raise InvalidName(f"ref name {name!r} cannot be written as UTF-8; encode it first") from None
    if len(parts) < 2 or parts[0] != "refs":
        reason = "it does not start with refs/"
    elif not all(parts):
        reason = "it has an empty part"
    elif any(part.startswith(".") or part.endswith((".lock", ".")) for part in parts):
        reason = "a part starts with a dot, or ends in a dot or in .lock"
    elif _FORBIDDEN.search(name) or name == "@":
        reason = "it holds a character or sequence that git forbids"
    elif max(sizes) > MAX_PART or sum(sizes) + len(parts) - 1 > MAX_NAME:
        reason = f"a part is over {MAX_PART} bytes, or the whole over {MAX_NAME}"
    else:
        return
    raise InvalidName(f"{name!r} cannot name a ref: {reason}; percent-encode its parts")


def check_durability(durability: Durability) -> Durability:
    """Return what was handed in. Raises `ValueError` for what is neither `full` nor `os`."""
    if durability not in ("full", "os"):
        raise ValueError(f"durability is 'full' or 'os', not {durability!r}")
    return durability


def check_oid(oid: Oid) -> None:
    """Refuse what is not forty lower-case hex digits. Raises `StoreError`."""
    if not _OID.fullmatch(oid):
        raise StoreError(f"{oid!r} is no object id: forty lower-case hex digits are expected")


def check_objects(objects: Mapping[Oid, GitObject], max_object: int | None = None) -> None:
    """Refuse objects under another id than their own, and those that are too large. Raises `StoreError`."""
    for oid, item in objects.items():
        if max_object is not None:
            require_size(f"the {item.kind} {oid}, which was not written,", len(item.data), max_object)
        actual = object_id(item.kind, item.data)
        if actual != oid:
            raise StoreError(
                f"the {item.kind} handed in as {oid} is {actual}: nothing was written; "
                f"take ids from object_id()"
            )


def taken(objects: Mapping[Oid, GitObject], oids: Iterable[Oid], location: str) -> dict[Oid, GitObject]:
    """Return the objects of some ids. Raises `MissingObject` for the first that is absent."""
    found: dict[Oid, GitObject] = {}
    for oid in oids:
        item = objects.get(oid)
        if item is None:
            raise MissingObject(oid, location)
        found[oid] = item
    return found


def parent_names(name: str) -> Iterator[str]:
    """Yield the names that a ref may not have while `name` exists: its own leading parts."""
    end = name.rfind("/")
    while end > len("refs"):
        yield name[:end]
        end = name.rfind("/", 0, end)


def name_in_the_way(name: str, other: str, location: str) -> StoreError:
    """Return the error for two refs of which one would be the folder of the other."""
    return StoreError(
        f"ref {name} cannot be created in {location}: ref {other} exists and one would be the "
        f"folder of the other; delete or rename {other}"
    )
