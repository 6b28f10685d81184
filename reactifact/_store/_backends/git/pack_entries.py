"""The entries of packs, and where indexes say that they stand: read and checked before libgit2 follows them.

A damaged entry may say that it is a delta on itself, on what lies in the middle of another object, or that it
becomes more than there is memory for. libgit2 then never comes back, fills the memory, or ends the process.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from io import BytesIO
from itertools import pairwise
from mmap import MADV_DONTNEED, mmap

from ...objects import GitObject, Kind, require_size
from .pack import Packed, index_table

WHOLE = frozenset((1, 2, 3, 4))
"""The types of entries that hold an object whole."""

BY_OFFSET, BY_ID = 6, 7
"""The types of deltas: their base by how far before them it stands, or by its id."""

_HEADER = 12
_MULTI_HEAD = 12
_HASH = 20
_CHUNK = 512
_LONGEST_SIZE = 56  # bits, beyond which no size is meant
_DELTA_HEAD = 16
"""Bytes of a delta that libgit2 takes the two sizes at its beginning from."""

_WHOLE_BITS = frozenset(kind << 4 for kind in WHOLE)
_TWO_BYTES = 1 << 11
"""Bytes from which on the head of an entry has more than two bytes."""

_REMEMBERED = 100_000
_LARGE = 1024 * 1024
_PIECE = 256 * 1024
_KINDS: dict[int, Kind] = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}


class DamagedPack(ValueError):
    """A pack whose bytes contradict themselves; the text says what is wrong."""


def entry_head(pack: Packed, place: int) -> tuple[int, int, int]:
    """Return type and size of the entry at a place, and where its head ends. Raises `DamagedPack`."""
    byte = pack[place]
    place += 1
    kind, size, shift = (byte >> 4) & 7, byte & 0x0F, 4
    while byte & 0x80:
        byte = pack[place]
        place += 1
        size |= (byte & 0x7F) << shift
        shift = _next(shift)
    return kind, size, place


def base_offset(pack: Packed, place: int) -> tuple[int, int]:
    """Return how far before a delta its base stands, as it says at a place, and where that ends."""
    byte = pack[place]
    place += 1
    back = byte & 0x7F
    while byte & 0x80:
        byte = pack[place]
        place += 1
        back = ((back + 1) << 7) | (byte & 0x7F)
        if back > len(pack):
            raise DamagedPack("a delta in it rests on something before its beginning")
    return back, place


def delta_size(delta: bytes, place: int) -> tuple[int, int]:
    """Return a size that a delta says at a place, and where it ends. Raises `DamagedPack`."""
    size = shift = 0
    while True:
        byte = delta[place]
        place += 1
        size |= (byte & 0x7F) << shift
        shift = _next(shift)
        if not byte & 0x80:
            return size, place


def _next(shift: int) -> int:
    if shift > _LONGEST_SIZE:
        raise DamagedPack("it holds a size that no object has")
    return shift + 7


def find_sorted(index: Packed, fanout: int, ids: int, stride: int, oid: bytes) -> int | None:
    """Return the number of a binary id in a sorted table, searched step by step as libgit2 does.

    `fanout` and `ids` are where the table of counts and the first id start, `stride` is from id to id.
    """
    at = fanout + 4 * oid[0]
    high = int.from_bytes(index[at : at + 4])
    low = int.from_bytes(index[at - 4 : at]) if oid[0] else 0
    while low < high:
        middle = (low + high) // 2
        start = ids + middle * stride
        found = bytes(index[start : start + _HASH])
        if found == oid:
            return middle
        if found > oid:
            high = middle
        else:
            low = middle + 1
    return None


class PackEntries:
    """The entries of one pack by their places, checked up to `most` bytes an object.

    `index` and `pack` are the bytes of both files; `check_bounds` has found the index to lead nowhere else.
    """

    def __init__(self, index: Packed, pack: Packed, most: int) -> None:
        self._index = index
        self._pack = pack
        self._most = most
        self._end = len(pack) - _HASH
        self._sound: set[int] = set()
        start, count = index_table(index)
        self._places, self._count = start, count
        if start is None:  # version 1: place and id stand side by side
            self._fanout, self._ids, self._stride = 0, 1024 + 4, 4 + _HASH
        else:
            self._fanout, self._ids, self._stride = 8, 8 + 1024, _HASH

    def find(self, oid: bytes) -> int | None:
        """Return the place of an object by its binary id, found as libgit2 finds it."""
        number = find_sorted(self._index, self._fanout, self._ids, self._stride, oid)
        return None if number is None else self._place(number)

    def _place(self, number: int) -> int:
        if self._places is None:
            at = 1024 + number * self._stride
            return int.from_bytes(self._index[at : at + 4])
        at = self._places + 4 * number
        place = int.from_bytes(self._index[at : at + 4])
        if place & 0x80000000:
            at = self._places + 4 * self._count + 8 * (place ^ 0x80000000)
            place = int.from_bytes(self._index[at : at + 8])
        return place

    def require(self, place: int, what: str = "an object") -> None:
        """Check the entry at a place and all that it rests on.

        Raises `DamagedPack` for one that libgit2 must not follow. Raises `ObjectTooLarge`, naming `what` is
        read, for one that says it becomes more than is taken.
        """
        passed: set[int] = set()
        while place not in self._sound:
            if place in passed:
                raise DamagedPack(f"the delta at byte {place} rests on itself")
            passed.add(place)
            base = self._base(place, what)
            if base is None:
                break
            place = base
        if len(self._sound) > _REMEMBERED:
            self._sound.clear()
        self._sound |= passed

    def is_large(self, place: int) -> bool:
        """Tell whether an entry that was checked is a large object, and whole."""
        pack = self._pack
        if not pack[place] & pack[place + 1] & pack[place + 2] & 0x80:
            return False  # of less than 256 KiB: most are, and this is asked of each that is read
        kind, size, _ = entry_head(pack, place)
        return size >= _LARGE and kind in WHOLE

    def large_object(self, place: int) -> GitObject:
        """Return the object that stands whole at a place, with little memory beyond its own.

        Raises `DamagedPack`.
        """
        pack = self._pack
        kind, size, at = entry_head(pack, place)
        inflater, content = zlib.decompressobj(), BytesIO()
        try:
            for start in range(at, self._end, _PIECE):
                rest = bytes(pack[start : min(start + _PIECE, self._end)])
                while rest and not inflater.eof:
                    content.write(inflater.decompress(rest, _PIECE))
                    rest = inflater.unconsumed_tail
                if inflater.eof or content.tell() > size:
                    break
        except zlib.error as error:
            raise DamagedPack(f"the entry at byte {place} cannot be decompressed: {error}") from error
        if isinstance(pack, mmap):
            pack.madvise(MADV_DONTNEED)  # its pages would count as memory of ours as long as it is mapped
        if not inflater.eof or content.tell() != size:
            raise DamagedPack(f"the entry at byte {place} does not become the {size} bytes that it says")
        return GitObject(_KINDS[kind], content.getvalue())

    def _base(self, place: int, what: str) -> int | None:
        """Check one entry; return the place of what it rests on, `None` where it is whole."""
        if not _HEADER <= place < self._end:
            raise DamagedPack(f"an entry is to stand at byte {place}, outside of it")
        try:
            kind, size, at = entry_head(self._pack, place)
            require_size(what, size, self._most)
            if kind in WHOLE:
                return None
            if kind == BY_OFFSET:
                back, at = base_offset(self._pack, at)
                base = place - back if back else None
            elif kind == BY_ID:
                base = self.find(bytes(self._pack[at : at + _HASH]))
                at += _HASH
            else:
                raise DamagedPack(f"the entry at byte {place} has the unknown type {kind}")
            head = self._delta_head(at, size)
            _, end = delta_size(head, 0)
            made, _ = delta_size(head, end)
        except IndexError:
            raise DamagedPack(f"the entry at byte {place} ends too early") from None
        except zlib.error as error:
            raise DamagedPack(f"the delta at byte {place} cannot be decompressed: {error}") from error
        if base is None:
            raise DamagedPack(f"the delta at byte {place} rests on nothing in the pack")
        require_size(what, made, self._most)
        return base

    def _delta_head(self, at: int, size: int) -> bytes:
        """Return the beginning of a delta, as much of it as libgit2 inflates to learn its sizes."""
        wanted = min(size, _DELTA_HEAD)
        inflater = zlib.decompressobj()
        head = b""
        while len(head) < wanted and not inflater.eof:
            chunk = inflater.unconsumed_tail + self._pack[at : min(at + _CHUNK, self._end)]
            if not chunk:
                raise IndexError
            at += _CHUNK
            head += inflater.decompress(chunk, _DELTA_HEAD - len(head))
        if len(head) < wanted:
            raise IndexError
        return head


def unsound_places(pack: Packed, places: Sequence[int], most: int) -> list[int]:
    """Return the places of the entries that are not plainly whole and small: by their first two bytes."""
    if most < _TWO_BYTES:
        return list(places)
    whole = _WHOLE_BITS
    return [at for at in places if (pack[at] & 0x70) not in whole or (pack[at] & pack[at + 1] & 0x80)]


class MultiPackIndex:
    """Git's index over all packs of a folder. Raises `DamagedPack` for one that is not what git writes."""

    def __init__(self, content: Packed) -> None:
        self._content = content
        if bytes(content[:6]) != b"MIDX\1\1" or len(content) < _MULTI_HEAD:
            raise DamagedPack("it is not an index over packs of version 1")
        self._parts: dict[bytes, tuple[int, int]] = {}
        chunks = content[6]
        places = [
            (bytes(content[at : at + 4]), int.from_bytes(content[at + 4 : at + 12]))
            for at in range(_MULTI_HEAD, _MULTI_HEAD + 12 * (chunks + 1), 12)
        ]
        for (name, start), (_, end) in pairwise(places):
            if not start <= end <= len(content):
                raise DamagedPack("a part of it lies outside of it")
            self._parts[name] = start, end
        for name in (b"PNAM", b"OIDF", b"OIDL", b"OOFF"):
            if name not in self._parts:
                raise DamagedPack(f"it has no part {name.decode()}")
        start, end = self._parts[b"PNAM"]
        self._names = bytes(content[start:end]).rstrip(b"\0").split(b"\0")
        self._large = self._parts.get(b"LOFF", (0, 0))
        (fanout, end), (ids, last), (offsets, least) = (
            self._parts[name] for name in (b"OIDF", b"OIDL", b"OOFF")
        )
        count = int.from_bytes(content[fanout + 1020 : fanout + 1024])
        counts = struct.unpack_from(">256I", content, fanout) if end - fanout >= 1024 else ()
        if not counts or any(first > second for first, second in pairwise(counts)):
            raise DamagedPack("its table of counts is not in order")
        if last - ids < count * _HASH or least - offsets < count * 8:
            raise DamagedPack("its length is not that of its entries")

    def find(self, oid: bytes) -> tuple[str, int | None]:
        """Return the name of the pack, without extension, that holds an object, and the place there."""
        content = self._content
        number = find_sorted(content, self._parts[b"OIDF"][0], self._parts[b"OIDL"][0], _HASH, oid)
        if number is None:
            return "", None
        at = self._parts[b"OOFF"][0] + 8 * number
        pack, place = struct.unpack_from(">II", content, at)
        start, end = self._large
        if place & 0x80000000 and end > start:
            at = start + 8 * (place ^ 0x80000000)
            if at + 8 > end:
                raise DamagedPack("it refers to a place that it does not hold")
            place = int.from_bytes(content[at : at + 8])
        if pack >= len(self._names):
            raise DamagedPack("it refers to a pack that it does not name")
        return os.fsdecode(self._names[pack]).removesuffix(".idx"), place
