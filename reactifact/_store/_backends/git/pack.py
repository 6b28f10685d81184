"""The bytes of packs, their indexes and loose objects: built, read, checked, joined."""

from __future__ import annotations

import hashlib
import re
import struct
import sys
import zlib
from array import array
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from mmap import MADV_DONTNEED, PAGESIZE, mmap
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
_CHUNK = 1024 * 1024
PACK_MODE = 0o444
"""Of the files of a pack: they are never written again."""

_AT_ONCE = 4096
"""About how many objects a step of a merge goes through: some milliseconds."""

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


class CorruptPack(ValueError):
    """An index whose bytes contradict themselves."""


def _head(count: int) -> bytes:
    return _PACK_MAGIC + struct.pack(">I", count)


def _in_order(objects: Mapping[Oid, GitObject]) -> list[Oid]:
    """Return the ids of objects as they stand in a pack: by kind, then by id."""
    return [oid for _, oid in sorted([(_ORDER[item.kind], oid) for oid, item in objects.items()])]


def build_pack(objects: Mapping[Oid, GitObject]) -> PackFiles:
    """Pack `objects` without deltas at zlib level 1; equal objects give equal bytes."""
    chunks = [_head(len(objects))]
    entries: list[Entry] = []
    offset = _HEADER
    for oid in _in_order(objects):
        kind, data = objects[oid]
        packed = _entry_header(_TYPE[kind], len(data)) + deflate(data, 1)
        entries.append(tuple.__new__(Entry, (bytes.fromhex(oid), offset, zlib.crc32(packed))))
        chunks.append(packed)
        offset += len(packed)
    body = b"".join(chunks)
    checksum = hashlib.sha1(body, usedforsecurity=False).digest()
    return PackFiles(body + checksum, build_index(entries, checksum), checksum.hex())


class PackStream:
    """The pack that `build_pack` builds, and its index, made while they are written: for large objects."""

    def __init__(self, objects: Mapping[Oid, GitObject]) -> None:
        self._objects = objects
        self._entries: list[Entry] = []
        self._checksum = b""

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of the pack, its checksum as the last chunk. To be gone through once."""
        objects = self._objects
        header = _head(len(objects))
        digest = hashlib.sha1(header, usedforsecurity=False)
        yield header
        offset = len(header)
        for oid in _in_order(objects):
            begun, crc = offset, 0
            for chunk in _packed(objects[oid]):
                digest.update(chunk)
                crc = zlib.crc32(chunk, crc)
                offset += len(chunk)
                yield chunk
            self._entries.append(Entry(bytes.fromhex(oid), begun, crc))
        self._checksum = digest.digest()
        yield self._checksum

    def index(self) -> bytes:
        """Return the index of the pack, once all of it was made."""
        return build_index(self._entries, self._checksum)


_PIECE = 256 * 1024  # bytes that are compressed at once, so that they are not all held compressed too


def _packed(item: GitObject) -> Iterator[bytes]:
    """Yield the bytes of one object in a pack."""
    kind, data = item
    header = _entry_header(_TYPE[kind], len(data))
    if len(data) <= _PIECE:
        yield header + deflate(data, 1)
        return
    yield header
    deflater = zlib.compressobj(1)
    with memoryview(data) as view:
        for start in range(0, len(data), _PIECE):
            with view[start : start + _PIECE] as piece:
                if chunk := deflater.compress(piece):
                    yield chunk
    yield deflater.flush()


def build_index(entries: Iterable[Entry], pack_checksum: bytes) -> bytes:
    """Return the version 2 index of a pack that holds `entries`."""
    ordered = sorted(entries)
    counts = [0] * 256
    for entry in ordered:
        counts[entry.oid[0]] += 1
    oids = b"".join([entry.oid for entry in ordered])
    crcs = struct.pack(f">{len(ordered)}I", *[entry.crc for entry in ordered])
    return _index(counts, oids, crcs, [entry.offset for entry in ordered], pack_checksum)


def _index(
    counts: Iterable[int],
    oids: bytes | bytearray,
    crcs: bytes | bytearray,
    offsets: Iterable[int],
    pack_checksum: bytes,
) -> bytes:
    """Put an index together: the columns in order of id, and how many ids begin with each byte."""
    places = array("I")
    large: list[int] = []
    for offset in offsets:
        if offset < _LARGE_OFFSET:
            places.append(offset)
        else:
            places.append(_LARGE_OFFSET | len(large))
            large.append(offset)
    body = b"".join(
        [
            _INDEX_MAGIC,
            struct.pack(">I256I", 2, *accumulate(counts)),
            oids,
            crcs,
            _big_endian(places),
            struct.pack(f">{len(large)}Q", *large),
            pack_checksum,
        ]
    )
    return body + hashlib.sha1(body, usedforsecurity=False).digest()


def _big_endian(numbers: array[int]) -> bytes:
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers.tobytes()


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


def check_bounds(index: Packed, pack_size: int) -> Sequence[int]:
    """Return the places that an index holds.

    Raises `CorruptPack` for one by which libgit2 could read beyond its end, or that of its pack.
    """
    places = _offsets(index)
    if places and not _HEADER <= min(places) <= max(places) < pack_size - _HASH:
        raise CorruptPack("a place in it lies outside of the pack")
    return places


def check_index(index: Packed, pack_size: int) -> Sequence[int]:
    """Return the places that an index holds.

    Raises `CorruptPack` for one that is damaged or leads out of its pack of `pack_size` bytes.
    """
    if not is_whole(index):
        raise CorruptPack("its checksum does not match")
    return check_bounds(index, pack_size)


def index_table(index: Packed) -> tuple[int | None, int]:
    """Return where the places of an index start (`None` in version 1) and how many there are.

    Raises `CorruptPack`.
    """
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
    start, count = index_table(index)
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
    digest, end = hashlib.sha1(usedforsecurity=False), len(file) - _HASH
    for at in range(0, end, _CHUNK):
        digest.update(file[at : min(at + _CHUNK, end)])
        give_back(file, at)
    return digest.digest() == file[end:]


def give_back(file: Packed, at: int) -> None:
    """Let the system have the memory of a chunk of a mapped file again: it counts as ours else."""
    if isinstance(file, mmap):
        start = at - at % PAGESIZE
        file.madvise(MADV_DONTNEED, start, min(_CHUNK + PAGESIZE, len(file) - start))


class PackSource:
    """A pack and its index as a source of a merge. Raises `CorruptPack` for an index that is damaged.

    Both may be mapped. The columns of the index are kept as they stand there, in order of id.
    """

    def __init__(self, pack: Packed, index: Packed) -> None:
        self.places = check_index(index, len(pack))
        if bytes(index[:8]) != _INDEX_MAGIC + b"\0\0\0\2":
            raise CorruptPack("not a version 2 index")
        self.pack = pack
        size = len(self.places)
        self.fanout = (0, *struct.unpack_from(">256I", index, 8))
        self.oids = bytes(index[_OIDS : _OIDS + size * _HASH])
        self.crcs = bytes(index[_OIDS + size * _HASH : _OIDS + size * (_HASH + 4)])
        self.dropped: list[tuple[int, int]] = []
        """The extents of objects that another source has too, in order of place."""

    def can_be_merged(self) -> bool:
        """Tell whether the pack is sound and holds what the index says, without deltas.

        A delta means nothing outside of its pack. Reads all of it.
        """
        head = bytes(self.pack[:_HEADER])
        return head == _head(len(self.places)) and not self._holds_deltas() and is_whole(self.pack)

    def _holds_deltas(self) -> bool:
        pack = self.pack
        return not {(pack[place] >> 4) & 7 for place in self.places} <= _WHOLE_TYPES

    def ids(self, start: int, end: int) -> list[bytes]:
        """Return the ids at these places of the index, in order."""
        oids = self.oids
        return [oids[at : at + _HASH] for at in range(start * _HASH, end * _HASH, _HASH)]

    def drop(self, at: Iterable[int]) -> None:
        """Leave out the objects at these places of the index."""
        ordered = sorted(self.places)
        ends = dict(pairwise([*ordered, len(self.pack) - _HASH]))
        self.dropped = sorted((self.places[one], ends[self.places[one]]) for one in at)

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield the extents of what stays, as few as they can be."""
        start = _HEADER
        for first, end in self.dropped:
            if first > start:
                yield start, first
            start = end
        if start < len(self.pack) - _HASH:
            yield start, len(self.pack) - _HASH


class PackJoin:
    """Several packs as one that holds each object once: where several have it, the first one's stays.

    It goes by the columns of the indexes and copies whole runs of packs: a merge is work for the interpreter
    that everything else waits for. `pace` is called between its steps.
    """

    def __init__(self, sources: Sequence[PackSource], pace: Callable[[], None] = lambda: None) -> None:
        self._sources = sources
        self._pace = pace
        total = sum(len(source.places) for source in sources)
        width = max(1, 256 * _AT_ONCE // max(total, 1))
        self._ranges = [(byte, min(byte + width, 256)) for byte in range(0, 256, width)]
        """First bytes of ids that are gone through together."""
        self._drop_doubles()
        self.size = sum(len(source.places) - len(source.dropped) for source in sources)
        """Objects."""
        self._begins: list[int] = []  # how far the objects of each source move
        end = _HEADER
        for source in sources:
            self._begins.append(end - _HEADER)
            end += sum(last - first for first, last in source.runs())

    def _drop_doubles(self) -> None:
        doubles: list[list[int]] = [[] for _ in self._sources]
        for first, last in self._ranges:
            seen: set[bytes] = set()
            for source, found in zip(self._sources, doubles, strict=True):
                start = source.fanout[first]
                ids = source.ids(start, source.fanout[last])
                if not seen.isdisjoint(ids):
                    found += [start + at for at, oid in enumerate(ids) if oid in seen]
                seen.update(ids)
            self._pace()
        for source, found in zip(self._sources, doubles, strict=True):
            if found:
                source.drop(found)

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of the pack, its checksum as the last chunk."""
        header = _head(self.size)
        digest = hashlib.sha1(header, usedforsecurity=False)
        yield header
        for source in self._sources:
            for start, end in source.runs():
                for at in range(start, end, _CHUNK):
                    chunk = bytes(source.pack[at : min(at + _CHUNK, end)])
                    give_back(source.pack, at)
                    digest.update(chunk)
                    yield chunk
                    self._pace()
        yield digest.digest()

    def index(self, pack_checksum: bytes) -> bytes:
        """Return the index of the pack."""
        moved = [
            self._moved(source, begin) for source, begin in zip(self._sources, self._begins, strict=True)
        ]
        counts = [0] * 256
        oids, crcs = bytearray(), bytearray()
        offsets = array("Q")
        for first, last in self._ranges:
            rows: list[tuple[bytes, int, bytes]] = []
            for source, places in zip(self._sources, moved, strict=True):
                start, end = source.fanout[first], source.fanout[last]
                sums = source.crcs
                rows += zip(
                    source.ids(start, end),
                    places[start:end],
                    [sums[at : at + 4] for at in range(start * 4, end * 4, 4)],
                    strict=True,
                )
            rows = sorted(row for row in rows if row[1])
            for oid, _, _ in rows:
                counts[oid[0]] += 1
            oids += b"".join([row[0] for row in rows])
            offsets.extend([row[1] for row in rows])
            crcs += b"".join([row[2] for row in rows])
            self._pace()
        return _index(counts, oids, crcs, offsets, pack_checksum)

    def _moved(self, source: PackSource, begin: int) -> array[int]:
        """Return where the objects of a source stand in the joined pack, 0 for those that are left out."""
        if not source.dropped:
            return array("Q", [place + begin for place in source.places])
        firsts = [first for first, _ in source.dropped]
        gone = [0, *accumulate(end - first for first, end in source.dropped)]
        left_out = set(firsts)
        return array(
            "Q",
            [
                0 if place in left_out else place + begin - gone[bisect(firsts, place)]
                for place in source.places
            ],
        )


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
