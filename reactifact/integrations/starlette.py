"""Sessions in a Starlette or FastAPI application: the store for its lifespan, a session for a request.

Nothing here imports either at its top: what is needed of Starlette is imported by the function that needs it.
`docs/adapters.md` shows how it is used.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio

from .._runtime.drain import Dispatcher
from .._sessions.stores import StoreLike
from .._store.protocol import Durability
from ..clock import Clock, SystemClock
from ..errors import Contention, InvalidName, ReactifactError, StoreBusy
from ..logging import get_logger
from ..resources import RuntimeResources
from ..session import Session, SessionStore

__all__ = ["NoStore", "exception_handlers", "lifespan", "open_session", "session_dependency", "store_of"]

log = get_logger("reactifact.starlette")

_STATE = "reactifact_store"


class NoStore(ReactifactError, LookupError):
    """A request to an application that was started without `lifespan`."""


def lifespan(
    store: StoreLike | SessionStore,
    *,
    dispatcher: Dispatcher | None = None,
    drain_every: float = 60.0,
    durability: Durability = "full",
    clock: Clock | None = None,
) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """Return a lifespan for `Starlette(lifespan=...)` or `FastAPI(lifespan=...)`.

    It opens the store when the application starts and closes it when it ends (a `SessionStore` that is handed
    in stays open). With a `dispatcher` it delivers what crashes and failed deliveries left anywhere in the
    store, at the start and every `drain_every` seconds; failed actions are tried again each time. A drain
    that fails is logged, and the next one is made all the same.
    """

    @asynccontextmanager
    async def context(app: Any) -> AsyncIterator[None]:
        is_own = not isinstance(store, SessionStore)
        opened = SessionStore(store, durability=durability) if is_own else store
        setattr(app.state, _STATE, opened)
        try:
            async with anyio.create_task_group() as tasks:
                if dispatcher is not None:
                    tasks.start_soon(_drain, opened, dispatcher, drain_every, clock or SystemClock())
                yield
                tasks.cancel_scope.cancel()
        finally:
            delattr(app.state, _STATE)
            if is_own:
                with anyio.CancelScope(shield=True):
                    await opened.aclose()

    return context


async def _drain(store: SessionStore, dispatcher: Dispatcher, every: float, clock: Clock) -> None:
    while True:
        try:
            await store.drain(dispatcher, retry_failed=True)
        except Exception:
            log.exception("the outbox could not be drained; the next try is in %s seconds", every)
        await clock.sleep(every)


def store_of(request: Any) -> SessionStore:
    """Return the store of the application that a request came to. Raises `NoStore`."""
    found = getattr(request.app.state, _STATE, None)
    if found is None:
        raise NoStore(
            "the application has no open store: make it with lifespan=lifespan(store), and in tests run the "
            "requests inside its lifespan"
        )
    return found  # type: ignore[no-any-return]


@asynccontextmanager
async def open_session(
    request: Any, session_id: str, *, wait: float | None = 10.0, resources: RuntimeResources | None = None
) -> AsyncIterator[Session]:
    """Open a session for the length of a request; it is saved when the block ends without an error.

    Requests for one session queue up for `wait` seconds (`None`: they are not kept apart, and the second to
    save gets `StaleSession`). Raises as `SessionStore.open` does.
    """
    async with await store_of(request).open(session_id, resources, wait=wait) as session:
        yield session


def session_dependency(
    parameter: str = "session_id",
    *,
    wait: float | None = 10.0,
    resources: Callable[[Any], RuntimeResources] | None = None,
) -> Callable[..., AsyncIterator[Session]]:
    """Return a FastAPI dependency that gives the session named by a path parameter (see `open_session`).

    `resources` makes those of a request. Raises `LookupError`, when it is asked, for a route without the
    parameter.
    """
    from starlette.requests import Request

    async def session(request: Any) -> AsyncIterator[Session]:
        name = request.path_params.get(parameter)
        if name is None:
            raise LookupError(
                f"the route {request.url.path} has no path parameter {parameter!r}: name it in the route, or "
                f"give session_dependency() the one it has"
            )
        made = None if resources is None else resources(request)
        async with open_session(request, name, wait=wait, resources=made) as opened:
            yield opened

    session.__annotations__["request"] = Request  # what FastAPI looks at
    return session


def exception_handlers() -> dict[Any, Callable[[Any, Any], Coroutine[Any, Any, Any]]]:
    """Return handlers for `Starlette(exception_handlers=...)` or `FastAPI(...)`.

    A session that is busy, or that somebody else wrote meanwhile, is answered by 409 with `Retry-After: 1`,
    an id that cannot be stored by 400. Each answer is `{"error": the message}`.
    """
    from starlette.responses import JSONResponse

    async def try_again(request: Any, error: Exception) -> Any:
        return JSONResponse({"error": str(error)}, status_code=409, headers={"Retry-After": "1"})

    async def refuse(request: Any, error: Exception) -> Any:
        return JSONResponse({"error": str(error)}, status_code=400)

    return {StoreBusy: try_again, Contention: try_again, InvalidName: refuse}
