"""Removing from a bare repository, for good, every object that no ref reaches: packs, loose files, leftovers.

`git gc` keeps what is unreachable for weeks, in reflogs and cruft packs. Here nothing of it stays: a pack
that holds any of it is written anew without it, whole and without deltas, and only then removed.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial

from ....errors import StoreBusy, StoreError
from ...objects import GitObject, Oid, reach
from ..files import read_plain, remove, sync_folder
from ..locks import try_lock
from .checked_packs import borrowed_folders
from .pack import CorruptPack, build_pack, parse_index
from .pack_folder import PackFolder, Step, is_ours

Read = Callable[[list[Oid]], Mapping[Oid, GitObject]]

_STEM = re.compile(r"pack-[0-9a-f]{40,64}")
_LOOSE = re.compile(r"[0-9a-f]{2}/[0-9a-f]{38}")
_LEFT_OVER = re.compile(r"\.?tmp[_-].*")
_SLICE_BYTES = 32 * 1024 * 1024
_WAIT = 60.0
_PAUSE = 0.02


class Collector:
    """Removes what no ref reaches from the objects of one repository. Callers hold the maintenance lock."""

    def __init__(
        self, objects: str, packs: PackFolder, tips: Callable[[], Iterable[Oid]], read: Read, *, step: Step
    ) -> None:
        self._objects = objects
        self._packs = packs
        self._tips = tips
        self._read = read
        self._step = step

    def collect(self) -> None:
        """Remove it. What a writer has published and not named yet is waited for, and looked at then.

        Raises `StoreError` where the objects are borrowed from another repository or a pack cannot be read,
        `StoreBusy` where a writer holds a pack for very long; what is reached is never touched.
        """
        self.require_own()
        deadline = time.monotonic() + _WAIT
        while True:
            stems = self._stems()
            at_work = {stem for stem in stems if self._is_at_work(stem)}
            # after the packs were listed: a pack that nobody holds has its ref by now, or never gets one
            kept: set[Oid] = set()
            reach(self._read, self._tips(), kept)
            self._step("collect-walked")
            for stem in sorted(stems - at_work):
                self._without(stem, kept)
            self._loose(kept)
            if not at_work:
                break
            if time.monotonic() > deadline:
                raise StoreBusy(
                    f"a writer has held a new pack of {self._objects} for over {_WAIT:g} seconds: what it "
                    f"holds could not be looked at; end it, then do this again"
                )
            time.sleep(_PAUSE)
        self._left_over()
        sync_folder(self._packs.folder)

    def require_own(self) -> None:
        """Refuse a repository that borrows objects: nothing of those can be removed. Raises `StoreError`."""
        borrowed = next(borrowed_folders(self._objects), None)
        if borrowed is not None:
            raise StoreError(
                f"{self._objects} borrows objects from {os.path.dirname(borrowed)} (info/alternates), where "
                f"nothing can be removed from here: make it whole with `git repack -a -d` and remove "
                f"info/alternates, then do this again, there as well"
            )

    def _stems(self) -> set[str]:
        names = (name.partition(".") for name in os.listdir(self._packs.folder))
        return {stem for stem, _, ending in names if ending == "pack" and _STEM.fullmatch(stem)}

    def _is_at_work(self, stem: str) -> bool:
        """Tell whether a writer of ours holds a pack that it has published and not named yet."""
        keep = f"{self._packs.folder}/{stem}.keep"
        with suppress(FileNotFoundError):
            if is_ours(keep):
                lock = try_lock(keep, create=False)
                if lock is None:
                    return True
                lock.release(unlink=False)
        return False

    def _without(self, stem: str, kept: set[Oid]) -> None:
        base = f"{self._packs.folder}/{stem}"
        try:
            held = [entry.oid.hex() for entry in parse_index(read_plain(f"{base}.idx"))]
        except FileNotFoundError:
            held = []  # half removed by somebody who was killed: nothing is read from it
        except CorruptPack as error:
            raise StoreError(
                f"{base}.idx cannot be read ({error}), so what its pack holds is not known: make it anew "
                f"with `git index-pack {base}.pack`, then do this again"
            ) from error
        wanted = [oid for oid in held if oid in kept]
        if len(wanted) == len(held) and held:
            return
        for objects in self._slices(wanted):
            packed = build_pack(objects)
            with self._packs.published([packed.pack], partial(getattr, packed, "idx")):
                self._step("collect-pack-written")
        for ending in ("idx", "rev", "bitmap", "mtimes", "promisor", "keep", "pack"):
            remove(f"{base}.{ending}")
        sync_folder(self._packs.folder)
        self._step("collect-pack-removed")

    def _slices(self, oids: list[Oid]) -> Iterator[dict[Oid, GitObject]]:
        found: dict[Oid, GitObject] = {}
        size = 0
        for oid in oids:
            found.update(self._read([oid]))
            size += len(found[oid].data)
            if size >= _SLICE_BYTES:
                yield found
                found, size = {}, 0
        if found:
            yield found

    def _loose(self, kept: set[Oid]) -> None:
        for folder in os.listdir(self._objects):
            path = f"{self._objects}/{folder}"
            if len(folder) != 2 or not os.path.isdir(path):
                continue
            gone = False
            for name in os.listdir(path):
                is_object = _LOOSE.fullmatch(f"{folder}/{name}") is not None
                if (is_object and folder + name not in kept) or _LEFT_OVER.fullmatch(name):
                    remove(f"{path}/{name}")
                    gone = True
            if gone:
                sync_folder(path)
                self._step("collect-loose-removed")

    def _left_over(self) -> None:
        """Remove what git was killed over: unfinished packs, objects of a push that was never taken in."""
        for folder in (self._objects, self._packs.folder):
            for name in os.listdir(folder):
                path = f"{folder}/{name}"
                if not _LEFT_OVER.fullmatch(name) and not name.startswith("incoming-"):
                    continue
                if os.path.isdir(path):
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    remove(path)
