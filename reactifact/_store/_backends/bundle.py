"""Git bundles: writing one, reading one as a store, and unpacking what others packed."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ...errors import NotAStore, ObjectTooLarge, StoreError
from ..objects import MAX_OBJECT, GitObject, Kind, Oid, object_id, references, require_size
from ..protocol import ObjectBackend, Progress, RefUpdate, object_count
from .files import checked_path, os_errors, remove, sync_folder, write_all
from .git.pack import build_pack
from .git.pack_entries import BY_ID, BY_OFFSET, DamagedPack, base_offset, delta_size, entry_head
from .kv import MemoryBackend

# -- pack bytes back to objects (pack version 2), deltas included, so that packs of git can be read too --


_KINDS: Mapping[int, Kind] = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}
_HEADER = 12
_HASH = 20
_CHUNK = 16 * 1024

MAX_TOTAL = 1024 * 1024 * 1024
"""Bytes that all objects of a pack may have together, unless told otherwise: they stand in memory."""


class _Room:
    """How much may still be unpacked: of one object, and of all together."""

    def __init__(self, max_object: int, max_total: int) -> None:
        self._max_object = max_object
        self._max_total = max_total
        self._total = 0

    def take(self, size: int, start: int) -> None:
        """Take room for an object that says it has `size` bytes. Raises `ObjectTooLarge`."""
        require_size(f"the object at {start}", size, self._max_object)
        self._total += size
        require_size(f"all up to the object at {start}", self._total, self._max_total, "max_total")


class _Entry(NamedTuple):
    """One object as it stands in the pack: whole, or a delta on `base`."""

    kind: Kind | None
    base: int | Oid | None
    data: bytes


def unpack(pack: bytes, *, max_object: int = MAX_OBJECT, max_total: int = MAX_TOTAL) -> dict[Oid, GitObject]:
    """Return the objects of a pack by id.

    Raises `DamagedPack` for one that is cut short, changed, or needs objects that it does not hold, and
    `ObjectTooLarge` for one that says it becomes more than is taken, before there is memory for it.
    """
    room = _Room(max_object, max_total)
    if len(pack) < _HEADER + _HASH or pack[:4] != b"PACK":
        raise DamagedPack("it holds no pack")
    version, count = struct.unpack_from(">II", pack, 4)
    if version not in (2, 3):
        raise DamagedPack(f"its pack has version {version}, and 2 is what can be read")
    if hashlib.sha1(pack[:-_HASH], usedforsecurity=False).digest() != pack[-_HASH:]:
        raise DamagedPack("its checksum does not match: it was cut short or changed")
    entries: dict[int, _Entry] = {}
    position = _HEADER
    for _ in range(count):
        start = position
        entries[start], position = _entry(pack, start, room)
    return _Resolver(entries, room).objects()


def _entry(pack: bytes, start: int, room: _Room) -> tuple[_Entry, int]:
    kind, size, position = entry_head(pack, start)
    base: int | Oid | None = None
    if kind == BY_OFFSET:
        back, position = base_offset(pack, position)
        base = start - back
    elif kind == BY_ID:
        base = pack[position : position + _HASH].hex()
        position += _HASH
    elif kind not in _KINDS:
        raise DamagedPack(f"an object of the unknown type {kind} stands at {start}")
    room.take(size, start)
    data, position = _inflate(pack, position, size)
    if len(data) != size:
        raise DamagedPack(f"the object at {start} does not have {size} bytes")
    return _Entry(_KINDS.get(kind), base, data), position


def _inflate(pack: bytes, position: int, size: int) -> tuple[bytes, int]:
    """Return what stands compressed at a place, no more than one byte beyond `size`, and where it ends."""
    inflater = zlib.decompressobj()
    parts: list[bytes] = []
    try:
        left = size + 1
        while not inflater.eof and left:
            chunk = pack[position : position + _CHUNK]
            if not chunk:
                raise DamagedPack("it ends in the middle of an object")
            parts.append(inflater.decompress(chunk, left))
            left -= len(parts[-1])
            position += len(chunk) - len(inflater.unused_data)
    except zlib.error as error:
        raise DamagedPack(f"an object in it cannot be decompressed: {error}") from error
    return b"".join(parts), position


class _Resolver:
    """Puts deltas on what they are made from."""

    def __init__(self, entries: Mapping[int, _Entry], room: _Room) -> None:
        self._entries = entries
        self._room = room
        self._done: dict[int, GitObject] = {}
        self._places: dict[Oid, int] = {}

    def objects(self) -> dict[Oid, GitObject]:
        """Return all objects by id."""
        waiting = list(self._entries)
        while waiting:
            left = [place for place in waiting if not self._resolve(place)]
            if len(left) == len(waiting):
                raise DamagedPack("it holds deltas on objects that it does not hold")
            waiting = left
        return {oid: self._done[place] for oid, place in self._places.items()}

    def _resolve(self, place: int) -> bool:
        """Make the object at a place, if what it rests on is known."""
        chain: list[int] = []
        at: int | None = place
        while at is not None and at not in self._done:
            if at not in self._entries or len(chain) > len(self._entries):
                raise DamagedPack(f"the delta at {place} rests on nothing")
            chain.append(at)
            base = self._entries[at].base
            if base is None:
                break
            at = base if isinstance(base, int) else self._places.get(base)
        if at is None:
            return False
        for at in reversed(chain):
            self._make(at)
        return True

    def _make(self, place: int) -> None:
        kind, base, data = self._entries[place]
        if base is None:
            assert kind is not None
            made = GitObject(kind, data)
        else:
            below = self._done[base if isinstance(base, int) else self._places[base]]
            made = GitObject(below.kind, self._applied(below.data, data, place))
        self._done[place] = made
        self._places.setdefault(object_id(*made), place)

    def _applied(self, base: bytes, delta: bytes, place: int) -> bytes:
        """Return what a delta makes of `base`, which is as long as the delta says."""
        length, position = delta_size(delta, 0)
        size, position = delta_size(delta, position)
        self._room.take(size, place)
        parts: list[bytes] = []
        made = 0
        for part in _apply(base, delta, position):
            made += len(part)
            if made > size:
                break
            parts.append(part)
        if made != size or length != len(base):
            raise DamagedPack(f"the delta at {place} does not make an object of {size} bytes")
        return b"".join(parts)


def _apply(base: bytes, delta: bytes, position: int) -> Iterator[bytes]:
    """Yield the parts of the object that a delta makes of `base`, its instructions from a place on."""
    while position < len(delta):
        code = delta[position]
        position += 1
        if not code & 0x80:
            yield delta[position : position + code]
            position += code
            continue
        fields = []
        for bit in range(7):
            value = 0
            if code & (1 << bit):
                value = delta[position]
                position += 1
            fields.append(value)
        start = int.from_bytes(bytes(fields[:4]), "little")
        length = int.from_bytes(bytes(fields[4:]), "little") or 0x10000
        yield base[start : start + length]


# -- bundles: refs and the objects they need in one file, in git's own format (version 2) --


SIGNATURES = (b"# v2 git bundle\n", b"# v3 git bundle\n")
_LINE = re.compile(rb"([0-9a-f]{40}) ([^\n]+)")


def is_bundle(path: str | os.PathLike[str]) -> bool:
    """Tell whether a path is a file that begins as a bundle does."""
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            return file.read(len(SIGNATURES[0])) in SIGNATURES
    except OSError:
        return False


def encode_bundle(refs: Mapping[str, Oid], objects: Mapping[Oid, GitObject]) -> bytes:
    """Return the bytes of a bundle that rests on nothing outside of it.

    `HEAD`, if it is among the refs, comes last, so that a clone knows what to check out.
    """
    names = sorted(refs, key=lambda name: (name == "HEAD", name))
    header = SIGNATURES[0] + b"".join(f"{refs[name]} {name}\n".encode() for name in names) + b"\n"
    return header + build_pack(objects).pack


def decode_bundle(
    data: bytes, location: str, *, max_object: int = MAX_OBJECT, max_total: int = MAX_TOTAL
) -> tuple[dict[str, Oid], dict[Oid, GitObject]]:
    """Return the refs and the objects in the bytes of a bundle.

    Raises `NotAStore`, naming `location`, for bytes that are none, that are damaged, or that need
    objects which are not in them, and `ObjectTooLarge` where they become more than is taken.
    """
    end = data.find(b"\n\n")
    if data[: len(SIGNATURES[0])] not in SIGNATURES or end < 0:
        raise NotAStore(f"{location} is not a git bundle; give the file that `reactifact bundle` wrote")
    refs: dict[str, Oid] = {}
    for line in data[len(SIGNATURES[0]) : end].split(b"\n"):
        if line.startswith(b"@") and line != b"@object-format=sha1":
            raise NotAStore(
                f"{location} asks for {line[1:].decode(errors='replace')}, which cannot be read; make the "
                f"bundle with `git bundle create --version=2`"
            )
        if line.startswith(b"-"):
            raise NotAStore(
                f"{location} holds a part of a history and rests on commit {line[1:13].decode()}: make it "
                f"of the whole, with `reactifact bundle` or `git bundle create FILE --all`"
            )
        if line.startswith(b"@"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise NotAStore(f"{location} is damaged: {line[:60]!r} is not a ref; copy it again")
        refs[match[2].decode(errors="replace")] = match[1].decode()
    try:
        objects = unpack(data[end + 2 :], max_object=max_object, max_total=max_total)
    except ObjectTooLarge as error:
        raise ObjectTooLarge(f"{location}: {error}") from error
    except (DamagedPack, IndexError) as error:
        raise NotAStore(f"{location} is damaged: {error}; copy it again from where it was made") from error
    missing = sorted(name for name, oid in refs.items() if oid not in objects)
    if missing:
        raise NotAStore(f"{location} is damaged: it lacks the commit of {missing[0]}; make it again")
    return refs, objects


def write_bundle(
    path: str | os.PathLike[str], refs: Mapping[str, Oid], objects: Mapping[Oid, GitObject]
) -> int:
    """Write a bundle to `path`, whole or not at all; return its size in bytes.

    A file of that name is replaced. Raises `StoreError` when the disk refuses.
    """
    place = checked_path(path)
    data = encode_bundle(refs, objects)
    folder = os.path.dirname(os.path.abspath(place))
    with os_errors(place, "writing"):
        descriptor, temporary = tempfile.mkstemp(prefix=".bundle-", dir=folder)
        try:
            try:
                os.fchmod(descriptor, 0o644)
                write_all(descriptor, data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, place)
        except BaseException:
            remove(temporary)
            raise
        sync_folder(folder)
    return len(data)


class BundleBackend(MemoryBackend):
    """A bundle read as a store: everything is in memory, nothing can be written.

    Raises `NotAStore` for a file that is not a bundle or is damaged, `ObjectTooLarge` for one that says that
    an object has more than `max_object` bytes, or all of them more than `max_total`.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, max_object: int = MAX_OBJECT, max_total: int = MAX_TOTAL
    ) -> None:
        self._path = os.fspath(path)
        super().__init__()
        with os_errors(self._path, "reading"), open(self._path, "rb") as file:
            data = file.read()
        refs, objects = decode_bundle(data, self._path, max_object=max_object, max_total=max_total)
        super().write(objects)
        inner = {name: oid for name, oid in refs.items() if name.startswith("refs/")}
        super().write({}, [RefUpdate(name, None, oid) for name, oid in inner.items()])

    @property
    def location(self) -> str:
        """The path as it was given."""
        return self._path

    def write(self, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate] = ()) -> None:
        """Refuse. Raises `StoreError`."""
        raise StoreError(
            f"{self._path} is a bundle, which is only read: `git clone --mirror {self._path} DIR` makes "
            f"a store of it"
        )


def reachable(
    backend: ObjectBackend, starts: Iterable[Oid], progress: Progress | None = None
) -> dict[Oid, GitObject]:
    """Return everything that some commits, tags, trees or blobs reach, read level by level.

    `progress` is told how many were found, and about how many the backend holds.
    Raises `MissingObject`.
    """
    found: dict[Oid, GitObject] = {}
    level = set(starts)
    total = None if progress is None else object_count(backend)
    while level:
        read = backend.read_many(level)
        found.update(read)
        if progress is not None:
            progress(len(found), total)
        below: set[Oid] = set()
        for item in read.values():
            below.update(oid for oid, _ in references(item))
        level = below - found.keys()
    return found
