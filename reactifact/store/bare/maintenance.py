"""Merging small packs, so that files and descriptors stay bounded however long a store lives.

Packs are sorted into tiers by size, each eight times the one before; a tier that holds eight packs
becomes one of a higher tier. So the number of packs grows with the logarithm of the store, and an
object is copied about once a tier. Packed bytes are copied as they stand; packs with deltas (git's
own) and whatever has a `.keep` are left alone. It decides what to merge and when an old pack goes;
the format is owned by `pack`, the files by `pack_folder`.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from ..files import read_plain
from .pack import (
    CorruptPack,
    Entry,
    build_index,
    check_index,
    holds_all,
    holds_deltas,
    is_intact,
    join_packs,
    parse_index,
    plan_join,
)
from .pack_folder import PackFolder, Step, StoredPack

TRIGGER = 64
"""Small packs at which a store asks for maintenance."""

_FAN = 8
_SMALLEST_TIER = 4 * 1024
_SMALL_PACK = 256 * 1024 * 1024
_SLICE_PACKS = 128
_SLICE_BYTES = 512 * 1024 * 1024


class _Source(NamedTuple):
    stored: StoredPack
    pack: mmap.mmap
    entries: list[Entry]


class PackMerger:
    """Merges the small packs of one folder. Callers hold the maintenance lock around `merge`."""

    def __init__(self, folder: PackFolder, step: Step) -> None:
        self._folder = folder
        self._step = step
        self._left_alone: set[str] = set()

    def small_packs(self) -> list[StoredPack]:
        """Return the packs that may be merged, oldest first."""
        return [
            pack
            for pack in self._folder.packs()
            if pack.size <= _SMALL_PACK and pack.name not in self._left_alone
        ]

    def merge(self) -> None:
        """Merge slice after slice, as many as the packs of this moment need.

        Bounded, because writers at work bring new packs as fast as they are merged.
        """
        for _ in range(1 + len(self.small_packs()) // (_FAN - 1)):
            if not self._merge_slice():
                return

    def _merge_slice(self) -> bool:
        chosen = _choose(self.small_packs())
        if not chosen:
            return False
        with ExitStack() as stack:
            sources = list(self._open(chosen, stack))
            if len(sources) > 1:
                self._merge(sources)
        return True

    def _open(self, chosen: Sequence[StoredPack], stack: ExitStack) -> Iterator[_Source]:
        for stored in chosen:
            try:
                with open(stored.pack_path, "rb") as file:
                    pack = stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
                index = read_plain(stored.idx_path)
                check_index(index, len(pack))
                entries = parse_index(index)
                mergeable = holds_all(pack, entries) and not holds_deltas(pack, entries)
                mergeable = mergeable and is_intact(pack, entries)
            except FileNotFoundError:
                continue  # git gc took it: its objects are in another pack now
            except (CorruptPack, ValueError):  # ValueError: an empty file cannot be mapped
                mergeable = False
            if mergeable:
                yield _Source(stored, pack, entries)
            else:
                self._left_alone.add(stored.name)

    def _merge(self, sources: Sequence[_Source]) -> None:
        joined = _Joined(sources)
        try:
            with self._folder.published(joined.chunks(), joined.index):
                self._step("pack-merged")
                # From here on a `git gc` may count on the merged pack, so it stays whatever happens.
                self._folder.drop_multi_pack_index()
                for source in sources:
                    if source.stored.is_untouched():
                        source.stored.remove()
                        self._step("merged-pack-removed")
        except _SourceVanished:
            return


class _SourceVanished(Exception):
    """A `git gc` ran meanwhile: what it threw away must not come back through a merged pack."""


class _Joined:
    """The bytes of a merged pack, then those of its index, whose checksum is known only after."""

    def __init__(self, sources: Sequence[_Source]) -> None:
        self._sources = sources
        self._pieces = plan_join([(source.pack, source.entries) for source in sources])
        self._checksum = b""

    def chunks(self) -> Iterator[bytes]:
        for chunk in join_packs([source.pack for source in self._sources], self._pieces):
            self._checksum = chunk
            yield chunk

    def index(self) -> bytes:
        """Return the index, or give up while nothing is in place yet: `_SourceVanished`."""
        if not all(source.stored.is_untouched() for source in self._sources):
            raise _SourceVanished
        return build_index((piece.entry for piece in self._pieces), self._checksum)


def _choose(packs: Sequence[StoredPack]) -> list[StoredPack]:
    """Return the packs of the lowest tier that is full, as many as one slice may hold."""
    tiers: dict[int, list[StoredPack]] = {}
    for pack in packs:
        tiers.setdefault(_tier(pack.size), []).append(pack)
    for _, full in sorted((tier, found) for tier, found in tiers.items() if len(found) >= _FAN):
        chosen: list[StoredPack] = []
        total = 0
        for pack in full[:_SLICE_PACKS]:
            total += pack.size
            if len(chosen) > 1 and total > _SLICE_BYTES:
                break
            chosen.append(pack)
        return chosen
    return []


def _tier(size: int) -> int:
    tier = 0
    while size > _SMALLEST_TIER:
        size //= _FAN
        tier += 1
    return tier
