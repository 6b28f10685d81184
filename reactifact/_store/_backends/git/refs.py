"""Refs and `HEAD` of a bare repository by hand: list by prefix, read, move by compare-and-swap, watch.

Loose files and `packed-refs` are read as git reads them; a move takes a lock of the store against
our own writers and git's `<ref>.lock` against git's. Whether the new id exists is checked by the caller.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import datetime

import pygit2

from ....errors import Contention, DamagedRef, LinkInStore, NameTaken, StoreBusy
from ...names import plain
from ...objects import Oid
from ...protocol import RefScan, RefUpdate, name_in_the_way, parent_names
from ..files import open_plain, read_plain, refuse_links, remove, sync_folder, write_all
from .journal import Moves
from .pack_folder import Step
from .packed_refs import PACKED, GitLocks, LockFile, PackedRefs
from .reflog import RefLogs

# -- refs of a bare repository by hand: list by prefix, read, and move by compare-and-swap --


_OID = re.compile(rb"[0-9a-f]{40}")
_SYMBOLIC_DEPTH = 5
_REMEMBERED_FOLDERS = 4096
_SHOWN = 60
_FOLDING = ("core.ignorecase", "core.precomposeunicode")  # what git notes of such a disk


class RefFolder:
    """The refs of one repository."""

    def __init__(
        self, git_dir: str, location: str, locks: GitLocks, logs: RefLogs, *, sync: bool, step: Step
    ) -> None:
        self._git_dir = git_dir
        self._location = location
        self._locks = locks
        self._logs = logs
        self._sync = sync
        self._step = step
        self._packed = PackedRefs(git_dir, locks, sync=sync)
        self._plain: set[str] = set()  # folders of refs that were seen not to be links
        self._folds: bool | None = None  # whether the disk takes names that differ by case alone for one

    def read(self, name: str) -> Oid | None:
        """Return the id `name` holds, following symbolic refs. Raises `DamagedRef`."""
        asked, target = name, name
        for depth in range(_SYMBOLIC_DEPTH):
            if not target.startswith("refs/") or ".." in target.split("/") or "\0" in target:
                if not depth:
                    return None
                break  # it would lead out of the repository
            content = self._loose(target)
            if content is None:
                oid = self._packed.get(target)
                if depth and oid is None:
                    break
                return oid
            if not content.startswith(b"ref:"):
                if not _OID.fullmatch(content):
                    raise self._damaged(target, f"holds {_shown(content)}, which is not an object id")
                return content.decode()
            target = content[4:].strip().decode("utf-8", "surrogateescape")
        raise self._damaged(asked, f"is a symbolic ref, and {plain(target)} leads to no commit")

    def _damaged(self, name: str, what: str) -> DamagedRef:
        return DamagedRef(
            name,
            f"{self._git_dir}/{name}",
            what,
            f"restore the file from a clone or a backup, or remove it and set the ref with "
            f"`git update-ref {name} <commit>` (`git fsck --lost-found` lists candidates)",
        )

    def scan(self, prefix: str) -> RefScan:
        """Return the refs whose name starts with `prefix`, in order of name, and what is damaged."""
        found: dict[str, Oid] = {}
        damaged: dict[str, DamagedRef] = {}
        # Loose before packed: `git pack-refs` writes the packed one before it removes the loose one.
        for name in self.walk(prefix):
            try:
                if (oid := self.read(name)) is not None:
                    found[name] = oid
            except DamagedRef as error:
                damaged[name] = error
        if self._packed.is_absent():
            return RefScan(dict(sorted(found.items())), tuple(damaged.values()))
        for name, oid in self._packed.under(prefix):
            if name not in damaged:
                found.setdefault(name, oid)
        packed = self._packed.damage()
        errors = (*damaged.values(), *(() if packed is None else (packed,)))
        return RefScan(dict(sorted(found.items())), errors)

    def walk(self, prefix: str) -> Iterator[str]:
        """Yield the names of loose refs that start with `prefix`, folder by folder, in order."""
        folder = prefix.rpartition("/")[0] or "refs"
        if folder.split("/")[0] != "refs" or ".." in folder.split("/"):
            return
        self._require_plain(folder)
        try:
            with os.scandir(f"{self._git_dir}/{folder}") as entries:
                listed = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        except (FileNotFoundError, NotADirectoryError):
            return
        for base, is_folder in listed:
            name = f"{folder}/{base}"
            if is_folder:
                if name.startswith(prefix) or prefix.startswith(name + "/"):
                    yield from self.walk(name + "/")
            elif name.startswith(prefix) and not base.endswith(".lock"):
                yield name

    def packed_under(self, prefix: str) -> Iterator[str]:
        """Yield the names of packed refs that start with `prefix`, in order."""
        return (name for name, _ in self._packed.under(prefix))

    def needs_sweep(self) -> bool:
        """Tell whether a lock stands on `packed-refs`: a deletion in progress, git's, or a killed one's."""
        return self._locks.is_locked(PACKED)

    def sweep(self) -> None:
        """Remove the lock on `packed-refs` that a killed deletion left, which git would not pass by."""
        with suppress(StoreBusy), self._locks.between_ours(PACKED, PACKED, wait=0.0):
            self._packed.sweep()

    def close(self) -> None:
        """Give back files; a later use opens them again."""
        self._packed.close()

    def require(self, update: RefUpdate, current: Oid | None) -> None:
        """Raise `Contention` unless `current` is what `update` expects."""
        if current != update.expected:
            raise Contention(
                f"ref {update.name} in {self._location} holds {current or 'nothing'}, not "
                f"{update.expected or 'nothing'}: somebody moved it; load it again and retry"
            )

    def move(
        self, update: RefUpdate, noted: AbstractContextManager[None] | None = None, *, sync: bool = True
    ) -> None:
        """Compare and swap one ref under its locks, within `noted` once it holds what is expected.

        A ref that is made or removed is synced, another one only with `sync`. Raises `Contention` when it
        does not hold what is expected, `StoreBusy` when its locks are not to be had.
        """
        with self._between_ours(update.name):
            if update.expected is None:  # else what it holds is read once git is locked out too
                self.require(update, self.read(update.name))
                if update.new is not None:
                    self._make_way(update.name)
            if update.new is not None or update.expected is not None:
                self._swap(update, noted, sync=sync or update.expected is None)

    def forget_moves(self, before: datetime) -> int:
        """Take moves older than a moment out of git's logs; return how many. Raises `StoreBusy`."""
        count = 0
        for name in list(self._logs.names()):
            with self._between_ours(name), self._locks.file(name):
                count += self._logs.forget(name, before)
        return count

    @contextmanager
    def _between_ours(self, name: str) -> Iterator[None]:
        folder = name.rpartition("/")[0] or name
        # where the disk folds, those that differ by case alone are made one after another
        subject = folder.casefold() if self.folds_case else folder
        with self._locks.between_ours(subject, f"refs under {folder}", striped=name != folder):
            yield

    def _swap(self, update: RefUpdate, noted: AbstractContextManager[None] | None, *, sync: bool) -> None:
        path = f"{self._git_dir}/{update.name}"
        with self._locks.file(update.name) as lock:
            self._step("ref-locked")
            # git may have moved it until we had its lock
            self.require(update, self.read(update.name))
            with noted or nullcontext():
                if update.new is not None:
                    self._set(path, lock, update.new, sync=sync)
                    return
                self._delete(update.name)
        self._remove_empty_folders(os.path.dirname(path))

    def _set(self, path: str, lock: LockFile, oid: Oid, *, sync: bool) -> None:
        lock.write(oid.encode() + b"\n", sync=sync)
        self._step("ref-written")
        lock.commit()
        self._step("ref-renamed")
        if self._sync and sync:
            sync_folder(os.path.dirname(path))
        self._step("ref-moved")

    def is_behind(self, moves: Moves) -> bool:
        """Tell whether a ref stands, or may stand, where it was before the last move that is noted of it.

        So a power cut leaves it: with an earlier value or no content. What git has moved since stays, and
        so does what was removed.
        """
        content = self._loose(moves.name)
        if content is None:
            try:
                return self._packed.get(moves.name) in moves.earlier
            except DamagedRef:
                return True
        if not _OID.fullmatch(content):
            return not content.startswith(b"ref:")
        oid = content.decode()
        by_git = self._logs.moves(moves.name)[-1:]
        moved_since = any(move.new == oid and move.when.timestamp() > moves.when for move in by_git)
        return oid in moves.earlier and not moved_since

    def put_back(self, moves: Moves) -> None:
        """Set a ref that is behind to what it was moved to last. Raises `StoreBusy`."""
        with self._between_ours(moves.name), self._locks.file(moves.name) as lock:
            if self.is_behind(moves):
                self._set(f"{self._git_dir}/{moves.name}", lock, moves.last, sync=True)

    def _delete(self, name: str) -> None:
        path = f"{self._git_dir}/{name}"
        # The packed one first: without its loose ref it would show an old value.
        with self._locks.between_ours(PACKED, PACKED), self._packed.without(name):
            self._step("ref-unpacked")
            self._logs.remove(name)
            remove(path)
            if self._sync:
                sync_folder(os.path.dirname(path))
        self._step("ref-removed")

    def _make_way(self, name: str) -> None:
        """Refuse a name that another ref stands in the way of; remove empty folders there."""
        if self.folds_case:
            self._refuse_twin(name)
        for other in parent_names(name):
            if self.read(other) is not None:
                raise name_in_the_way(name, other, self._location)
        below = name + "/"
        for names in (self.walk(below), self.packed_under(below)):
            for other in names:
                raise name_in_the_way(name, other, self._location)
        path = f"{self._git_dir}/{name}"
        if os.path.isdir(path):
            for folder, _, _ in os.walk(path, topdown=False):
                with suppress(OSError):
                    os.rmdir(folder)

    def _remove_empty_folders(self, folder: str) -> None:
        kept = f"{self._git_dir}/refs"
        while os.path.dirname(folder) != kept and folder != kept:
            try:
                os.rmdir(folder)
            except OSError:  # not empty, or gone already
                return
            folder = os.path.dirname(folder)

    @property
    def folds_case(self) -> bool:
        """Whether the disk takes names that differ by case alone for one: `HEAD` is there under another.

        What git noted of the disk when it made the repository counts too.
        """
        if self._folds is None:
            self._folds = os.path.exists(f"{self._git_dir}/hEAd") or self._is_said_to_fold()
        return self._folds

    def _is_said_to_fold(self) -> bool:
        try:
            config = pygit2.Config(f"{self._git_dir}/config")
            return any(name in config and config.get_bool(name) for name in _FOLDING)
        except (OSError, ValueError, pygit2.GitError):
            return False  # a damaged one is told when the store is opened

    def _twin(self, name: str) -> str | None:
        """Return the first part of a ref's path that stands there in other upper and lower case, if any."""
        path = self._git_dir
        done = ""
        for part in name.split("/"):
            try:
                listed = os.listdir(path)
            except (FileNotFoundError, NotADirectoryError):
                return None
            if part not in listed:
                same = (entry for entry in listed if entry.casefold() == part.casefold())
                return next((f"{done}{entry}" for entry in same), None)
            path, done = f"{path}/{part}", f"{done}{part}/"
        return None

    def _refuse_twin(self, name: str) -> None:
        packed = (_in_other_case(name, other) for other in self.packed_under("refs/"))
        twin = self._twin(name) or next(filter(None, packed), None)
        if twin is not None:
            raise NameTaken(
                f"{name} cannot be made in {self._location}: its disk takes upper and lower case for the "
                f"same, and {twin} is there, so the two would be one. Choose an id that differs in more than "
                f"case, or keep the store on a disk that tells them apart, or in SQLite or PostgreSQL"
            )

    def _loose(self, name: str) -> bytes | None:
        self._require_plain(name.rpartition("/")[0])
        if self.folds_case and self._twin(name) is not None:
            return None  # what would be opened is another's
        try:
            return read_plain(f"{self._git_dir}/{name}").rstrip()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def _require_plain(self, folder: str) -> None:
        """Refuse a folder of refs that is a symbolic link, or lies in one. Raises `LinkInStore`."""
        if folder in self._plain or folder == "refs":
            return
        parent = folder.rpartition("/")[0]
        self._require_plain(parent)
        path = f"{self._git_dir}/{folder}"
        refuse_links(path)
        if len(self._plain) >= _REMEMBERED_FOLDERS:
            self._plain.clear()
        if os.path.isdir(path):
            self._plain.add(folder)


def _in_other_case(name: str, other: str) -> str | None:
    """Return the first part of `other` that differs from `name` in upper and lower case alone, if any."""
    parts = other.split("/")
    for depth, (mine, theirs) in enumerate(zip(name.split("/"), parts, strict=False), 1):
        if mine.casefold() != theirs.casefold():
            return None
        if mine != theirs:
            return "/".join(parts[:depth])
    return None


def _shown(content: bytes) -> str:
    return repr(content[:_SHOWN].decode("utf-8", "backslashreplace")) if content else "nothing"


# -- `HEAD` of a bare repository --


_HEAD = "HEAD"
_BRANCHES = "refs/heads/"
_LEDGER = "/%outbox"
_MAIN = "/main"
_DETACHED = re.compile(rb"[0-9a-f]{40}\s*")


class Head:
    """The `HEAD` of one repository. A detached one is left as it is."""

    def __init__(self, git_dir: str, refs: RefFolder, locks: GitLocks, *, sync: bool, step: Step) -> None:
        self._path = f"{git_dir}/{_HEAD}"
        self._refs = refs
        self._locks = locks
        self._sync = sync
        self._step = step

    def prepare(self, planned: Sequence[RefUpdate]) -> None:
        """Point `HEAD` where it can stay: at the first branch to come, away from one about to go.

        Whoever is killed between two moves then leaves it at a branch, if there is any.
        """
        branches = [update for update in planned if _may_lead(update.name)]
        going = dict.fromkeys(update.name for update in branches if update.new is None)  # in order
        coming = [update.name for update in branches if update.expected is None and update.new is not None]
        if (going or coming) and self._better(going, coming) is not None:
            with self._locks.between_ours(_HEAD, _HEAD):
                if (target := self._better(going, coming)) is not None:
                    self._point(target)

    def follow(self, moved: Sequence[RefUpdate]) -> None:
        """Point `HEAD` anew where these moves left it without a branch, or gave it its first."""
        names = [
            update.name
            for update in moved
            if update.name.startswith(_BRANCHES) and (update.expected is None or update.new is None)
        ]
        if not names or not self._dangles():
            return
        with self._locks.between_ours(_HEAD, _HEAD):
            if self._dangles() and (target := self._choose(names)) is not None:
                self._point(target)

    def _better(self, going: Collection[str], coming: Sequence[str]) -> str | None:
        """Return where `HEAD` should point before branches go and come, `None` where it may stay."""
        target = self._target()
        if target in going:
            return self._choose(going, going)
        if coming and target is not None and not self._exists(target):
            mains = (name for name in coming if name.endswith(_MAIN))
            return self._choose(coming, going) or next(mains, coming[0])
        return None

    @property
    def target(self) -> str | None:
        """The full name of the branch that `HEAD` points at, `None` where it points at none."""
        return self._target() or None

    def _target(self) -> str | None:
        """Return the branch that `HEAD` points at, `None` for a detached one, empty for a damaged one."""
        content = read_plain(self._path)
        if not content.startswith(b"ref:"):
            return None if _DETACHED.fullmatch(content) else ""
        return content[4:].strip().decode("utf-8", "surrogateescape")

    def _dangles(self) -> bool:
        target = self._target()
        return target is not None and not self._exists(target)

    def _exists(self, name: str) -> bool:
        try:
            return self._refs.read(name) is not None
        except DamagedRef:
            return False

    def _choose(self, moved: Collection[str], going: Collection[str] = ()) -> str | None:
        """Return a branch that exists and is not one of `going`; best one beside those that moved."""
        for name in moved:
            for candidate in (name.rpartition("/")[0] + _MAIN, name):
                if candidate not in going and _may_lead(candidate) and self._exists(candidate):
                    return candidate
        other: str | None = None
        for name in self._branches():
            if name in going or not _may_lead(name):
                continue
            if name.endswith(_MAIN):
                return name
            other = other or name
        return other

    def _branches(self) -> Iterator[str]:
        yield from self._refs.packed_under(_BRANCHES)
        yield from self._refs.walk(_BRANCHES)

    def _point(self, target: str) -> None:
        with self._locks.file(_HEAD) as lock:
            lock.write(f"ref: {target}\n".encode("utf-8", "surrogateescape"))
            lock.commit()
        if self._sync:
            sync_folder(os.path.dirname(self._path))
        self._step("head-pointed")


def _may_lead(name: str) -> bool:
    """Tell whether `HEAD` may point at a ref: at a branch that is not a ledger."""
    return name.startswith(_BRANCHES) and not name.endswith(_LEDGER)


# -- the log of the refs that moved, for whoever watches them: a name of a ref a line, appended after the
# ref has moved. It is a hint and not a record: it is not synced, it is there only where somebody watches,
# and git itself does not write it, so a watcher also lists all refs from time to time --


MOVES = "reactifact/moves"
LIMIT = 256 * 1024
"""Bytes after which the log is removed; a watcher then lists all refs, and begins it anew."""


def note_moved(git_dir: str, names: Iterable[str]) -> None:
    """Append names of refs that have moved, where somebody watches. Never raises for the log's sake."""
    path = f"{git_dir}/{MOVES}"
    with suppress(OSError, LinkInStore):  # the refs have moved, whatever becomes of the hint
        descriptor = open_plain(path, os.O_WRONLY | os.O_APPEND)
        try:
            write_all(descriptor, "".join(f"{name}\n" for name in names).encode())
            if os.fstat(descriptor).st_size > LIMIT:
                remove(path)
        finally:
            os.close(descriptor)


class MovesWatch:
    """Reads the log of one repository. While nothing moves a question costs one `fstat`."""

    def __init__(self, git_dir: str) -> None:
        self._path = f"{git_dir}/{MOVES}"
        self._descriptor = -1
        self._read = 0
        self._open()

    def _open(self) -> None:
        folder = os.path.dirname(self._path)
        os.makedirs(folder, exist_ok=True)
        refuse_links(folder)
        descriptor = open_plain(self._path, os.O_RDONLY | os.O_CREAT, 0o666)  # as the umask shares
        self.close()
        self._descriptor = descriptor
        self._read = os.fstat(descriptor).st_size

    def moved(self) -> set[str] | None:
        """Return the refs that moved since it was asked last; `None` where the log began anew."""
        found = os.fstat(self._descriptor)
        if not found.st_nlink or found.st_size < self._read:
            self._open()  # first: what moves from now on is noted in the new one
            return None
        if found.st_size == self._read:
            return set()
        data = os.pread(self._descriptor, found.st_size - self._read, self._read)
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        return set(whole.decode("utf-8", "surrogateescape").split("\n")[:-1])

    def fileno(self) -> int:
        """Return -1: a file is always readable."""
        return -1

    def close(self) -> None:
        """Close the log."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
