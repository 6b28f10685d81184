"""Git's `<file>.lock` protocol, and recovery of the lock files that our killed processes leave.

It owns the replacement of one file: take the lock exclusively, write, sync, rename. Our own processes
exclude each other with `locks` before they take one, so a lock file that is met here is git's or that
of a killed process of ours. Only of the latter is it known that nobody holds it: ours are hard links to
a file in our own folder, made under the name of what they lock. One that is not is never taken away,
since a git that waits for a hook cannot be told from one that was killed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ...errors import StoreBusy
from ..files import make_folders, read_plain, remove, write_all
from ..locks import LockFolder

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

    def write(self, content: bytes) -> None:
        """Write and sync what the target is to hold."""
        write_all(self._descriptor, content)
        if self._sync:
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
