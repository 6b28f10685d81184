"""Objects and refs as one dictionary of plain JSON types, and back.

Owns the shape of such a document. Blobs, commits and trees are text in it as far as they are text,
so that it can be read; ids make sure that what comes back is what was written.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

from ..errors import DamagedRef, NotAStore, StoreError
from .database import Objects
from .migrations import current_document
from .objects import (
    GitObject,
    Kind,
    Oid,
    TreeEntry,
    encode_tree,
    object_id,
    parse_tree,
    references,
)

FORMAT_VERSION = 1

Document = dict[str, Any]

_BINARY = ":base64"
_OID = re.compile(r"[0-9a-f]{40}")
_LINE = re.compile(r"([0-7]+) ([0-9a-f]{40}) (.+)")


def new_document(session: str, refs: Mapping[str, Oid], objects: Mapping[Oid, str]) -> Document:
    """Return a document that shares nothing that can change with its arguments."""
    return {
        "format_version": FORMAT_VERSION,
        "session": session,
        "refs": dict(refs),
        "objects": dict(objects),
    }


def checked_document(document: Mapping[str, Any], where: str) -> Document:
    """Return a document in today's format.

    Raises `NotAStore` for what is no document of ours, `FormatTooNew`, and `StoreError` for an older
    format that no step leads on from.
    """
    version = document.get("format_version")
    found = current_document(document, version, FORMAT_VERSION, where) if type(version) is int else {}
    if not isinstance(found.get("objects"), dict) or not isinstance(found.get("refs"), dict):
        raise NotAStore(
            f"{where} is no document of this version; if an earlier reactifact wrote it, bring it over with "
            f"`reactifact import`"
        )
    return found


def checked_refs(refs: Mapping[str, Any], where: str) -> dict[str, Oid]:
    """Return the refs of a document. Raises `DamagedRef` for one without an object id."""
    for name, oid in refs.items():
        if not isinstance(oid, str) or not _OID.fullmatch(oid):
            raise DamagedRef(
                name,
                where,
                f"holds {repr(oid)[:60]}, which is not an object id",
                "restore the document from a copy or a backup",
            )
    return dict(refs)


def encode_object(item: GitObject) -> str:
    """Return one object as text."""
    text = _tree_text(item.data) if item.kind == "tree" else _text(item.data)
    if text is None:
        return f"{item.kind}{_BINARY} {base64.b64encode(item.data).decode()}"
    return f"{item.kind} {text}"


def decode_object(oid: Oid, text: str, where: str) -> GitObject:
    """Return the object of a text, checked against its id. Raises `StoreError` for a damaged one."""
    try:
        head, _, body = text.partition(" ")
        kind = cast(Kind, head.removesuffix(_BINARY))
        if head.endswith(_BINARY):
            data = base64.b64decode(body, validate=True)
        else:
            data = _tree_data(body) if kind == "tree" else body.encode()
        damaged = object_id(kind, data) != oid
    except (AttributeError, ValueError, binascii.Error):
        damaged = True
    if damaged:
        raise StoreError(f"object {oid} in {where} is damaged; restore it from a copy or a backup")
    return GitObject(kind, data)


def reach(objects: Objects, tips: Iterable[Oid], known: Collection[Oid] = ()) -> dict[Oid, GitObject]:
    """Return every object that `tips` reach, without those `known` and what only they reach.

    Read level by level, so that a remote store is asked few times. Raises `MissingObject`.
    """
    found: dict[Oid, GitObject] = {}
    level = [oid for oid in dict.fromkeys(tips) if oid not in known]
    while level:
        objects.prefetch(level)
        below: dict[Oid, None] = {}
        for oid in level:
            found[oid] = item = objects.read(oid)
            below.update((under, None) for under, _ in references(item))
        level = [oid for oid in below if oid not in found and oid not in known]
    return found


def _text(data: bytes) -> str | None:
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None


def _tree_text(data: bytes) -> str | None:
    try:
        text = "\n".join(f"{entry.mode:06o} {entry.oid} {name}" for name, entry in parse_tree(data).items())
        return text if _tree_data(text) == data else None
    except (ValueError, UnicodeEncodeError):
        return None


def _tree_data(text: str) -> bytes:
    entries: dict[str, TreeEntry] = {}
    for line in text.split("\n") if text else ():
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"{line!r} is no line of a tree")
        entries[match[3]] = TreeEntry(int(match[1], 8), match[2])
    return encode_tree(entries)
