"""The folder `objects/pack`: packs published under a `.keep`, swept, merged.

It owns names, order and durability of the files there, what marks a writer as alive, the sweep of what
killed writers left, and the merging of small packs in bounded slices. A `.keep` of ours is a hard link to a
file that its writer holds locked, so a kept pack whose lock can be had belongs to a dead writer.

A write of a small pack is noted in the `journal`, by one sync, and not synced here. Where nothing is noted
(a large pack, `durability="strict"`) it takes five syncs, in this order, and none stands for another: pack
and index before they get the names by which git finds them, else a power cut leaves names with no content;
their folder before a ref leads to what they hold; the content of the ref before it gets the name of the ref;
the folder of that before the write is reported. Git, which knows nothing of us, then finds a sound
repository after a cut at any moment.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

from ..files import read_plain, refuse_links, remove, sync_folder, write_all, write_new
from ..locks import FileLock, try_lock
from .checked_packs import MULTI_PACK_INDEX
from .pack import PACK_MODE, CorruptPack, PackJoin, PackSource

# -- what marks a writer as alive: one locked file, to which its `.keep` files are hard links --


KEEP_MARK = b"reactifact writer"

_NAME = re.compile(r"[0-9a-f]{16}")
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK, errno.ENOSYS)


class WriterMark:
    """The locked file of one writer, made when first needed."""

    def __init__(self, folder: str, *, sync: bool) -> None:
        self._folder = folder
        self._sync = sync
        self._mutex = threading.Lock()
        self._lock: FileLock | None = None
        self._lost: list[FileLock] = []
        self._in_use = 0

    @contextmanager
    def kept(self, base: str) -> Iterator[None]:
        """Hold `<base>.keep` for the length of a `with`."""
        lock = self._enter()
        try:
            try:
                try:
                    os.link(lock.path, f"{base}.keep")
                except FileNotFoundError:  # somebody took the folder of the writers away
                    lock = self._renew(lock)
                    os.link(lock.path, f"{base}.keep")
                own = None
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                own = self._locked_file(f"{base}.keep.new")
                own.rename(f"{base}.keep")
            try:
                yield
            finally:
                remove(f"{base}.keep")
                if own is not None:
                    own.release(unlink=False)
        finally:
            self._leave()

    def has_others(self) -> bool:
        """Tell whether files of other writers, alive or dead, stand there."""
        return any(path != self._own_path() for path in self._paths())

    def sweep(self) -> None:
        """Remove the files of dead writers."""
        for path in self._paths():
            with suppress(FileNotFoundError):
                if path != self._own_path() and (lock := try_lock(path, create=False)) is not None:
                    lock.release(unlink=is_marked(lock))

    def close(self) -> None:
        """Give the file back, unless a pack is in work under it."""
        with self._mutex:
            if self._lock is not None and not self._in_use:
                lock, self._lock = self._lock, None
                self._lost.clear()
                with suppress(OSError):  # a file that stays is swept as a dead writer's
                    lock.release(unlink=True)

    def __del__(self) -> None:
        self.close()

    def _enter(self) -> FileLock:
        with self._mutex:
            if self._lock is None:
                self._lock = self._own_file()
            self._in_use += 1
            return self._lock

    def _renew(self, lost: FileLock) -> FileLock:
        """Make another file where the one we had is gone. The old one stays locked for its links."""
        with self._mutex:
            if self._lock is None or self._lock is lost:
                self._lost.append(lost)
                self._lock = self._own_file()
            return self._lock

    def _own_file(self) -> FileLock:
        refuse_links(os.path.dirname(self._folder), self._folder)
        os.makedirs(self._folder, exist_ok=True)
        return self._locked_file(f"{self._folder}/{secrets.token_hex(8)}")

    def _leave(self) -> None:
        with self._mutex:
            self._in_use -= 1

    def _locked_file(self, path: str) -> FileLock:
        lock = try_lock(path)
        if lock is None:
            raise FileExistsError(errno.EEXIST, "a file under a name just made up is locked", path)
        try:
            host = socket.gethostname().encode()
            write_all(lock.descriptor, b"%s: process %d on %s\n" % (KEEP_MARK, os.getpid(), host))
            if self._sync:
                os.fsync(lock.descriptor)
        except BaseException:
            lock.release(unlink=True)
            raise
        return lock

    def _own_path(self) -> str | None:
        return self._lock.path if self._lock is not None else None

    def _paths(self) -> list[str]:
        refuse_links(self._folder)
        with suppress(FileNotFoundError):
            return [f"{self._folder}/{name}" for name in os.listdir(self._folder) if _NAME.fullmatch(name)]
        return []


def is_marked(lock: FileLock) -> bool:
    """Tell whether a locked file is a writer's of ours; one killed early has written nothing yet."""
    os.lseek(lock.descriptor, 0, os.SEEK_SET)
    return os.read(lock.descriptor, len(KEEP_MARK)) in (KEEP_MARK, b"")


# -- the folder `objects/pack` --


_OURS = re.compile(r"(pack-[0-9a-f]{40})\.(?:keep|keep\.new|pack\.new|idx\.new)")
_FANOUT_BYTES = 1024
"""The table of counts at the beginning of an index, after its header where it has one."""

Step = Callable[[str], None]
"""Called with the name of each step that has just been done."""


class StoredPack(NamedTuple):
    """A complete pack: the path without extension, bytes of the pack file, when it was written."""

    base: str
    size: int
    written: float

    @property
    def name(self) -> str:
        """The file name without extension."""
        return os.path.basename(self.base)

    @property
    def pack_path(self) -> str:
        """The pack file."""
        return f"{self.base}.pack"

    @property
    def idx_path(self) -> str:
        """The index file."""
        return f"{self.base}.idx"

    def is_untouched(self) -> bool:
        """Tell whether it is still there and nobody has put a `.keep` beside it since."""
        return (
            os.path.exists(self.pack_path)
            and os.path.exists(self.idx_path)
            and not os.path.exists(f"{self.base}.keep")
        )

    def remove(self) -> None:
        """Take it away, the index first: without it nobody starts to read the pack."""
        remove(self.idx_path)
        remove(self.pack_path)


class PackFolder:
    """Publishes and sweeps packs in one folder.

    `placed` is called with the path, without extension, of each pack that was put in place.

    With `protect` false no `.keep` stands beside a new pack, so that a test can show what it is for.
    """

    def __init__(
        self, folder: str, writers: str, *, sync: bool, step: Step, placed: Callable[[str], None]
    ) -> None:
        self.folder = folder
        self._placed = placed
        self.protect = True
        self._sync = sync
        self._step = step
        self._writer = WriterMark(writers, sync=sync)

    @contextmanager
    def published(self, chunks: Iterable[bytes], index: Callable[[], bytes]) -> Iterator[None]:
        """Put a pack in place, synced, and hold its `.keep` until the end of the `with`.

        `chunks` are the bytes of the pack; `index` is called for those of the index once they are
        used up, and may raise to give up before anything is in place.
        """
        with self.kept() as base:
            self.place(base, chunks, index, sync=self._sync)
            yield

    @contextmanager
    def kept(self) -> Iterator[str]:
        """Hold the `.keep` of a pack to come for the length of a `with`; gives its path without extension.

        The name is never one that existed before, not even for equal content: `git repack` may
        already have decided to remove a pack that is there, and two writers would share one `.keep`.
        """
        base = f"{self.folder}/pack-{secrets.token_hex(20)}"
        with self._writer.kept(base):
            self._step("keep-renamed")
            if not self.protect:
                remove(f"{base}.keep")
            yield base
        self._step("keep-removed")

    def packs(self) -> list[StoredPack]:
        """Return the complete packs that have nothing but an index beside them, oldest first.

        Packs with a `.keep`, a bitmap, a promisor mark and the like are git's or somebody's own.
        """
        beside: dict[str, set[str]] = {}
        for name in os.listdir(self.folder):
            stem, dot, extension = name.partition(".")
            if dot and stem.startswith("pack-"):
                beside.setdefault(stem, set()).add(extension)
        found: list[StoredPack] = []
        for stem, extensions in beside.items():
            if extensions == {"pack", "idx"}:
                base = f"{self.folder}/{stem}"
                with suppress(FileNotFoundError):
                    stat = os.stat(f"{base}.pack")
                    found.append(StoredPack(base, stat.st_size, stat.st_mtime))
        return sorted(found, key=lambda pack: (pack.written, pack.base))

    def needs_sweep(self) -> bool:
        """Tell whether anything stands there that only a writer at work, or a killed one, has."""
        return bool(self._unfinished()) or self._writer.has_others()

    def sweep(self) -> None:
        """Remove what killed writers left. Callers hold the sweep lock."""
        for stem in sorted(self._unfinished()):
            self._sweep_one(f"{self.folder}/{stem}")
        self._writer.sweep()

    def drop_multi_pack_index(self) -> None:
        """Remove git's index over all packs, which would name packs that are about to go."""
        for name in os.listdir(self.folder):
            if name == MULTI_PACK_INDEX or name.startswith(f"{MULTI_PACK_INDEX}-"):
                remove(f"{self.folder}/{name}")

    def close(self) -> None:
        """Give back what marks this writer as alive; the next publication takes it again."""
        self._writer.close()

    def place(self, base: str, chunks: Iterable[bytes], index: Callable[[], bytes], *, sync: bool) -> None:
        """Put a pack and then its index at a path that is kept, on an error neither.

        Git looks for the index first. What is synced gets its name only then: a power cut may take the
        `.keep`, by which the rest of a killed writer is known.
        """
        new_index = f"{base}.idx.new"
        new_pack = f"{base}.pack.new" if sync else f"{base}.pack"
        try:
            write_new(new_pack, chunks, sync=sync, mode=PACK_MODE)
            self._step("pack-written")
            write_new(new_index, [index()], sync=sync, mode=PACK_MODE)
            self._step("idx-written")
            if sync:
                os.rename(new_pack, f"{base}.pack")
                self._step("pack-renamed")
            os.rename(new_index, f"{base}.idx")
            self._step("idx-renamed")
            if sync:
                sync_folder(self.folder)
            self._step("pack-placed")
            self._placed(base)
        except BaseException:
            _remove_parts(base)
            raise

    def _unfinished(self) -> set[str]:
        return {match[1] for name in os.listdir(self.folder) if (match := _OURS.fullmatch(name))}

    def _sweep_one(self, base: str) -> None:
        # A keep only ever moves from the first name to the second: looking in this order, a live one
        # cannot be missed.
        for keep in (f"{base}.keep.new", f"{base}.keep"):
            try:
                if keep.endswith(".keep") and not is_ours(keep):
                    return
                lock = try_lock(keep, create=False)
            except FileNotFoundError:
                continue
            if lock is None:
                return
            try:
                _remove_parts(base)
            finally:
                lock.release(unlink=True)
            return
        _remove_parts(base)


def object_count(objects: str) -> int:
    """Return how many objects the packs and the loose files of an objects folder hold."""
    count = 0
    for name in os.listdir(f"{objects}/pack"):
        if name.endswith(".idx"):
            with suppress(FileNotFoundError), open(f"{objects}/pack/{name}", "rb") as file:
                head = file.read(_FANOUT_BYTES + 8)
                end = _FANOUT_BYTES + (8 if head.startswith(b"\xfftOc") else 0)
                count += int.from_bytes(head[end - 4 : end])
    loose = [name for name in os.listdir(objects) if len(name) == 2]
    return count + sum(len(os.listdir(f"{objects}/{name}")) for name in loose)


def is_ours(keep: str) -> bool:
    """Tell whether a writer of ours put a `.keep` there. Raises `FileNotFoundError`."""
    return read_plain(keep).startswith(KEEP_MARK)


def _remove_parts(base: str) -> None:
    """Remove what is not a complete pack. Only for names that one writer of ours made up."""
    if not os.path.exists(f"{base}.idx"):
        remove(f"{base}.pack")
    remove(f"{base}.idx.new")
    remove(f"{base}.pack.new")


# -- merging small packs, so that files and descriptors stay bounded however long a store lives --


TRIGGER = 64
"""Small packs at which a store asks for maintenance."""

_FAN = 8
_SMALLEST_TIER = 4 * 1024
_SMALL_PACK = 256 * 1024 * 1024
_SLICE_PACKS = 128
_SLICE_BYTES = 512 * 1024 * 1024
_SHORTEST_WORK = 0.002  # seconds
_LONGEST_REST = 0.02  # seconds


class Pause:
    """Lets long work take half of the time at most, so that threads beside it get on."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def take(self) -> None:
        """Rest as long as was worked since the last rest, up to 20 ms; not at all after some moments."""
        worked = time.monotonic() - self._since
        if worked > _SHORTEST_WORK:
            time.sleep(min(worked, _LONGEST_REST))
            self._since = time.monotonic()


class _Source(NamedTuple):
    stored: StoredPack
    content: PackSource


class PackMerger:
    """Merges the small packs of one folder. Callers hold the maintenance lock around `merge`."""

    def __init__(self, folder: PackFolder, step: Step) -> None:
        self._folder = folder
        self._step = step
        self._pause = Pause()
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
                source = PackSource(pack, read_plain(stored.idx_path))
                mergeable = source.can_be_merged()
            except FileNotFoundError:
                continue  # git gc took it: its objects are in another pack now
            except (CorruptPack, ValueError):  # ValueError: an empty file cannot be mapped
                mergeable = False
            if mergeable:
                yield _Source(stored, source)
            else:
                self._left_alone.add(stored.name)

    def _merge(self, sources: Sequence[_Source]) -> None:
        joined = _Joined(sources, self._pause.take)
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

    def __init__(self, sources: Sequence[_Source], pace: Callable[[], None]) -> None:
        self._sources = sources
        self._join = PackJoin([source.content for source in sources], pace)
        self._checksum = b""

    def chunks(self) -> Iterator[bytes]:
        for chunk in self._join.chunks():
            self._checksum = chunk
            yield chunk

    def index(self) -> bytes:
        """Return the index, or give up while nothing is in place yet: `_SourceVanished`."""
        if not all(source.stored.is_untouched() for source in self._sources):
            raise _SourceVanished
        return self._join.index(self._checksum)


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
