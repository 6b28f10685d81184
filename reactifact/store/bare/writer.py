"""What marks a writer as alive: one locked file, to which its `.keep` files are hard links.

A `flock` belongs to the file, not to a name of it, so one lock covers every pack the writer has in
work and dies with its process. A link costs no new file and no sync for each write. It owns that
file and the making of `.keep` files; when one stands and goes is decided by `pack_folder`.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..files import refuse_links, remove, write_all
from ..locks import FileLock, try_lock

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
