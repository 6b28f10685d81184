"""Git's `<file>.lock` protocol, and recovery of the lock files that killed processes leave.

It owns one replacement of one file: create the lock exclusively, write, sync, rename. Our own
processes exclude each other with `locks` before they come here, so a lock file that is met here is a
live git's (gone in a moment) or a dead process's (it never changes).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import StoreBusy
from ..files import make_folders, remove, write_all

STALE_AFTER = 1.0
"""Seconds for which a lock file must stand unchanged to be taken for a dead process's."""

LOCK_WAIT = 10.0
"""Seconds to wait for locks that live processes hold in turn."""

_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.05


class LockFile:
    """A held `<target>.lock`: commit new content, or leave the target as it is."""

    def __init__(self, target: str, descriptor: int, *, sync: bool) -> None:
        self._target = target
        self._descriptor = descriptor
        self._sync = sync

    @property
    def path(self) -> str:
        """The lock file itself."""
        return lock_path(self._target)

    def write(self, content: bytes) -> None:
        """Write and sync what the target is to hold."""
        write_all(self._descriptor, content)
        if self._sync:
            os.fsync(self._descriptor)

    def commit(self) -> None:
        """Put the written content in the place of the target."""
        os.rename(self.path, self._target)


@contextmanager
def lock_file(target: str, *, sync: bool, stale_after: float = STALE_AFTER) -> Iterator[LockFile]:
    """Hold `<target>.lock` for the length of a `with`, making missing folders.

    One that stands unchanged for `stale_after` seconds is taken away. Raises `StoreBusy` when live
    processes keep it for `LOCK_WAIT` seconds.
    """
    descriptor = _acquire(target, sync=sync, stale_after=stale_after)
    lock = LockFile(target, descriptor, sync=sync)
    created = os.fstat(descriptor)
    try:
        yield lock
    finally:
        # after a commit the name is free, or already that of somebody else's lock
        try:
            if os.path.samestat(created, os.stat(lock.path)):
                remove(lock.path)
        except FileNotFoundError:
            pass
        os.close(descriptor)


def _acquire(target: str, *, sync: bool, stale_after: float) -> int:
    path = lock_path(target)
    started = time.monotonic()
    pause = _FIRST_PAUSE
    seen: tuple[int, int, int] | None = None
    seen_since = started
    while True:
        try:
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:
            make_folders(os.path.dirname(target), sync=sync)
        except FileExistsError:
            now = time.monotonic()
            identity = _identity(path)
            if identity != seen:
                seen, seen_since = identity, now
            elif identity is not None and now - seen_since > stale_after:
                remove(path)
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        if time.monotonic() - started > LOCK_WAIT:
            raise StoreBusy(
                f"{path} is held by other processes for over {LOCK_WAIT:.0f} seconds; "
                f"see what they are doing (a git hook, perhaps), then retry"
            )


def lock_path(target: str) -> str:
    """Return the path of the lock on a file."""
    return f"{target}.lock"


def _identity(path: str) -> tuple[int, int, int] | None:
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
