"""Packs and their indexes, looked at before libgit2 follows them.

libgit2 does not ask whether what stands in them is true: a bad place in an index, or an entry that says it is
a delta and is none, can end the process, keep it for good, or fill its memory.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from ....errors import DamagedIndex, ObjectTooLarge, StoreError
from ...objects import MAX_OBJECT, GitObject, Oid, object_id
from .pack import CorruptPack, check_bounds, check_index, is_whole
from .pack_entries import DamagedPack, MultiPackIndex, PackEntries, unsound_places

MULTI_PACK_INDEX = "multi-pack-index"
"""The name of git's index over all packs."""

_ALTERNATES_DEPTH = 5
_SCANNED = 16 * 1024 * 1024
"""Bytes of a pack up to which the heads of all its entries are looked at once; in larger ones, and in those
that hold many deltas, only the entries that are read, before they are."""

_TRUSTED = 4 * 1024 * 1024
"""Bytes of a pack of ours up to which it is not looked at: it holds no object that is read in pieces."""

_CHECKED_AT_ONCE = 1024
"""Deltas and larger entries of a pack that are checked when it is first seen, if it has no more of them."""

_LOOK_AGAIN = 1.0
"""Seconds after which the files are looked at again although none came or went: whoever copies over one cuts
it first, and to read what a mapped file held beyond its end ends the process."""


class _Stamp(NamedTuple):
    """By which a file is known again."""

    inode: int
    time: int
    size: int

    @classmethod
    def of(cls, path: str) -> _Stamp:
        stat = os.stat(path)
        return cls(stat.st_ino, stat.st_mtime_ns, stat.st_size)


class _Seen(NamedTuple):
    """An index that was found good with its pack, and what to ask before an entry of that is read."""

    stamps: Mapping[str, _Stamp]
    entries: PackEntries | MultiPackIndex | None


class CheckedPacks:
    """The packs of one folder with their indexes, each looked at before libgit2 follows it.

    What was found good is remembered by name, time and size of both. When something cannot be found or
    read, the question is asked again of the whole of each index, so that the one at fault is named. An object
    of more than `max_object` bytes is refused before there is memory for it. What `before` found good is not
    looked at again as long as it is the same.
    """

    def __init__(self, folder: str, max_object: int = MAX_OBJECT, before: CheckedPacks | None = None) -> None:
        self._folder = folder
        self._max_object = max_object
        self._listed: int | None = None
        self._look_again = 0.0
        self._safe: Mapping[str, _Seen] = before._safe if before is not None else {}
        self._whole: Mapping[str, _Seen] = before._whole if before is not None else {}
        self._asked: Mapping[str, PackEntries | MultiPackIndex] = {}
        self._named: dict[str, PackEntries] = {}

    @property
    def asks(self) -> bool:
        """True where `require_object` is to be called before an object is read: few packs of ours need it."""
        return bool(self._asked)

    def require(self, *, again: bool = False, whole: bool = False) -> bool:
        """Check what is new in the folder, with `again` also what was written anew under its old name.

        Returns true where a file is another than the one that libgit2 may have opened under its name.

        Costs one look at the folder's time where nothing came or went, except once a second. With `whole`
        each index is read from beginning to end. Raises `DamagedIndex`, and `StoreError` for a file that was
        cut while it is in use.
        """
        listed, now = os.stat(self._folder).st_mtime_ns, time.monotonic()
        if listed == self._listed and now < self._look_again and not (again or whole):
            return False
        again = again or now >= self._look_again
        known, before = self._whole if whole else self._safe, self._safe
        good: dict[str, _Seen] = {}
        with os.scandir(self._folder) as found:
            for name in [entry.name for entry in found]:
                if name.endswith(".idx") or name == MULTI_PACK_INDEX:
                    seen = known.get(name)
                    if seen is None or again or whole:
                        with suppress(FileNotFoundError):  # merged away meanwhile
                            good[name] = self._checked(name, seen, whole)
                    else:
                        good[name] = seen
        asked = {name: seen.entries for name, seen in good.items() if seen.entries is not None}
        # libgit2 goes on reading from packs that are gone, until it is opened anew
        self._asked = {**self._asked, **asked}
        self._safe = good
        self._listed, self._look_again = listed, now + _LOOK_AGAIN
        if whole:
            self._whole = good
        return any(name in before and before[name].stamps != seen.stamps for name, seen in good.items())

    def trust(self, base: str) -> None:
        """Take a pack for good that was put at `base` just now, without deltas, by a writer of ours.

        One that may hold large objects is looked at like any other.
        """
        path, pack = f"{base}.idx", f"{base}.pack"
        with suppress(FileNotFoundError):  # merged away already
            stamps = {path: _Stamp.of(path), pack: _Stamp.of(pack)}
            if stamps[pack].size <= _TRUSTED:
                self._safe = {**self._safe, os.path.basename(path): _Seen(stamps, None)}

    def require_object(self, oid: Oid) -> GitObject | None:
        """Check each entry that libgit2 may read for an object, and all that it rests on.

        Returns the object where it is large and stands whole: libgit2 would hold it twice. Raises
        `StoreError` for one that must not be followed, `ObjectTooLarge`.
        """
        name, large = bytes.fromhex(oid), None
        for file, asked in self._asked.items():
            if isinstance(asked, MultiPackIndex):
                stem, place, entries = self._by_multi_pack_index(asked, name)
            else:
                stem, place, entries = file.removesuffix(".idx"), asked.find(name), asked
            if place is not None and entries is not None:
                what = f"object {oid} in {self._folder}/{stem}.pack"
                try:
                    entries.require(place, what)
                    if large is None and entries.is_large(place):
                        large = entries.large_object(place)
                        if object_id(*large) != oid:
                            raise DamagedPack("it does not hold what its id says")
                except DamagedPack as error:
                    raise StoreError(
                        f"{what} is damaged: {error}; run `git fsck` on the store and fetch the object from "
                        f"a clone or a backup"
                    ) from error
        return large

    def _by_multi_pack_index(
        self, index: MultiPackIndex, name: bytes
    ) -> tuple[str, int | None, PackEntries | None]:
        """Return the pack and the place by which git's index over all packs leads to an object."""
        path = f"{self._folder}/{MULTI_PACK_INDEX}"
        try:
            stem, place = index.find(name)
        except DamagedPack as error:
            raise _damaged(path, error) from error
        if place is None:
            return "", None, None
        asked = self._asked.get(f"{stem}.idx") or self._named.get(stem)
        if asked is None:
            try:
                packed, table = _mapped(f"{self._folder}/{stem}.pack"), _mapped(f"{self._folder}/{stem}.idx")
            except FileNotFoundError:
                return stem, None, None  # libgit2 does not find it either
            asked = self._named[stem] = PackEntries(table, packed, self._max_object)
        assert isinstance(asked, PackEntries)
        if asked.find(name) != place:
            raise _damaged(path, CorruptPack("it says another place than the index of the pack"))
        return stem, place, asked

    def _checked(self, name: str, known: _Seen | None, whole: bool) -> _Seen:
        path = f"{self._folder}/{name}"
        stamps = {path: _Stamp.of(path)}
        if path.endswith(".idx"):
            pack = f"{path.removesuffix('.idx')}.pack"
            stamps[pack] = _Stamp.of(pack)
        if known is not None:
            if known.stamps == stamps:
                return known
            for file, before in known.stamps.items():
                if stamps[file].inode == before.inode and stamps[file].size < before.size:
                    raise StoreError(
                        f"{file} was cut from {before.size} to {stamps[file].size} bytes while it is in use; "
                        f"put it back whole from a clone or a backup, under another name that is then renamed"
                    )
        try:
            return _Seen(stamps, self._check(path, whole))
        except (CorruptPack, ValueError) as error:  # ValueError: an empty file cannot be mapped
            raise _damaged(path, error) from error

    def _check(self, path: str, whole: bool) -> PackEntries | MultiPackIndex | None:
        content = _mapped(path)
        if not path.endswith(".idx"):
            if whole and not is_whole(content):
                raise CorruptPack("its checksum does not match")
            return MultiPackIndex(content)
        check = check_index if whole else check_bounds
        pack_path = f"{path.removesuffix('.idx')}.pack"
        size = os.stat(pack_path).st_size
        places = check(content, size)
        pack = _mapped(pack_path)
        unsound = unsound_places(pack, places, self._max_object) if size <= _SCANNED else places
        if not unsound:
            return None
        entries = PackEntries(content, pack, self._max_object)
        if len(unsound) > _CHECKED_AT_ONCE or size > _SCANNED:
            return entries
        try:
            for place in unsound:
                entries.require(place)
        except (DamagedPack, ObjectTooLarge):
            return entries  # what it holds besides can be read
        return entries if any(map(entries.is_large, unsound)) else None


def borrowed_folders(objects: str) -> Iterator[str]:
    """Yield the pack folders that `objects/info/alternates` adds to one, each once, as git follows it."""
    known = {os.path.realpath(objects)}
    level = [objects]
    for _ in range(_ALTERNATES_DEPTH + 1):
        found = [other for borrower in level for other in _borrowed(borrower)]
        level = []
        for other in found:
            place = os.path.realpath(other)
            if place not in known:
                known.add(place)
                level.append(other)
                if os.path.isdir(f"{other}/pack"):
                    yield f"{other}/pack"


def _borrowed(objects: str) -> list[str]:
    try:
        with open(f"{objects}/info/alternates", "rb") as file:
            lines = file.read().decode("utf-8", "surrogateescape").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
    wanted = (line for line in lines if line and not line.startswith("#") and "\0" not in line)
    return [os.path.join(objects, line) for line in wanted]


def _mapped(path: str) -> mmap.mmap:
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _damaged(path: str, error: ValueError) -> DamagedIndex:
    stem = path.removesuffix(".idx")
    anew = f", make it anew with `git index-pack {stem}.pack`" if stem != path else ""
    return DamagedIndex(
        f"{path} is damaged; remove it{anew}, and run `git fsck` (nothing is read by it: {error})"
    )
