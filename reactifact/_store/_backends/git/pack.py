"""The bytes of packs, their indexes and loose objects: built, read, checked, joined."""

from __future__ import annotations

import hashlib
import re
import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from mmap import mmap
from typing import NamedTuple, cast

from ....errors import StoreError
from ...objects import GitObject, Kind, Oid, deflate, object_id, require_size

# -- pack and index bytes (pack version 2, index version 2), written and joined by hand --


_TYPE = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}
_ORDER = {"commit": 0, "tag": 1, "tree": 2, "blob": 3}
_WHOLE_TYPES = frozenset(_TYPE.values())
_INDEX_MAGIC = b"\xfftOc"
_PACK_MAGIC = b"PACK\0\0\0\2"
_LARGE_OFFSET = 0x80000000
_HEADER = 12
_HASH = 20
_OIDS = 8 + 1024

Packed = bytes | memoryview | mmap
"""The bytes of a pack or an index, in memory or mapped."""


class PackFiles(NamedTuple):
    """A pack, its index, and the name git would give it (forty hex digits, its own checksum)."""

    pack: bytes
    idx: bytes
    name: str


class Entry(NamedTuple):
    """One object of a pack: its binary id, where it starts, and the CRC-32 of its packed bytes."""

    oid: bytes
    offset: int
    crc: int


class Piece(NamedTuple):
    """One packed object to be copied: where it lies, and its place in the new pack."""

    source: int
    start: int
    end: int
    entry: Entry


class CorruptPack(ValueError):
    """An index whose bytes contradict themselves."""


def build_pack(objects: Mapping[Oid, GitObject]) -> PackFiles:
    """Pack `objects` without deltas at zlib level 1; equal objects give equal bytes."""
    chunks = [b"PACK" + struct.pack(">II", 2, len(objects))]
    entries: list[Entry] = []
    offset = _HEADER
    for _, oid in sorted([(_ORDER[item.kind], oid) for oid, item in objects.items()]):
        kind, data = objects[oid]
        packed = _entry_header(_TYPE[kind], len(data)) + deflate(data, 1)
        entries.append(tuple.__new__(Entry, (bytes.fromhex(oid), offset, zlib.crc32(packed))))
        chunks.append(packed)
        offset += len(packed)
    body = b"".join(chunks)
    checksum = hashlib.sha1(body, usedforsecurity=False).digest()
    return PackFiles(body + checksum, build_index(entries, checksum), checksum.hex())


def build_index(entries: Iterable[Entry], pack_checksum: bytes) -> bytes:
    """Return the version 2 index of a pack that holds `entries`."""
    ordered = sorted(entries)
    counts = [0] * 256
    for entry in ordered:
        counts[entry.oid[0]] += 1
    fanout = accumulate(counts)
    offsets: list[int] = []
    large: list[int] = []
    for entry in ordered:
        if entry.offset < _LARGE_OFFSET:
            offsets.append(entry.offset)
        else:
            offsets.append(_LARGE_OFFSET | len(large))
            large.append(entry.offset)
    size = len(ordered)
    body = b"".join(
        [
            _INDEX_MAGIC,
            struct.pack(">I256I", 2, *fanout),
            b"".join([entry.oid for entry in ordered]),
            struct.pack(f">{size}I", *[entry.crc for entry in ordered]),
            struct.pack(f">{size}I", *offsets),
            struct.pack(f">{len(large)}Q", *large),
            pack_checksum,
        ]
    )
    return body + hashlib.sha1(body, usedforsecurity=False).digest()


def parse_index(index: Packed) -> list[Entry]:
    """Return the entries of a version 2 index in order of id. Raises `CorruptPack`."""
    view = memoryview(index)
    if bytes(view[:8]) != _INDEX_MAGIC + b"\0\0\0\2":
        raise CorruptPack("not a version 2 index")
    places = _offsets(view)
    count = len(places)
    sums = struct.unpack_from(f">{count}I", view, _OIDS + count * _HASH)
    entries: list[Entry] = []
    for position, (crc, offset) in enumerate(zip(sums, places, strict=True)):
        start = _OIDS + position * _HASH
        entries.append(Entry(bytes(view[start : start + _HASH]), offset, crc))
    return entries


def check_bounds(index: Packed, pack_size: int) -> None:
    """Raise `CorruptPack` for an index by which libgit2 could read beyond its end, or that of its pack.

    It looks at the places alone: one that is wrong inside the pack only leads to an error of libgit2.
    """
    places = _offsets(index)
    if places and not _HEADER <= min(places) <= max(places) < pack_size - _HASH:
        raise CorruptPack("a place in it lies outside of the pack")


def check_index(index: Packed, pack_size: int) -> None:
    """Raise `CorruptPack` for an index that is damaged or leads out of its pack of `pack_size` bytes."""
    if not is_whole(index):
        raise CorruptPack("its checksum does not match")
    check_bounds(index, pack_size)


def _table(index: Packed) -> tuple[int | None, int]:
    """Return where the places of an index start (`None` in version 1) and how many there are."""
    versioned = bytes(index[:4]) == _INDEX_MAGIC
    fanout = 8 if versioned else 0
    oids = fanout + 1024
    if len(index) < oids + 2 * _HASH or (versioned and bytes(index[4:8]) != b"\0\0\0\2"):
        raise CorruptPack("it is not an index of version 1 or 2")
    counts = struct.unpack_from(">256I", index, fanout)
    count = counts[-1]
    if any(first > second for first, second in pairwise(counts)):
        raise CorruptPack("its table of counts is not in order")
    room = len(index) - oids - 2 * _HASH
    room -= count * (_HASH + (8 if versioned else 4))
    if room < 0 or room % 8 or (room and not versioned):
        raise CorruptPack("its length is not that of its entries")
    return (oids + count * (_HASH + 4) if versioned else None), count


def _offsets(index: Packed) -> Sequence[int]:
    """Return the places that an index of version 1 or 2 holds, in order of id. Raises `CorruptPack`."""
    start, count = _table(index)
    if start is None:
        return [struct.unpack_from(">I", index, 1024 + at * (4 + _HASH))[0] for at in range(count)]
    places = array("I")
    end = start + 4 * count
    places.frombytes(bytes(index[start:end]))
    if sys.byteorder == "little":
        places.byteswap()
    if not places or max(places) < _LARGE_OFFSET:
        return places
    large = struct.unpack_from(f">{(len(index) - 2 * _HASH - end) // 8}Q", index, end)
    try:
        return [large[at ^ _LARGE_OFFSET] if at & _LARGE_OFFSET else at for at in places]
    except IndexError:
        raise CorruptPack("it refers to a place that it does not hold") from None


def is_whole(file: Packed) -> bool:
    """Tell whether a pack or an index of one ends in the checksum of what stands before."""
    content = memoryview(file)
    return hashlib.sha1(content[:-20], usedforsecurity=False).digest() == content[-20:]


def holds_all(pack: Packed, entries: Sequence[Entry]) -> bool:
    """Tell whether `entries` are as many as the head of `pack` says."""
    return bytes(pack[:8]) == _PACK_MAGIC and bytes(pack[8:_HEADER]) == struct.pack(">I", len(entries))


def holds_deltas(pack: Packed, entries: Sequence[Entry]) -> bool:
    """Tell whether any entry of `pack` is a delta: one that means nothing outside its pack."""
    return any((pack[entry.offset] >> 4) & 7 not in _WHOLE_TYPES for entry in entries)


def is_intact(pack: Packed, entries: Sequence[Entry]) -> bool:
    """Tell whether every packed object matches the CRC-32 that the index holds for it."""
    with memoryview(pack) as view:
        return all(_crc(view, start, end) == entry.crc for entry, start, end in _extents(view, entries))


def _crc(view: memoryview, start: int, end: int) -> int:
    with view[start:end] as packed:
        return zlib.crc32(packed)


def plan_join(packs: Sequence[tuple[Packed, Sequence[Entry]]]) -> list[Piece]:
    """Say what to copy from where so that one pack holds each object of `packs` once.

    Objects keep the order they have; of one that stands in several packs the first is taken.
    """
    seen: set[bytes] = set()
    pieces: list[Piece] = []
    offset = _HEADER
    for source, (pack, entries) in enumerate(packs):
        for entry, start, end in _extents(pack, entries):
            if entry.oid in seen:
                continue
            seen.add(entry.oid)
            pieces.append(Piece(source, start, end, Entry(entry.oid, offset, entry.crc)))
            offset += end - start
    return pieces


def join_packs(packs: Sequence[Packed], pieces: Sequence[Piece]) -> Iterator[bytes]:
    """Yield the bytes of the pack that `plan_join` planned, its checksum as the last chunk."""
    header = b"PACK" + struct.pack(">II", 2, len(pieces))
    digest = hashlib.sha1(header, usedforsecurity=False)
    yield header
    for piece in pieces:
        chunk = bytes(packs[piece.source][piece.start : piece.end])
        digest.update(chunk)
        yield chunk
    yield digest.digest()


def _extents(pack: Packed, entries: Sequence[Entry]) -> Iterator[tuple[Entry, int, int]]:
    """Yield each entry with where its packed bytes start and end, in order of place."""
    ordered = sorted(entries, key=lambda entry: entry.offset)
    ends = [entry.offset for entry in ordered[1:]] + [len(pack) - _HASH]
    for entry, end in zip(ordered, ends, strict=True):
        yield entry, entry.offset, end


@lru_cache(maxsize=4096)
def _entry_header(kind: int, size: int) -> bytes:
    """Encode type and size: four bits of the size first, then seven a byte."""
    byte = (kind << 4) | (size & 0x0F)
    size >>= 4
    header = bytearray()
    while size:
        header.append(byte | 0x80)
        byte = size & 0x7F
        size >>= 7
    header.append(byte)
    return bytes(header)


# -- loose objects, read by hand: one file an object, as git writes them on its own --


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
