"""A bare git repository as a backend: one pack a write, refs and `HEAD` by hand, objects through libgit2."""

from __future__ import annotations

import os
import secrets
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pygit2
from pygit2.enums import ObjectType

from ....errors import MissingObject, NotRecovered, SessionBusy, StoreBusy, StoreError
from ...objects import MAX_OBJECT, OVERHEAD, GitObject, Kind, Oid, first_parent
from ...protocol import (
    Durability,
    RefMove,
    RefScan,
    RefUpdate,
    check_durability,
    check_objects,
    check_oid,
    check_ref_name,
)
from ..files import checked_path, make_folders, os_errors, remove
from ..kv import ObjectKVBackend
from ..locks import FileLock, LockFolder, LockQueue
from .checked_packs import CheckedPacks, borrowed_folders
from .collect import Collector
from .journal import LARGEST_PACK, Journal
from .pack import PackFiles, PackStream, build_pack, read_loose
from .pack_folder import TRIGGER, PackFolder, PackMerger, object_count
from .packed_refs import GitLocks
from .reflog import RefLogs
from .refs import Head, MovesWatch, RefFolder, note_moved
from .repository import is_unmade, open_repository, require_settled, settle

# -- A bounded memory of the objects just written, so that reading them back costs no look at packs --


LIMIT = 16 * 1024 * 1024
"""Bytes of memory that the objects may take."""


class RecentObjects:
    """The last objects written, up to `limit` bytes of memory; the oldest go first."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._mutex = threading.Lock()
        self._size = 0
        self._objects: OrderedDict[Oid, GitObject] = OrderedDict()

    def get(self, oid: Oid) -> GitObject | None:
        """Return the object, if it is still remembered."""
        return self._objects.get(oid)

    def add(self, objects: Mapping[Oid, GitObject]) -> None:
        """Remember `objects`, except those over a quarter of the limit."""
        with self._mutex:
            for oid, item in objects.items():
                size = len(item.data) + OVERHEAD
                if oid in self._objects:
                    self._objects.move_to_end(oid)
                elif size <= self._limit // 4:
                    self._objects[oid] = item
                    self._size += size
            while self._size > self._limit:
                _, gone = self._objects.popitem(last=False)
                self._size -= len(gone.data) + OVERHEAD

    def clear(self) -> None:
        """Forget everything."""
        with self._mutex:
            self._objects.clear()
            self._size = 0


# -- `GitBackend`: a bare repository as an `ObjectBackend` --


_BUILDING = threading.Lock()
"""Packs are built one at a time: it is work for the interpreter, and two threads at it only make
the event loop wait longer for its turn. Writing and syncing them goes on side by side."""

_LIBGIT2_ERRORS = (pygit2.GitError, KeyError, ValueError, BufferError, MemoryError, OSError)
"""What pygit2 raises for an object that it cannot read, by what libgit2 met."""

_STREAMED = 4 * 1024 * 1024
"""Bytes of objects beyond which their pack is compressed while it is written, and never held whole."""

_SWEEP_WAIT = 10.0  # seconds

_KINDS: dict[int, Kind] = {
    ObjectType.COMMIT: "commit",
    ObjectType.TREE: "tree",
    ObjectType.BLOB: "blob",
    ObjectType.TAG: "tag",
}


class _Packs(NamedTuple):
    """Packs as libgit2 reads them, and what is asked before it does."""

    database: pygit2.Odb
    checked: tuple[CheckedPacks, ...]


class GitBackend:
    """Objects and refs in the bare repository at `path`.

    Where there is nothing yet, it is made by the first write or lock, or when `repository` is asked for;
    until then it reads as empty.

    With `durability="full"` a write is on stable storage when it returns, in the journal; after a power cut
    the next opening puts back what of it the disk had not got under its name in the repository. With
    `"strict"` each file is synced before git sees it, so that git finds a sound repository also before that,
    at five syncs a write instead of one. With `"os"` a write survives the death of the process, not a power
    cut.

    `fault`, if set, is called with the name of each step of a write that has just been done, so that tests
    can kill, pause or fail there; set on the class, it is called for the making of the store too.

    `lock_wait` is how many seconds a write waits for a lock file (`main.lock`, `packed-refs.lock`) that
    another program holds, by default 10; then it raises `StoreBusy`.

    An object of more than `max_object` bytes is neither written nor read (`ObjectTooLarge`): what packed
    bytes say that they become is believed only up to there.

    With `read_only` nothing is made or changed, not by opening either, and a write raises
    `StoreError`. Only with `create`, and without `read_only`, may there be nothing at `path`.

    Raises `NotAStore` when `path` holds something else, or nothing and `create` is false; `NotRecovered` when
    with `read_only` files that a power cut took would have to be put back first.
    """

    fault: Callable[[str], None] | None = None
    is_local = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "full",
        create: bool = True,
        read_only: bool = False,
        lock_wait: float | None = None,
        max_object: int = MAX_OBJECT,
    ) -> None:
        self._max_object = max_object
        self._location = checked_path(path)
        self._path = Path(os.path.realpath(self._location))
        self._durability = check_durability(durability)
        self._sync = durability != "os"
        self._read_only = read_only
        git_dir = self._git_dir = os.path.normpath(self._path)
        self._objects_path = f"{git_dir}/objects"
        self._locks = LockFolder(f"{git_dir}/reactifact/locks", self._location)
        self._packs = PackFolder(
            f"{self._objects_path}/pack",
            f"{git_dir}/reactifact/writers",
            sync=self._sync,
            step=self._step,
            placed=self._trust,
        )
        self._checked: dict[str, CheckedPacks] = {}
        self._merger = PackMerger(self._packs, self._step)
        self._git_locks = GitLocks(git_dir, self._location, self._locks, sync=self._sync, wait=lock_wait)
        self._logs = RefLogs(git_dir)
        self._refs = RefFolder(
            git_dir, self._location, self._git_locks, self._logs, sync=self._sync, step=self._step
        )
        self._journal = Journal(
            git_dir, self._location, self._locks, wait=lambda: self._git_locks.wait, step=self._step
        )
        self._notes = durability == "full"
        self._head = Head(git_dir, self._refs, self._git_locks, sync=self._sync, step=self._step)
        self._recent = RecentObjects()
        self._mutex = threading.Lock()
        self._repository: pygit2.Repository | None = None
        self._opened: _Packs | None = None
        self._small_packs = 0
        self._settled = False
        self._making = threading.Lock()
        self._maintaining = (os.getpid(), threading.Lock())
        self._is_made = False
        if not (create and not read_only and is_unmade(self._path, self._location)):
            self._open(create=False)

    def _open(self, *, create: bool) -> None:
        """Open the repository that stands at the path; with `create`, make it where there is none."""
        repository = open_repository(
            self._path, self._location, create=create, sync=self._sync, step=self._step
        )
        read_only = self._read_only
        with os_errors(self._location, "opening"):
            self._recover()
            self._settled = not read_only and settle(repository, self._git_locks)
            self._count_packs()
            if not read_only and (self._packs.needs_sweep() or self._refs.needs_sweep()):
                # What is left over does no harm: on a full or read-only disk reading must go on.
                with suppress(OSError):
                    self._sweep()
        with self._mutex:
            self._repository = repository
        self._is_made = True

    def _is_there(self) -> bool:
        """Tell whether there is a repository by now; one that another process has made is opened."""
        return self._is_made or self._found()

    def _found(self) -> bool:
        with self._making:
            if not self._is_made and not is_unmade(self._path, self._location):
                self._open(create=False)
            return self._is_made

    def _make(self) -> None:
        """Make the repository where there is none yet."""
        if not self._is_made:
            with self._making:
                if not self._is_made:
                    self._open(create=True)

    @property
    def head(self) -> str | None:
        """The full name of the ref that `HEAD` points at, `None` where it points at none."""
        return self._head.target

    @property
    def location(self) -> str:
        """The path as it was given."""
        return self._location

    @property
    def durability(self) -> Durability:
        """`full` or `os`."""
        return self._durability

    @property
    def repository(self) -> pygit2.Repository:
        """The repository as pygit2 has it, for reading what this class has no method for."""
        self._make()
        with self._mutex:
            if self._repository is None:
                self._repository = open_repository(
                    self._path, self._location, create=False, sync=self._sync, step=self._step
                )
            return self._repository

    @property
    def needs_maintenance(self) -> bool:
        """True when so many small packs have come together that `maintain` is due. Costs nothing."""
        return self._small_packs >= TRIGGER

    def read_many(self, oids: Iterable[Oid]) -> dict[Oid, GitObject]:
        """Return every object asked for.

        Raises `MissingObject` for the first that is absent, `StoreError` for one that is damaged.
        """
        found: dict[Oid, GitObject] = {}
        absent = []
        for oid in dict.fromkeys(oids):
            recent = self._recent.get(oid)
            if recent is None:
                absent.append(oid)
            else:
                found[oid] = recent
        if len(absent) > 1 and self._is_there() and not self._has_loose(absent):
            absent = self._read_packed(absent, found)
        for oid in absent:
            found[oid] = self._read(oid)
        return found

    def _read_packed(self, oids: Iterable[Oid], found: dict[Oid, GitObject]) -> list[Oid]:
        """Read objects that stand in packs, each before the next is asked for; return the others."""
        (database, checked), left = self._open_packs(), []
        read, new = database.read, tuple.__new__
        asked = [packs for packs in checked if packs.asks]
        for oid in oids:
            check_oid(oid)
            recent = self._recent.get(oid)
            if recent is not None:
                found[oid] = recent
                continue
            try:
                for packs in asked:
                    if (large := packs.require_object(oid)) is not None:
                        found[oid] = large
                        break
                else:
                    kind, data = read(oid)
                    found[oid] = new(GitObject, (_KINDS[kind], data))
            except (StoreError, *_LIBGIT2_ERRORS):
                left.append(oid)
        return left

    def read_line(self, oid: Oid, most: int) -> dict[Oid, GitObject]:
        """Return an object; a commit with at most `most` of its own line, as far as they stand in packs."""
        found = self.read_many([oid])
        if most == 1:
            return found

        def line(above: Oid) -> Iterator[Oid]:
            while len(found) < most and above in found and (parent := first_parent(found[above])) is not None:
                yield parent
                above = parent

        self._read_packed(
            line(oid), found
        )  # it ends where one is loose, or gone: whoever asks for it says so
        return found

    def _has_loose(self, oids: Sequence[Oid]) -> bool:
        """Tell whether some objects may stand in files of their own: one look for all of them."""
        try:
            folders = {
                name for objects in self._objects_folders() for name in os.listdir(objects) if len(name) == 2
            }
            return not folders.isdisjoint(oid[:2] for oid in oids)
        except OSError:
            return True  # whoever reads the objects says what is wrong

    def object_count(self) -> int:
        """Return how many objects the packs and loose files of this repository hold."""
        with os_errors(self.location, "counting the objects of"):
            return object_count(f"{self.repository.path}objects")

    def refs(self, prefix: str = "refs/") -> dict[str, Oid]:
        """Return the refs whose full name starts with `prefix`, in order of name.

        Raises `DamagedRef` where a file does not hold what git writes there.
        """
        return self.scan_refs(prefix).whole(prefix)

    def scan_refs(self, prefix: str = "refs/") -> RefScan:
        """Return what `refs` does, and apart from it the refs that cannot be read."""
        if not self._is_there():
            return RefScan({})
        with os_errors(self._location, "reading refs of"):
            return self._refs.scan(prefix)

    def watch_refs(self) -> MovesWatch:
        """Return a watch of the refs that our own writers move; git's own moves show in a listing alone."""
        self._require_writable()
        self._make()
        with os_errors(self._location, "watching"):
            return MovesWatch(self._git_dir)

    def fetched_refs(self) -> dict[str, Oid]:
        """Return the refs below `refs/remotes/` that can be read."""
        return self.scan_refs("refs/remotes/").refs

    def identity(self, *, create: bool = True) -> str:
        """Return a name that this repository alone has: a clone, or a copy of the folder, has another.

        Empty where it has none and `create` is false.
        """
        if create:
            self._make()
        elif not self._is_made:
            return ""
        git_dir = os.path.dirname(self._objects_path)
        inode = str(os.stat(git_dir).st_ino)
        with os_errors(self._location, "reading the identity of"):
            found = self._identity(git_dir, inode)
            if found or not create:
                return found
            self._require_writable()
            make_folders(f"{git_dir}/reactifact", sync=self._sync)
            with self._git_locks.between_ours("identity", "the identity"):
                if not self._identity(git_dir, inode):
                    with self._git_locks.file("reactifact/identity") as lock:
                        lock.write(f"{secrets.token_hex(16)} {inode}\n".encode())
                        lock.commit()
            return self._identity(git_dir, inode)

    def _identity(self, git_dir: str, inode: str) -> str:
        try:
            name, _, place = Path(f"{git_dir}/reactifact/identity").read_text().strip().partition(" ")
        except FileNotFoundError:
            return ""
        return name if place == inode else ""

    def moves_by_git(self, name: str) -> list[RefMove]:
        """Return the last moves of a ref that git made, the oldest first: a push, a `branch -f`."""
        if not self._is_there():
            return []
        with os_errors(self._location, "reading the log of a ref of"):
            return self._logs.moves(name)

    def forget_moves(self, before: datetime) -> int:
        """Take what git moved before a moment out of its logs, so that the next `git gc` may remove it."""
        self._require_writable()
        if not self._is_there():
            return 0
        with os_errors(self._location, "pruning"):
            return self._refs.forget_moves(before)

    def check_indexes(self) -> None:
        """Raise `DamagedIndex` for an index of a pack that is damaged. It reads all of them."""
        if not self._is_there():
            return
        self._checked = {}
        self._require_packs(whole=True)

    def write(self, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate] = ()) -> None:
        """Publish `objects` as one pack, then move the refs in the order given.

        When this returns everything is as durable as promised. Raises `Contention` when a ref does
        not hold what is expected (those before it have moved), `MissingObject` when a ref would point
        at nothing, `StoreError` when the disk refuses; the store stays usable after each.
        """
        self._require_writable()
        check_objects(objects, self._max_object)
        for update in updates:
            check_ref_name(update.name)
        if not objects and not updates:
            return
        self._make()
        with os_errors(self._location, "writing to"):
            self._settle()
            self._refuse_early(updates)
            self._require_targets(objects, updates)
            if not objects:
                self._move(updates)
                return
            if sum([len(item.data) for item in objects.values()]) > _STREAMED:
                stream = PackStream(objects)
                self._publish(stream.chunks(), stream.index, objects, updates)
                return
            with _BUILDING:
                packed = build_pack(objects)
            if self._notes and _is_move(updates) and len(packed.pack) <= LARGEST_PACK:
                with self._packs.kept() as base:
                    self._refs.move(updates[0], self._noted(updates[0], objects, base, packed), sync=False)
                note_moved(self._git_dir, [updates[0].name])
                self._count_one()
            else:
                self._publish([packed.pack], lambda: packed.idx, objects, updates)

    def _publish(
        self,
        chunks: Iterable[bytes],
        index: Callable[[], bytes],
        objects: Mapping[Oid, GitObject],
        updates: Sequence[RefUpdate],
    ) -> None:
        with self._packs.published(chunks, index):
            self._recent.add(objects)
            self._move(updates)
        self._count_one()

    def _count_one(self) -> None:
        with self._mutex:
            self._small_packs += 1

    @contextmanager
    def _noted(
        self, update: RefUpdate, objects: Mapping[Oid, GitObject], base: str, packed: PackFiles
    ) -> Iterator[None]:
        """Note a pack and the move of a ref to what it holds by one sync, and put the pack in place."""
        with self._journal.noted(update, base, packed):
            self._packs.place(base, [packed.pack], lambda: packed.idx, sync=False)
            self._recent.add(objects)
            yield

    def _recover(self) -> None:
        """Put back what a power cut took of what the journal notes. Raises `NotRecovered`, `StoreBusy`."""
        journal, refs = self._journal, self._refs
        if not journal.is_from_another_boot():
            return
        if self._read_only and (journal.lost() or any(map(refs.is_behind, journal.moves()))):
            raise NotRecovered(
                f"{self._location} was cut off from power before the disk had all that its journal notes; "
                f"open it once without read_only (any verb does: `reactifact fsck`), which puts it back"
            )
        if self._read_only:
            return
        with journal.alone():
            if not journal.is_from_another_boot():
                return  # somebody else has done it
            for record in journal.lost():
                journal.put_back(record)
                self._step("put-back-pack")
            for one in journal.moves():
                if refs.is_behind(one):
                    refs.put_back(one)
                    self._step("put-back-ref")
            journal.begin_anew()

    def queue(self, name: str) -> LockQueue:
        """Return the queue of those who wait for a named lock."""
        self._require_writable()
        self._make()
        return self._locks.queue(name)

    @contextmanager
    def lock(self, name: str, *, wait: float = 0.0) -> Iterator[FileLock]:
        """Hold the named lock for the length of a `with`, against threads and processes.

        Raises `SessionBusy`, naming the holder, when it is not free within `wait` seconds.
        """
        self._require_writable()
        self._make()
        with os_errors(self._location, "locking"):
            lock = self._locks.take(name, wait)
        try:
            yield lock
        finally:
            lock.release(unlink=True)

    def maintain(self) -> bool:
        """Sweep what killed writers left and merge small packs; call it in a worker thread.

        Returns false when another process is at it. Loses nothing and keeps no writer waiting.
        """
        self._require_writable()
        if not self._is_there():
            return True
        with self._in_maintenance(), os_errors(self._location, "maintaining"):
            with self._locks.internal("maintenance", 0.0) as had:
                if had:
                    self._sweep()
                    self._merger.merge()
                    self._journal.settle()
            self._count_packs()
        self._reopen()
        return had is not None

    def _in_maintenance(self) -> threading.Lock:
        """Return what a `maintain` holds in this process; a forked one has none of its parent's threads."""
        process, lock = self._maintaining
        if process != os.getpid():
            lock = threading.Lock()
            self._maintaining = (os.getpid(), lock)
        return lock

    def size(self) -> int:
        """Return the bytes of the files below `objects`. Blocks."""
        if not self._is_there():
            return 0
        with os_errors(self._location, "measuring"):
            return _size_of(self._objects_path)

    def require_collectable(self) -> None:
        """Refuse a repository that borrows objects from another one. Raises `StoreError`."""
        if self._is_there():
            self._collector().require_own()

    def collect(self) -> None:
        """Remove every object that no ref reaches, for good, with git's reflogs; call it in a worker thread.

        Other writers go on meanwhile. Raises `StoreBusy` and `StoreError`; done again, it goes on.
        """
        self._require_writable()
        if not self._is_there():
            return
        with os_errors(self._location, "collecting"), self.maintenance_paused():
            with self._locks.internal("sweep", _SWEEP_WAIT) as had:
                if had:
                    self._packs.sweep()
            self.forget_history()
            self._recent.clear()
            self._reopen()
            self._collector().collect()
            if not self._journal.settle(wait=self._git_locks.wait, wipe=True):
                raise StoreBusy(
                    f"the journal of {self._location}, which may hold what was removed, is held by another "
                    f"process for over {self._git_locks.wait:g} seconds; do this again"
                )
            shutil.rmtree(f"{self._git_dir}/logs", ignore_errors=True)
            self._step("collected")
        self._count_packs()
        self._recent.clear()
        self._reopen()

    def _collector(self) -> Collector:
        return Collector(
            self._objects_path,
            self._packs,
            lambda: self.refs("").values(),
            self.read_many,
            step=self._step,
        )

    def forget_history(self) -> None:
        """Remove git's indexes of the commit graph and over packs; git makes them anew when it wants."""
        self._require_writable()
        if not self._is_there():
            return
        with os_errors(self._location, "maintaining"):
            info = f"{self._objects_path}/info"
            remove(f"{info}/commit-graph")
            with suppress(FileNotFoundError):
                for name in os.listdir(f"{info}/commit-graphs"):
                    remove(f"{info}/commit-graphs/{name}")
                os.rmdir(f"{info}/commit-graphs")
            self._packs.drop_multi_pack_index()
            self._step("history-forgotten")

    @contextmanager
    def maintenance_paused(self, *, wait: float = 60.0) -> Iterator[None]:
        """Keep every process from merging packs for the length of a `with`.

        For whoever removes objects for good: merging copies packs whole. Raises `SessionBusy`.
        """
        self._make()
        with self._locks.internal("maintenance", wait) as had:
            if not had:
                raise SessionBusy(
                    f"packs of {self._location} are being merged for over {wait:g} seconds; retry"
                )
            yield

    def close(self) -> None:
        """Give back files and memory, once a `maintain` under way has ended. A later use opens them again.

        Closing twice is fine.
        """
        with self._in_maintenance():
            pass
        self._reopen()
        self._checked = {}
        self._recent.clear()
        self._refs.close()
        self._packs.close()
        self._journal.close()

    def _require_writable(self) -> None:
        if self._read_only:
            raise StoreError(f"{self._location} was opened read-only; open it without read_only to change it")

    def _step(self, name: str) -> None:
        if self.fault is not None:
            self.fault(name)

    def _settle(self) -> None:
        if not self._settled:
            self._settled = settle(self.repository, self._git_locks)
            require_settled(self._settled, self._location)

    def _refuse_early(self, updates: Sequence[RefUpdate]) -> None:
        """Raise `Contention` before anything is written, where the refs as they are now tell it."""
        planned = dict[str, Oid | None]()
        for update in updates:
            name = update.name
            self._refs.require(update, planned[name] if name in planned else self._refs.read(name))
            planned[name] = update.new

    def _require_targets(self, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate]) -> None:
        old = {update.new for update in updates if update.new is not None} - objects.keys()
        if not old:
            return
        # Opened anew: an old handle still sees objects that a `git gc` has removed.
        database, _ = self._open_packs(fresh=True)
        for oid in old:
            check_oid(oid)
            # Git moves objects from packs to files of their own, and back.
            if not (self._is_loose(oid) or database.exists(oid) or self._is_loose(oid)):
                self._require_packs(whole=True)
                raise MissingObject(oid, self._location)

    def _trust(self, base: str) -> None:
        """Look no more at a pack that we made."""
        checked = self._checked.get(self._packs.folder)
        if checked is not None:
            checked.trust(base)

    def _is_loose(self, oid: Oid) -> bool:
        return any(os.path.exists(f"{objects}/{oid[:2]}/{oid[2:]}") for objects in self._objects_folders())

    def _move(self, updates: Sequence[RefUpdate]) -> None:
        moved: list[RefUpdate] = []
        # what others note and is not synced yet must not be taken for the newest
        notes = self._notes or self._journal.has_records()
        self._head.prepare(updates)
        try:
            for update in updates:
                self._refs.move(update, self._journal.noted(update) if notes else None, sync=not self._notes)
                moved.append(update)
        finally:
            self._head.follow(moved)
            if moved:
                note_moved(self._git_dir, [update.name for update in moved])

    def _read(self, oid: Oid) -> GitObject:
        check_oid(oid)
        if not self._is_there():
            raise MissingObject(oid, self._location)
        found = self._read_loose(oid)
        if found is not None:
            return found
        try:
            return self._read_from(self._open_packs(), oid)
        except (StoreError, *_LIBGIT2_ERRORS):
            pass  # without the error, which would keep the packs open
        # Packs vanish when git, or another of us, repacks: look again with fresh eyes, once.
        return self._read_again(oid)

    def _read_loose(self, oid: Oid) -> GitObject | None:
        for objects in self._objects_folders():
            found = read_loose(objects, oid, self._location, self._max_object)
            if found is not None:
                return found
        return None

    def _objects_folders(self) -> Iterator[str]:
        """Yield the folders in which objects stand: its own, then those of others."""
        yield self._objects_path
        for folder in self._checked:
            if folder != self._packs.folder:
                yield os.path.dirname(folder)

    def _read_from(self, packs: _Packs, oid: Oid) -> GitObject:
        """Read an object out of packs.

        libgit2 is not asked for its size first: of a damaged delta, `Odb.read_header` may never come back, or
        write beyond its memory. What has too large a size in its head is refused by `CheckedPacks`.
        """
        for checked in packs.checked:
            if checked.asks and (large := checked.require_object(oid)) is not None:
                return large
        kind, data = packs.database.read(oid)
        return tuple.__new__(GitObject, (_KINDS[kind], data))

    def _read_again(self, oid: Oid) -> GitObject:
        packs = self._open_packs(fresh=True)
        try:
            return self._read_from(packs, oid)
        except KeyError:
            found = self._read_loose(oid)
            if found is not None:
                return found
            self._require_packs(whole=True)
            raise MissingObject(oid, self._location) from None
        except _LIBGIT2_ERRORS as error:
            self._require_packs(whole=True)
            raise StoreError(
                f"object {oid} in {self._location} cannot be read: {error}; run `git fsck` on the store "
                f"and fetch the object from a clone or a backup"
            ) from error

    def _open_packs(self, *, fresh: bool = False) -> _Packs:
        """Return the packs as libgit2 reads them, each that it may follow looked at.

        It reads no objects in files of their own: of one that is cut short it may never come back.
        """
        opened = self._opened
        if opened is not None and not fresh:
            try:
                if not self._require_packs():
                    return opened
            except StoreError:
                self._opened = None
                raise
        # Only without the old one: libgit2 opens a file of a name once, and shares it.
        self._opened = opened = None
        self._require_packs(again=True)
        database = pygit2.Odb()
        for folder in self._checked:
            packs = pygit2.OdbBackendPack(os.path.dirname(folder))
            database.add_backend(packs, 2 if folder == self._packs.folder else 1)
        self._opened = opened = _Packs(database, tuple(self._checked.values()))
        return opened

    def _require_packs(self, *, again: bool = False, whole: bool = False) -> bool:
        with os_errors(self._location, "reading pack indexes of"):
            if again or whole:
                known = self._checked
                self._checked = {
                    folder: CheckedPacks(folder, self._max_object, known.get(folder))
                    for folder in [self._packs.folder, *borrowed_folders(self._objects_path)]
                }
            return True in [packs.require(again=again, whole=whole) for packs in self._checked.values()]

    def _reopen(self) -> None:
        with self._mutex:
            self._opened = None
            self._repository = None

    def _sweep(self) -> None:
        with self._locks.internal("sweep", 0.0) as had:
            if had:
                self._packs.sweep()
                self._refs.sweep()

    def _count_packs(self) -> None:
        small = len(self._merger.small_packs())
        with self._mutex:
            self._small_packs = small

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r})"


def _is_move(updates: Sequence[RefUpdate]) -> bool:
    """Tell whether one ref is moved that there is, and stays."""
    return len(updates) == 1 and updates[0].expected is not None and updates[0].new is not None


def _size_of(folder: str) -> int:
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # merged away meanwhile
                is_folder = entry.is_dir(follow_symlinks=False)
                total += _size_of(entry.path) if is_folder else entry.stat(follow_symlinks=False).st_size
    return total


class FileKVBackend(GitBackend, ObjectKVBackend):
    """A bare git repository under its published name; `directory` is made on demand."""
