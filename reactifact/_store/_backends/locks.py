"""Locks that die with their holder, among threads, processes and hosts, and the queue of waiters."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from typing import Protocol, TypeVar

from ...errors import LockLost, SessionBusy
from .files import open_plain, os_errors, read_plain, refuse_links, remove, write_all

# -- waiting for a lock in turn --


T = TypeVar("T")

_LOCK_QUEUE_FIRST_PAUSE = 0.0005


class Ticket(Protocol):
    """A place in a queue."""

    def is_first(self) -> bool:
        """Tell whether nobody who still waits came before."""
        ...

    def leave(self) -> None:
        """Give the place up: the lock was had, or is no longer wanted."""
        ...


class LockQueue(Protocol):
    """Those who wait for one lock."""

    def is_empty(self) -> bool:
        """Tell whether nobody waits, as far as that can be told at no cost."""
        ...

    def join(self) -> Ticket:
        """Queue up behind all who wait."""
        ...


def wait_in_turn(
    queue: LockQueue, attempt: Callable[[], T | None], wait: float, *, longest_pause: float
) -> T | None:
    """Return what `attempt` gives as soon as it is our turn; `None` after `wait` seconds in vain.

    Without a wait it is asked at once: whoever has a ticket asks so when it is his turn.
    """
    if wait <= 0:
        return attempt()
    deadline = time.monotonic() + wait
    pause = _LOCK_QUEUE_FIRST_PAUSE
    ticket: Ticket | None = None
    try:
        while True:
            is_ours = queue.is_empty() if ticket is None else ticket.is_first()
            if is_ours and (had := attempt()) is not None:
                return had
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            if ticket is None:
                ticket = queue.join()  # and look again: it may be free by now
                continue
            time.sleep(min(pause, left))
            pause = min(pause * 2, longest_pause)
    finally:
        if ticket is not None:
            ticket.leave()


TryLock = Callable[..., "FileLock | None"]


class FileQueue:
    """A queue in a folder: a ticket is a numbered file that its holder keeps locked.

    `alone` runs a function while nobody else joins.
    """

    def __init__(self, folder: str, try_lock: TryLock, alone: Callable[[Callable[[], int]], int]) -> None:
        self._folder = folder
        self._try_lock = try_lock
        self._alone = alone

    def is_empty(self) -> bool:
        """Tell whether the folder is missing: who leaves last takes it away."""
        return not os.path.isdir(self._folder) or not self._anybody_before(None)

    def join(self) -> FileTicket:
        """Queue up behind all who wait."""
        held: list[FileLock] = []

        def take_number() -> int:
            os.makedirs(self._folder, exist_ok=True)
            number = max(self._numbers(), default=0) + 1
            while not held:
                # `None`: somebody who looks for dead tickets has just seen it unlocked.
                lock = self._try_lock(self._path(number))
                if lock is not None:
                    held.append(lock)
            return number

        while True:
            with suppress(FileNotFoundError):  # the last one has just left, and taken the folder away
                number = self._alone(take_number)
                return FileTicket(self, number, held[0])

    def _numbers(self) -> list[int]:
        refuse_links(self._folder)
        try:
            return sorted(int(name) for name in os.listdir(self._folder) if name.isdigit())
        except FileNotFoundError:
            return []

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number}"

    def _anybody_before(self, number: int | None) -> bool:
        """Tell whether anybody alive has a lower number; tickets of the dead are taken away."""
        for other in self._numbers():
            if number is not None and other >= number:
                break
            with suppress(FileNotFoundError):
                lock = self._try_lock(self._path(other), create=False)
                if lock is None:
                    return True
                lock.release(unlink=True)
        self._tidy()
        return False

    def _tidy(self) -> None:
        with suppress(OSError):
            os.rmdir(self._folder)  # which only goes when it is empty


class FileTicket:
    """A place in a `FileQueue`."""

    def __init__(self, queue: FileQueue, number: int, lock: FileLock) -> None:
        self._queue = queue
        self._number = number
        self._lock = lock

    def is_first(self) -> bool:
        """Tell whether nobody who still waits came before."""
        return not self._queue._anybody_before(self._number)

    def leave(self) -> None:
        """Give the place up."""
        self._lock.release(unlink=True)
        self._queue._tidy()


# -- locks between threads and processes that die with their holder --


_FIRST_PAUSE = 0.0005
_LONGEST_PAUSE = 0.05
_SHORT_PAUSE = 0.003
_STRIPES = 64

_held: set[int] = set()
"""Descriptors that hold a lock: a forked child closes its copies, else the lock outlives us."""


def _close_inherited() -> None:
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_inherited)


class FileLock:
    """One held `flock`. `path` follows the file when its holder renames it."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self._owner = os.getpid()
        self._released = False
        _held.add(descriptor)

    def rename(self, target: str) -> None:
        """Move the lock file; the lock stays held."""
        os.rename(self.path, target)
        self.path = target

    def release(self, *, unlink: bool) -> None:
        """Give the lock back, with `unlink` taking its file away while it is still held."""
        if self._released or os.getpid() != self._owner:
            return
        self._released = True
        try:
            if unlink:
                # Where it may not be removed (any more) it stays: an unlocked file is not a lock, and an
                # error from here would hide the one that made the holder give up.
                try:
                    if _is_still_at(self.descriptor, self.path):  # else another's, or nobody's
                        remove(self.path)
                except OSError:
                    pass
        finally:
            _held.discard(self.descriptor)
            os.close(self.descriptor)

    def require_held(self) -> None:
        """Raise `LockLost` when the lock file is not the one at its path any more: another may hold that."""
        if self._released or os.getpid() != self._owner or not _is_still_at(self.descriptor, self.path):
            raise LockLost(
                f"lock file {self.path} was removed or replaced while its lock was held, so another process "
                f"may hold the lock by now; leave the lock files of a store alone, and start again"
            )

    def __del__(self) -> None:
        self.release(unlink=False)


def try_lock(path: str, *, create: bool = True, shared: bool = False) -> FileLock | None:
    """Take the `flock` of the file at `path`, or return `None` where somebody holds it.

    With `shared` others may hold it so too.

    Raises `FileNotFoundError` when there is no such file and `create` is false, `LinkInStore`.
    """
    flags = os.O_RDWR | (os.O_CREAT if create else 0)
    how = fcntl.LOCK_NB | (fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    while True:
        descriptor = open_plain(path, flags)
        try:
            fcntl.flock(descriptor, how)
            if _is_still_at(descriptor, path):
                return FileLock(path, descriptor)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return None
            raise
        # the holder before us removed the file between our open and our lock
        os.close(descriptor)


def wait_lock(path: str, wait: float, *, longest_pause: float, shared: bool = False) -> FileLock | None:
    """Take the `flock` of `path`, polling with growing pauses for at most `wait` seconds."""
    deadline = time.monotonic() + wait
    pause = _FIRST_PAUSE
    while (lock := try_lock(path, shared=shared)) is None:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(pause, left))
        pause = min(pause * 2, longest_pause)
    return lock


class LockFolder:
    """The lock files of one store, in a folder that git neither reads nor cleans."""

    def __init__(self, folder: str, location: str) -> None:
        self._folder = folder
        self._location = location
        self._made = False

    @property
    def folder(self) -> str:
        """The path of the folder."""
        return self._folder

    def take(self, name: str, wait: float) -> FileLock:
        """Take the lock called `name` (free text). Raises `SessionBusy` naming the holder."""
        path = f"{self._folder}/named-{_digest(name)}"
        if wait <= 0:  # whoever has a ticket asks so when it is his turn
            lock = self._wait(path, 0.0, longest_pause=0.0)
        else:
            lock = wait_in_turn(
                self.queue(name),
                lambda: self._wait(path, 0.0, longest_pause=0.0),
                wait,
                longest_pause=_LONGEST_PAUSE,
            )
        if lock is None:
            raise SessionBusy(
                f"lock {name!r} of {self._location} is held by {_holder(path)}; wait for it to finish, "
                f"pass a longer wait, or end that process (the lock goes with it)"
            )
        try:
            os.ftruncate(lock.descriptor, 0)
            write_all(lock.descriptor, _describe_self(name))
        except BaseException:
            lock.release(unlink=True)
            raise
        return lock

    def held(self, name: str, wait: float) -> _Held:
        """Take the lock called `name` for the length of a `with`, and its file away afterwards.

        Raises `SessionBusy` naming the holder, `StoreError` when the system refuses.
        """
        return _Held(self, self._location, name, wait)

    def queue(self, name: str) -> FileQueue:
        """Return the queue of those who wait for the lock called `name`."""

        def alone(work: Callable[[], int]) -> int:
            with self.striped(f"queue {name}", math.inf):
                return work()

        return FileQueue(f"{self._folder}/queue-{_digest(name)}", try_lock, alone)

    @contextmanager
    def internal(self, purpose: str, wait: float) -> Iterator[FileLock | None]:
        """Hold one of our own short locks; yields it, `None` where it was not had within `wait` seconds."""
        lock = self._wait(f"{self._folder}/{purpose}", wait, longest_pause=_SHORT_PAUSE)
        try:
            yield lock
        finally:
            if lock is not None:
                lock.release(unlink=False)

    def striped(self, subject: str, wait: float) -> AbstractContextManager[FileLock | None]:
        """Like `internal` for one of many subjects, over a fixed number of lock files."""
        stripe = hashlib.sha256(subject.encode()).digest()[0] % _STRIPES
        return self.internal(f"stripe-{stripe:02}", wait)

    def _wait(self, path: str, wait: float, *, longest_pause: float) -> FileLock | None:
        """Wait for the lock at a path, making the folder where it is missing, also when taken away since."""
        if self._made:
            try:
                if wait <= 0:
                    return try_lock(path)
                return wait_lock(path, wait, longest_pause=longest_pause)
            except FileNotFoundError:
                pass  # it was taken away
        refuse_links(os.path.dirname(self._folder), self._folder)
        os.makedirs(self._folder, exist_ok=True)
        self._made = True
        return wait_lock(path, wait, longest_pause=longest_pause)


class _Held:
    __slots__ = ("_folder", "_location", "_lock", "_name", "_wait")

    def __init__(self, folder: LockFolder, location: str, name: str, wait: float) -> None:
        self._folder = folder
        self._location = location
        self._name = name
        self._wait = wait

    def __enter__(self) -> FileLock:
        with os_errors(self._location, "locking"):
            self._lock = self._folder.take(self._name, self._wait)
        return self._lock

    def __exit__(self, *_: object) -> None:
        self._lock.release(unlink=True)


@lru_cache(maxsize=1024)
def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def _is_still_at(descriptor: int, path: str) -> bool:
    try:
        ours, there = os.fstat(descriptor), os.stat(path)
    except FileNotFoundError:
        return False
    return ours.st_ino == there.st_ino and ours.st_dev == there.st_dev


def _describe_self(name: str) -> bytes:
    holder = {
        "name": name,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "thread": threading.current_thread().name,
        "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    return _AS_JSON(holder).encode()


_AS_JSON = json.JSONEncoder().encode


def _holder(path: str) -> str:
    """Say who holds the lock. Read without it, so the text may be missing or half written."""
    try:
        holder = json.loads(read_plain(path))
        return (
            f"process {holder['pid']} on {holder['host']} (thread {holder['thread']}) since {holder['since']}"
        )
    except (OSError, ValueError, LookupError, TypeError):
        return "another runner that has only just taken it"


# -- named locks between the threads of one process --


class ThreadLocks:
    """Locks by free-text name. `location` names the store in messages."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._released = threading.Condition()
        self._holders: dict[str, str] = {}
        self._waiting: dict[str, list[ThreadTicket]] = {}  # first come, first served

    def queue(self, name: str) -> ThreadQueue:
        """Return the queue of those who wait for a lock."""
        return ThreadQueue(self, name)

    def take(self, name: str, wait: float) -> None:
        """Take a lock. Raises `SessionBusy`, naming the holder, when it is not free within `wait` seconds."""
        deadline = time.monotonic() + wait
        ticket = self.queue(name).join() if wait > 0 else None
        try:
            with self._released:
                while name in self._holders or (ticket is not None and not ticket.is_first()):
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise SessionBusy(
                            f"lock {name!r} of {self.location} is held by "
                            f"{self._holders.get(name, 'others who came before')}; "
                            f"wait for it to finish, or pass a longer wait"
                        )
                    self._released.wait(min(left, threading.TIMEOUT_MAX))
                self._holders[name] = f"thread {threading.current_thread().name} of this process"
        finally:
            if ticket is not None:
                ticket.leave()

    def release(self, name: str) -> None:
        """Give a lock back."""
        with self._released:
            self._holders.pop(name, None)
            self._released.notify_all()

    def forget(self) -> None:
        """Drop all locks, in a forked child: its parent holds them."""
        self._released = threading.Condition()
        self._holders = {}
        self._waiting = {}

    @property
    def is_free(self) -> bool:
        """Whether nobody holds any."""
        return not self._holders

    @contextmanager
    def hold(self, name: str, wait: float) -> Iterator[ThreadLock]:
        """Hold a lock for the length of a `with`. Raises `SessionBusy`."""
        self.take(name, wait)
        try:
            yield ThreadLock(self, name)
        finally:
            self.release(name)


class ThreadLock:
    """One held lock between threads; it is lost only in a forked child."""

    def __init__(self, locks: ThreadLocks, name: str) -> None:
        self._locks = locks
        self._name = name
        self._pid = os.getpid()

    def require_held(self) -> None:
        """Raise `LockLost` in a process that was forked off the holder's."""
        if self._pid != os.getpid():
            raise LockLost(
                f"lock {self._name!r} of {self._locks.location} is held by the process that this one was "
                f"forked off; open the store anew in this process"
            )


class ThreadQueue:
    """Those who wait for one of the `ThreadLocks`."""

    def __init__(self, locks: ThreadLocks, name: str) -> None:
        self._locks = locks
        self._name = name

    def is_empty(self) -> bool:
        """Tell whether nobody waits."""
        return not self._locks._waiting.get(self._name)

    def join(self) -> ThreadTicket:
        """Queue up behind all who wait."""
        ticket = ThreadTicket(self._locks, self._name)
        with self._locks._released:
            self._locks._waiting.setdefault(self._name, []).append(ticket)
        return ticket


class ThreadTicket:
    """A place in a `ThreadQueue`."""

    def __init__(self, locks: ThreadLocks, name: str) -> None:
        self._locks = locks
        self._name = name

    def is_first(self) -> bool:
        """Tell whether nobody who still waits came before."""
        return self._locks._waiting.get(self._name, [self])[0] is self

    def leave(self) -> None:
        """Give the place up."""
        with self._locks._released:
            waiting = self._locks._waiting.get(self._name, [])
            if self in waiting:
                waiting.remove(self)
            if not waiting:
                self._locks._waiting.pop(self._name, None)
            self._locks._released.notify_all()
