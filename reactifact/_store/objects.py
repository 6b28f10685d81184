"""Git's object format as plain values: blobs, trees, commits, and their ids.

This module owns the bytes of single objects (git's documented loose-object content, SHA-1 ids).
It knows nothing of where objects live, of refs, or of what reactifact stores in them.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from typing import Literal, NamedTuple

from ..errors import ObjectTooLarge, StoreError

Oid = str
"""Forty lower-case hex digits: the SHA-1 that git gives an object."""

Kind = Literal["blob", "tree", "commit", "tag"]

BLOB_MODE = 0o100644
TREE_MODE = 0o040000
_OID = re.compile(r"[0-9a-f]{40}")
_FIRST_PARENT = re.compile(rb"tree [0-9a-f]{40}\nparent ([0-9a-f]{40})\n")
_TAGGED = re.compile(rb"object ([0-9a-f]{40})\n")
_SECONDS = re.compile(r"-?[0-9]{1,15}")  # git itself takes anything else for 0
_SUBMODULE_MODE = 0o160000
_LINE = itemgetter(1)
_JOINED = 64 * 1024  # bytes that are hashed in one call, at the price of a copy
_READ_AT_ONCE = 1000
OVERHEAD = 400
"""Bytes that an object takes in a cache beyond its content: its id, its place, Python's headers."""


MAX_OBJECT = 256 * 1024 * 1024
"""Bytes that one object may have, unless a store is told otherwise."""


def require_size(what: str, size: int, limit: int, option: str = "max_object") -> None:
    """Refuse what is larger than a store takes, before there is memory for it. Raises `ObjectTooLarge`."""
    if size > limit:
        raise ObjectTooLarge(
            f"{what} has {size:,} bytes, and {limit:,} are taken: keep large data elsewhere and store "
            f"where it is, or open the store with a greater {option}= if this is meant"
        )


def inflate(packed: bytes, size: int) -> bytes:
    """Decompress what is to have `size` bytes, taking no more memory. Raises `ValueError` if it has not."""
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(packed, max(size, 0) + 1)  # 0 would set no bound
    except zlib.error as error:
        raise ValueError(f"it cannot be decompressed: {error}") from error
    if len(data) != size or not inflater.eof or inflater.unused_data:
        raise ValueError(f"it does not have {size} bytes")
    return data


_SMALL = 4096  # bytes; nearly all objects of a turn
_SMALL_WINDOW, _SMALL_MEMORY = 12, 5  # of zlib, for as much: 32 KiB to clear and not 256, at the same size


_TINY = 64  # bytes, which compression hardly makes fewer
_SMALL_TREE = 1024  # most of it are ids, so that it keeps nine tenths of its bytes
_LIKE_TREE = (b"40000 ", b"100644")  # how one begins


def deflate(data: bytes, level: int) -> bytes:
    """Compress content, equal content to equal bytes, and small content in a third of zlib's usual time.

    What compression would hardly make shorter, but for what it takes ten times as long, is put into zlib's
    form as it is.
    """
    size = len(data)
    if size < _TINY or (size < _SMALL_TREE and data[:6] in _LIKE_TREE):
        lengths = b"%b%b" % (size.to_bytes(2, "little"), (size ^ 0xFFFF).to_bytes(2, "little"))
        return b"\x78\x01\x01%b%b%b" % (lengths, data, zlib.adler32(data).to_bytes(4, "big"))
    if size > _SMALL:
        return zlib.compress(data, level)
    deflater = zlib.compressobj(level, zlib.DEFLATED, _SMALL_WINDOW, _SMALL_MEMORY)
    return deflater.compress(data) + deflater.flush()


class GitObject(NamedTuple):
    """One object: its kind and its content without the loose-object header."""

    kind: Kind
    data: bytes


class TreeEntry(NamedTuple):
    """What a name in a tree stands for: a file mode and the id behind it."""

    mode: int
    oid: Oid


class Signature(NamedTuple):
    """A person or program and a moment: name, e-mail, seconds since the epoch (UTC)."""

    name: str
    email: str
    time: int


@dataclass(frozen=True, slots=True)
class CommitObject:
    """A parsed commit."""

    tree: Oid
    parents: tuple[Oid, ...]
    author: Signature
    committer: Signature
    message: str
    record: str = ""  # the extra header of ours: a line of JSON, empty where there is none


def object_id(kind: str, data: bytes) -> Oid:
    """Return the id git gives to an object of `kind` with content `data`."""
    head = f"{kind} {len(data)}\0".encode()
    if len(data) <= _JOINED:
        return hashlib.sha1(head + data, usedforsecurity=False).hexdigest()
    digest = hashlib.sha1(head, usedforsecurity=False)
    digest.update(data)
    return digest.hexdigest()


class Hashed(dict[Oid, GitObject]):
    """Objects under ids that were made of their content in this process: nobody has to hash them again.

    Made from what a `Staging` holds, and from nothing else.
    """


def misnamed(objects: Mapping[Oid, GitObject]) -> list[Oid]:
    """Return the ids of those objects that stand under another id than their own."""
    if type(objects) is Hashed:
        return []
    heads = {kind: kind.encode() for kind in ("blob", "tree", "commit", "tag")}
    found = []
    for oid, (kind, data) in objects.items():
        if len(data) > _JOINED:
            actual = object_id(kind, data)
        else:  # as `object_id` does: a call for each costs as much as the hash
            whole = b"%b %d\0%b" % (heads[kind], len(data), data)
            actual = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
        if actual != oid:
            found.append(oid)
    return found


_FANNED = {digit: f"40000 {digit}\0".encode().hex() for digit in "0123456789abcdef"}
"""The start of the line of a folder that ids are fanned out to, in hex."""


_FANNED_BYTES = 28  # of such a line


def encode_tree(entries: Mapping[str, TreeEntry]) -> bytes:
    """Encode a tree. Names are sorted as git does: a directory as if it ended in a slash."""
    if len(entries) == 1:  # as on the way to an artifact where few are
        ((name, (mode, oid)),) = entries.items()
        return b"%o %b\0%b" % (mode, name.encode("utf-8", "surrogateescape"), bytes.fromhex(oid))
    if _FANNED.keys() >= entries.keys():  # most trees of a write; none of their names begins another
        lines = []
        for name in sorted(entries):
            mode, oid = entries[name]
            if mode != TREE_MODE:
                break
            lines.append(_FANNED[name] + oid)
        else:
            return bytes.fromhex("".join(lines))
    ordered = []
    for name, (mode, oid) in entries.items():
        raw = name.encode("utf-8", "surrogateescape")  # one of another program's may not be UTF-8
        line = b"%o %b\0%b" % (mode, raw, bytes.fromhex(oid))
        ordered.append((raw + b"/" if mode == TREE_MODE else raw, line))
    ordered.sort()
    return b"".join(map(_LINE, ordered))


def with_folder(data: bytes, count: int, name: str, oid: Oid) -> bytes | None:
    """Return a tree of `count` fanned-out folders with one of them put in, changed or new.

    `None` is returned where the tree or the name is of another kind: only `encode_tree` tells then.
    """
    if len(data) != _FANNED_BYTES * count or name not in _FANNED:
        return None
    names = data[6::_FANNED_BYTES]  # no line of a tree is shorter, so that each has one digit there
    digit = ord(name)
    place = names.find(digit)
    if place < 0:
        start = _FANNED_BYTES * bisect_left(names, digit)
        return data[:start] + bytes.fromhex(_FANNED[name] + oid) + data[start:]
    start = _FANNED_BYTES * place + 8
    if not data.startswith(b"40000 ", start - 8):
        return None
    return data[:start] + bytes.fromhex(oid) + data[start + 20 :]


def parse_tree(data: bytes) -> dict[str, TreeEntry]:
    """Parse a tree into name -> entry, in git's order. Raises `StoreError` for one that is damaged."""
    entries: dict[str, TreeEntry] = {}
    position = 0
    try:
        while position < len(data):
            space = data.index(b" ", position)
            end = data.index(b"\0", space)
            name = data[space + 1 : end].decode("utf-8", "surrogateescape")
            entry = int(data[position:space], 8), data[end + 1 : end + 21].hex()
            entries[name] = tuple.__new__(TreeEntry, entry)
            position = end + 21
    except ValueError as error:
        raise damaged(f"tree {object_id('tree', data)}", error) from error
    if position != len(data):
        raise damaged(f"tree {object_id('tree', data)}", ValueError("it is cut short"))
    return entries


def damaged(what: str, error: Exception) -> StoreError:
    """Return the error for an object that cannot be read; `what` names it."""
    return StoreError(
        f"{what} cannot be read ({type(error).__name__}: {error}): it was changed by hand or is damaged; "
        f"run `git fsck`, and restore it from an earlier commit, a clone or a backup"
    )


def encode_commit(commit: CommitObject) -> bytes:
    """Encode a commit. Names and messages are taken as they are: callers have made them safe."""
    lines = [f"tree {commit.tree}"]
    for parent in commit.parents:
        lines.append(f"parent {parent}")
    name, email, time = commit.author
    lines.append(f"author {name} <{email}> {time} +0000")
    name, email, time = commit.committer
    lines.append(f"committer {name} <{email}> {time} +0000")
    if commit.record:
        lines.append(f"reactifact {commit.record}")
    return ("\n".join(lines) + "\n\n" + commit.message).encode()


@lru_cache(maxsize=2048)
def parse_commit(data: bytes) -> CommitObject:
    """Parse a commit, those of other git programs included (unknown headers are passed over).

    Raises `StoreError` for one that is damaged.
    """
    head, _, message = data.decode("utf-8", "replace").partition("\n\n")
    tree = record = ""
    parents: list[Oid] = []
    people: dict[str, Signature] = {}
    for line in head.split("\n"):
        key, _, value = line.partition(" ")
        if key in ("tree", "parent") and not _OID.fullmatch(value):
            raise damaged(f"commit {object_id('commit', data)}", ValueError(f"its {key} is {value[:60]!r}"))
        if key == "tree":
            tree = value
        elif key == "reactifact":
            record = value
        elif key == "parent":
            parents.append(value)
        elif key in ("author", "committer"):
            people[key] = _parse_person(value)
    if not tree:
        raise damaged(f"commit {object_id('commit', data)}", ValueError("it has no tree"))
    try:
        return CommitObject(tree, tuple(parents), people["author"], people["committer"], message, record)
    except KeyError as error:
        raise damaged(f"commit {object_id('commit', data)}", ValueError(f"it has no {error}")) from error


def first_parent(item: GitObject) -> Oid | None:
    """Return the first parent of a commit, `None` for a root and for what is not a commit."""
    match = _FIRST_PARENT.match(item.data) if item.kind == "commit" else None
    return None if match is None else match[1].decode()


def references(item: GitObject) -> list[tuple[Oid, bool]]:
    """Return the ids of the objects that one refers to, each with whether it is known to be a blob.

    A submodule of a tree is a commit of another repository, and left out.
    """
    if item.kind == "commit":
        commit = parse_commit(item.data)
        return [(oid, False) for oid in (commit.tree, *commit.parents)]
    if item.kind == "tree":
        entries = parse_tree(item.data).values()
        return [(oid, mode != TREE_MODE) for mode, oid in entries if mode != _SUBMODULE_MODE]
    return [(tag_target(item.data), False)] if item.kind == "tag" else []


def reach(
    read: Callable[[list[Oid]], Mapping[Oid, GitObject]],
    starts: Iterable[Oid],
    known: set[Oid],
    walked: Callable[[], None] = lambda: None,
) -> None:
    """Add all that some objects reach, and they themselves, to what is known; blobs are not read.

    `walked` is called after each read. What is known is taken to be there with all it reaches. Read level by
    level. Raises as `read` does.
    """
    level = set(starts) - known
    while level:
        known |= level
        below: set[Oid] = set()
        waiting = iter(level)
        while batch := list(islice(waiting, _READ_AT_ONCE)):
            for item in read(batch).values():
                for oid, is_blob in references(item):
                    if oid not in known:
                        (known if is_blob else below).add(oid)
            walked()
        level = below - known


def tag_target(data: bytes) -> Oid:
    """Return the id of what a tag points at. Raises `StoreError` for a tag that is damaged."""
    if (match := _TAGGED.match(data)) is None:
        raise damaged(f"tag {object_id('tag', data)}", ValueError("it does not say what it points at"))
    return match[1].decode()


def _parse_person(text: str) -> Signature:
    name, _, rest = text.partition(" <")
    email, _, when = rest.partition("> ")
    seconds = when.split(" ")[0]
    return Signature(name, email, int(seconds) if _SECONDS.fullmatch(seconds) else 0)
