"""Faults on demand: a store that fails or dies at its n-th write, a produce or dispatcher at its n-th call.

Owns `FaultyBackend`, `failing` and `crashing`. A *failure* is an error that the code under test may
handle; a *crash* stands for the death of the process: nothing is stored from there on.
"""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, TypeVar, cast

from .._sessions.stores import StoreLike, open_database
from .._store._backends.locks import LockQueue
from .._store.objects import GitObject, Oid
from .._store.protocol import HeldLock, ObjectBackend, RefUpdate
from ..agents import Agent
from ..errors import StoreError
from ..produce import Produce

W = TypeVar("W", bound=Callable[..., Any] | Produce[Any] | Agent)
When = Literal["before", "after"]


class InjectedFault(Exception):
    """The error that `failing` and `RecordingDispatcher` raise where no other was given."""


class Crash(BaseException):
    """Stands for the death of the process. No `except Exception` takes it for an error."""


class FaultyBackend:
    """An `ObjectBackend` over another one that fails, or dies, at its n-th write.

    `store` is what `SessionStore` takes: a backend, a path or a DSN. Writes are counted from 1: all that a
    save or a barrier publishes is one, and so is each outcome of a send. It counts as durable, also
    over a store in memory: models have to stand at the top level of a module.

    At write `fail_at` a `StoreError` (or `error`) is raised and nothing of that write is stored; later writes
    succeed again. At write `crash_at` a `Crash` is raised and, from then on, by every write: what was
    written before is stored, nothing after. With `torn` the objects of that write are stored and none
    of its refs has moved, as after a kill between the two. To look at what is left, open the inner
    store again. Raises `ValueError` for a number below 1.
    """

    def __init__(
        self,
        store: StoreLike,
        *,
        fail_at: int | None = None,
        crash_at: int | None = None,
        error: Exception | None = None,
        torn: bool = False,
    ) -> None:
        _check_number("fail_at", fail_at)
        _check_number("crash_at", crash_at)
        self.inner: ObjectBackend = open_database(store).backend
        self.fail_at = fail_at
        self.crash_at = crash_at
        self._error = error
        self._torn = torn
        self._mutex = threading.Lock()
        self._writes = 0
        self._crashed = False

    @property
    def writes(self) -> int:
        """How many writes were asked for, failed ones included; those after a crash do not count."""
        return self._writes

    @property
    def crashed(self) -> bool:
        """Whether the crash has happened."""
        return self._crashed

    def crash(self) -> Crash:
        """Die now: refuse every write from here on, and return the `Crash` to raise."""
        self._crashed = True
        return Crash("injected: the process died here")

    @property
    def location(self) -> str:
        """That of the inner store."""
        return self.inner.location

    @property
    def is_local(self) -> bool:
        """That of the inner store."""
        return self.inner.is_local

    def read_many(self, oids: Iterable[Oid]) -> dict[Oid, GitObject]:
        """Read from the inner store, after a crash too."""
        return self.inner.read_many(oids)

    def refs(self, prefix: str = "refs/") -> dict[str, Oid]:
        """List the refs of the inner store."""
        return self.inner.refs(prefix)

    def write(self, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate] = ()) -> None:
        """Write to the inner store, unless it is this write's turn to fail. Raises `Crash` after one."""
        with self._mutex:
            if self._crashed:
                raise Crash("injected: the process died before this write")
            self._writes += 1
            number = self._writes
            self._crashed = dies = number == self.crash_at
        if dies:
            if self._torn:
                self.inner.write(objects)
            raise Crash(f"injected: the process died at write {number}")
        if number == self.fail_at:
            raise self._error or StoreError(
                f"injected: write {number} to {self.location} fails; nothing of it was stored"
            )
        self.inner.write(objects, updates)

    def queue(self, name: str) -> LockQueue:
        """Return the queue of those who wait for a named lock."""
        return self.inner.queue(name)

    def lock(self, name: str, *, wait: float = 0.0) -> AbstractContextManager[HeldLock]:
        """Hold a lock of the inner store; a crash gives it back as it leaves the `with`."""
        return self.inner.lock(name, wait=wait)

    def close(self) -> None:
        """Close the inner store."""
        self.inner.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r})"


def failing(
    work: W,
    *,
    at: int,
    error: BaseException | type[BaseException] | None = None,
    when: When = "before",
) -> W:
    """Return a copy of a produce, an agent or a dispatcher whose n-th call fails; `work` stays as it is.

    Calls are counted from 1 over all runs that use the copy; a retry is a call. `error` is raised there, by
    default an `InjectedFault`; `when="after"` does the work first: a dispatcher has sent then, and
    nobody knows. Raises `ValueError` for a number below 1, `TypeError` for anything else than those three.
    """
    default = InjectedFault(f"injected: call {at} of {_name(work)} fails")
    return _at_call(work, at, lambda: raised(error, default), when)


def crashing(work: W, *, at: int, backend: FaultyBackend, when: When = "before") -> W:
    """Return a copy of a produce, an agent or a dispatcher in whose n-th call the process dies.

    `backend`, the store of the session, stores nothing from there on, and a `Crash` is raised. With
    `when="after"` a dispatcher has sent and could not record it: the action is sent again later, under
    the same key. Raises as `failing` does.
    """
    return _at_call(work, at, backend.crash, when)


def raised(
    error: BaseException | type[BaseException] | None, default: BaseException
) -> BaseException | type[BaseException]:
    """Return what to raise: the error given, else the default."""
    return default if error is None else error


def _at_call(work: W, at: int, make_error: Callable[[], Any], when: When) -> W:
    _check_number("at", at)
    if when not in ("before", "after"):
        raise ValueError(f"when={when!r}: give 'before' or 'after' the work of the call")
    lock, calls = threading.Lock(), 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def call(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            with lock:
                calls += 1
                strikes = calls == at
            if strikes and when == "before":
                raise make_error()
            result = function(*arguments, **named)
            if isinstance(result, Awaitable):
                result = await result
            if strikes:
                raise make_error()
            return result

        return call

    given: Any = work
    method = "produce" if isinstance(given, Produce) else "run" if isinstance(given, Agent) else None
    if method is not None:
        twin = copy.copy(work)
        setattr(twin, method, counted(getattr(given, method)))
        return twin
    if not _is_called(given):
        raise TypeError(
            f"{work!r} cannot be made to fail: pass a produce, an agent, or a dispatcher (a function or an "
            f"object that is called), not a class"
        )
    return cast(W, counted(given))


def _is_called(work: object) -> bool:
    return callable(work) and not isinstance(work, type)


def _name(work: Any) -> str:
    return str(getattr(work, "name", None) or getattr(work, "__name__", None) or type(work).__name__)


def _check_number(name: str, number: Any) -> None:
    if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
        raise ValueError(f"{name}={number!r}: give a number from 1 on; the first is 1")
