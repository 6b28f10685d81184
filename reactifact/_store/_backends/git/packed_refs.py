"""The file `packed-refs`, looked up and rewritten; and git's `<file>.lock` protocol.

Git sorts the file and says so in its first line: it is then searched where it stands, so that a lookup
costs the same however many refs are packed. Each line that is met on the way is checked. A damaged file is
not taken for one with fewer refs: what its sound lines name is found, and looking for anything else raises.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from operator import lt
from typing import NamedTuple

from ....errors import DamagedRef, StoreBusy
from ...objects import Oid
from ..files import make_folders, open_plain, read_plain, remove, sync_folder, write_all, write_new
from ..locks import LockFolder

# -- git's `<file>.lock` protocol, and recovery of the lock files that our killed processes leave --


LOCK_WAIT = 10.0
"""Seconds to wait for a lock that others hold, unless the caller says otherwise."""

_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.05
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)


class LockFile:
    """A held `<target>.lock`: commit new content, or leave the target as it is."""

    def __init__(self, target: str, descriptor: int, *, sync: bool) -> None:
        self._target = target
        self._descriptor = descriptor
        self._sync = sync

    def write(self, content: bytes, *, sync: bool = True) -> None:
        """Write what the target is to hold, and sync it, unless `sync` says that it is noted elsewhere."""
        write_all(self._descriptor, content)
        if self._sync and sync:
            os.fsync(self._descriptor)

    def commit(self) -> None:
        """Put the written content in the place of the target."""
        os.rename(f"{self._target}.lock", self._target)


class GitLocks:
    """The lock files of one repository, each behind a lock between our own processes."""

    def __init__(
        self, git_dir: str, location: str, locks: LockFolder, *, sync: bool, wait: float | None = None
    ) -> None:
        self._git_dir = git_dir
        self._location = location
        self._locks = locks
        self._sync = sync
        self._wait = wait

    @property
    def wait(self) -> float:
        """Seconds to wait for a lock that others hold."""
        return LOCK_WAIT if self._wait is None else self._wait

    @contextmanager
    def between_ours(
        self, purpose: str, what: str, *, striped: bool = False, wait: float | None = None
    ) -> Iterator[None]:
        """Keep our other processes out for the length of a `with`. Raises `StoreBusy`, naming `what`."""
        hold = self._locks.striped if striped else self._locks.internal
        wait = self.wait if wait is None else wait
        with hold(purpose, wait) as had:
            if not had:
                raise StoreBusy(
                    f"{what} in {self._location} {'are' if striped else 'is'} being changed by other "
                    f"processes for over {wait:g} seconds; see what holds them up, then retry"
                )
            yield

    @contextmanager
    def file(self, name: str) -> Iterator[LockFile]:
        """Hold `<name>.lock` for the length of a `with`, making missing folders.

        Callers keep our other processes out. Raises `StoreBusy` when another program does not give it
        back in time.
        """
        target = f"{self._git_dir}/{name}"
        own = self._own(name)
        descriptor = self._take(target, own)
        created = os.fstat(descriptor)
        try:
            yield LockFile(target, descriptor, sync=self._sync)
        finally:
            # after a commit the name is free, or already that of somebody else's lock
            with suppress(FileNotFoundError):
                if os.path.samestat(created, os.lstat(f"{target}.lock")):
                    remove(f"{target}.lock")
            remove(own)
            os.close(descriptor)

    def is_locked(self, name: str) -> bool:
        """Tell whether anybody, alive or dead, has the lock on a file."""
        return os.path.lexists(f"{self._git_dir}/{name}.lock")

    def recover(self, name: str) -> bool:
        """Take away what a killed process of ours left of its lock; tell whether that was the lock.

        Callers keep our other processes out.
        """
        path, own = f"{self._git_dir}/{name}.lock", self._own(name)
        is_ours = False
        with suppress(FileNotFoundError):
            mark, lock = os.lstat(own), os.lstat(path)
            is_ours = os.path.samestat(mark, lock) or read_plain(own) == _number(lock)
            if is_ours:
                remove(path)
        remove(own)
        return is_ours

    def _own(self, name: str) -> str:
        digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:40]
        return f"{self._locks.folder}/lockfile-{digest}"

    def _take(self, target: str, own: str) -> int:
        """Make the lock file, and return its descriptor."""
        path = f"{target}.lock"
        descriptor = self._make_own(target, own)
        deadline = time.monotonic() + self.wait
        pause = _FIRST_PAUSE
        try:
            while True:
                try:
                    return _link(own, path, descriptor)
                except FileNotFoundError:
                    make_folders(os.path.dirname(target), sync=self._sync)
                except FileExistsError:
                    if time.monotonic() >= deadline:
                        raise StoreBusy(_held_too_long(path, self.wait)) from None
                    time.sleep(pause)
                    pause = min(pause * 2, _LONGEST_PAUSE)
        except BaseException:
            os.close(descriptor)
            remove(own)
            raise

    def _make_own(self, target: str, own: str) -> int:
        """Make our own file, having taken away what a killed process left."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        while True:
            try:
                return os.open(own, flags, 0o644)
            except FileExistsError:
                self.recover(os.path.relpath(target, self._git_dir))
            except FileNotFoundError:  # somebody took our folder away
                make_folders(os.path.dirname(own), sync=False)


def _link(own: str, path: str, descriptor: int) -> int:
    """Make the lock file out of our own file; where there are no hard links, name it in there.

    Returns the descriptor of the lock file. Raises `FileExistsError` or `FileNotFoundError`.
    """
    try:
        os.link(own, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    else:
        return descriptor
    lock = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    write_all(descriptor, _number(os.fstat(lock)))
    os.close(descriptor)
    return lock


def _number(stat: os.stat_result) -> bytes:
    return f"inode {stat.st_ino}".encode()


def _held_too_long(path: str, wait: float) -> str:
    since = ""
    with suppress(OSError):
        made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(os.lstat(path).st_mtime))
        since = f" since {made}"
    return (
        f"{path} is held by another program than reactifact, probably git,{since}, and was not given back "
        f"within {wait:g} seconds; nothing was taken from it. See what it is doing (a hook, `git update-ref "
        f"--stdin`, `git pack-refs`) and retry; if no git is at work on this store any more, one was killed: "
        f"remove that file, then retry"
    )


# -- the file `packed-refs`: looked up by name and by prefix, and rewritten without a name --


PACKED = "packed-refs"
"""The name of the file, and of the lock between our processes around deletions."""

Stamp = tuple[int, int, int] | None

_HEADER = b"# pack-refs with:"
_LONGEST_HEADER = 256
_LINE = rb"[0-9a-f]{40} (refs/[^\x00-\x20\x7f~^:?*\[\\]+)\n"
_SOUND = re.compile(rb"(?:#[^\n]*\n)?(?:" + _LINE + rb"(?:\^[0-9a-f]{40}\n)?)*+")
_REF = re.compile(_LINE)
_PEELED = re.compile(rb"\^[0-9a-f]{40}\n")
_NAMES = re.compile(rb"^" + _LINE, re.MULTILINE)
_SHOWN = 60
_OID_LENGTH = 40


class _Lines(NamedTuple):
    """The content of the file as sorted lines, each `<id> <name>` or `^<id>`, from `start` on."""

    stamp: Stamp
    content: mmap.mmap | bytes
    start: int
    damage: str = ""


_ABSENT = _Lines(None, b"", 0)


class _Unsound(Exception):
    """A line that git does not write, or that stands in the wrong place."""


class PackedRefs:
    """The packed refs of one repository, as the file that stands there now has them."""

    def __init__(self, git_dir: str, locks: GitLocks, *, sync: bool) -> None:
        self._path = f"{git_dir}/{PACKED}"
        self._locks = locks
        self._sync = sync
        self._lines = _ABSENT

    def get(self, name: str) -> Oid | None:
        """Return the id packed under `name`. Raises `DamagedRef` where a damaged file does not have it."""
        found, oid = next(self.under(name), ("", None))
        if found == name:
            return oid
        if self._lines.damage:
            raise self._damaged(name, self._lines.damage)
        return None

    def is_absent(self) -> bool:
        """Tell whether there is no such file."""
        return _stamp(self._path) is None

    def damage(self) -> DamagedRef | None:
        """Return what is wrong with the file, if anything is."""
        lines = self._load()
        return self._damaged("packed-refs", lines.damage) if lines.damage else None

    def _damaged(self, name: str, damage: str) -> DamagedRef:
        return DamagedRef(
            name,
            self._path,
            damage,
            "restore the file from a clone (`git ls-remote` prints its lines) or a backup, or put the line "
            "right by hand; then check with `git fsck`",
        )

    def under(self, prefix: str) -> Iterator[tuple[str, Oid]]:
        """Yield the packed refs whose name starts with `prefix`, in order of name."""
        start, last = _encoded(prefix), b""
        lines = self._load()
        while True:
            try:
                for name, oid in _from(lines, start):
                    if not name.startswith(start):
                        return
                    if name > last:
                        last = name
                        yield name.decode("utf-8", "surrogateescape"), oid.decode()
                return
            except _Unsound:
                self._lines = lines = _parsed(bytes(lines.content), lines.stamp)

    @contextmanager
    def without(self, name: str) -> Iterator[None]:
        """Take `name` out of the file, and keep git from packing refs for the length of the `with`.

        The caller removes the loose ref inside. A `git pack-refs` that has read it already would else
        put it into the file afterwards, and it would be back. Callers keep our other processes away.
        """
        with self._locks.file(PACKED):
            if self.get(name) is not None:
                self._replace(self._all_but(_encoded(name)))
            yield

    def _all_but(self, name: bytes) -> list[bytes]:
        """Return the content of the file, in pieces, without the lines of one ref."""
        lines = self._load()
        if lines.damage:
            raise self._damaged(name.decode("utf-8", "surrogateescape"), lines.damage)
        if lines.start:
            content, begin = lines.content, _first(lines, name)
            return [content[:begin], content[_next_ref(content, begin) :]]
        kept: list[bytes] = []
        dropping = False
        with open(self._path, "rb") as file:
            for line in file:
                if not line.startswith(b"^"):  # else what the tag of the line before points at
                    dropping = line.rstrip(b"\n").partition(b" ")[2] == name
                if not dropping:
                    kept.append(line)
        return kept

    def _replace(self, content: Iterable[bytes]) -> None:
        """Put another file in its place, as git does: its lock stays held."""
        new = self._part
        remove(new)
        write_new(new, content, sync=self._sync)
        os.rename(new, self._path)
        if self._sync:
            sync_folder(os.path.dirname(self._path))

    def sweep(self) -> None:
        """Remove the lock of a process of ours that was killed. Callers keep our other processes away."""
        if self._locks.recover(PACKED):
            remove(self._part)

    @property
    def _part(self) -> str:
        return f"{self._path}.part"

    def close(self) -> None:
        """Give the file back; the next lookup opens it again."""
        self._lines = _ABSENT

    def _load(self) -> _Lines:
        lines = self._lines
        if _stamp(self._path) == lines.stamp:
            return lines
        try:
            with open(self._path, "rb", buffering=0, opener=open_plain) as file:
                stat = os.fstat(file.fileno())
                stamp = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
                begin = file.read(_LONGEST_HEADER) or b""
                header = begin[: begin.find(b"\n") + 1]
                if _is_sorted(header):
                    # It is only ever replaced, never written in place: what is mapped stays as it is.
                    content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                    lines = _Lines(stamp, content, len(header))
                    if not _ends_well(lines):
                        lines = _parsed(bytes(content), stamp)
                else:
                    lines = _parsed(begin + file.readall(), stamp)
        except FileNotFoundError:
            lines = _ABSENT
        self._lines = lines
        return lines


def _is_sorted(header: bytes) -> bool:
    return header.startswith(_HEADER) and b"sorted" in header.split()


def _parsed(content: bytes, stamp: Stamp) -> _Lines:
    """Check the content of a whole file, and put it in order."""
    header = content[: content.find(b"\n") + 1]
    names = _NAMES.findall(content)
    damage = _damage_of(content)
    if not damage and _is_sorted(header):
        if all(map(lt, names, names[1:])):
            return _Lines(stamp, content, len(header))
        damage = "says that it is sorted, and a line of it stands in the wrong place"
    # A name that stands there twice is not certain in a damaged file; in others the last one wins.
    unsure = {name for name, count in Counter(names).items() if count > 1} if damage else set[bytes]()
    oids = {match[1]: match[0] for match in _NAMES.finditer(content) if match[1] not in unsure}
    return _Lines(stamp, b"".join(oids[name] for name in sorted(oids)), 0, damage)


def _damage_of(content: bytes) -> str:
    """Say which line is not one that git writes; empty where all are."""
    if not content:
        return "is empty"
    sound = _SOUND.match(content)
    end = 0 if sound is None else sound.end()
    if end == len(content):
        return ""
    line = content[end:].split(b"\n", 1)[0][:_SHOWN].decode("utf-8", "backslashreplace")
    return f"holds {line!r} in line {content.count(bytes([10]), 0, end) + 1}, which is not a packed ref"


def _from(lines: _Lines, name: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield (name, id) of the refs from the first that is not before `name` on, in order.

    Raises `_Unsound`, also for a line that is met on the way to the first.
    """
    content = lines.content
    position = _first(lines, name)
    before = b""
    while position < len(content):
        found = _name_at(content, position)
        if found <= before:
            raise _Unsound
        before = found
        yield found, content[position : position + _OID_LENGTH]
        position = _next_ref(content, position)


def _name_at(content: mmap.mmap | bytes, position: int) -> bytes:
    """Return the name in a line. Raises `_Unsound`."""
    line = _REF.match(content, position)
    if line is None:
        raise _Unsound
    return line[1]


def _ends_well(lines: _Lines) -> bool:
    """Tell whether the last line is whole."""
    content, end = lines.content, len(lines.content)
    if end == lines.start:
        return True
    begin = content.rfind(b"\n", lines.start, end - 1) + 1 or lines.start
    return any(line.fullmatch(content, begin) for line in (_REF, _PEELED))


def _first(lines: _Lines, name: bytes) -> int:
    """Return where the first line that is not before `name` begins. Raises `_Unsound`."""
    content = lines.content
    low, high = lines.start, len(content)  # both begin a line, or stand at the end
    while low < high:
        begin = content.rfind(b"\n", lines.start, (low + high) // 2) + 1 or lines.start
        while begin > lines.start and content[begin : begin + 1] == b"^":
            begin = content.rfind(b"\n", lines.start, begin - 1) + 1 or lines.start
        if _name_at(content, begin) < name:
            low = _next_ref(content, begin)
        else:
            high = begin
    return low


def _next_ref(content: mmap.mmap | bytes, position: int) -> int:
    """Return where the line of the next ref begins, past what a tag points at. Raises `_Unsound`."""
    position = content.find(b"\n", position) + 1 or len(content)
    if content[position : position + 1] != b"^":
        return position
    peeled = _PEELED.match(content, position)
    if peeled is None:
        raise _Unsound
    return peeled.end()


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _stamp(path: str) -> Stamp:
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
