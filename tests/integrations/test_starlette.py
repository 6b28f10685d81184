"""Sessions in web applications: the life of the store, a session for a request, what errors become."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import anyio
import httpx
import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from support import Note, Order, Outside, notifier

from reactifact import Runtime, Session, SessionStore
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.errors import ReactifactError
from reactifact.integrations.starlette import (
    exception_handlers,
    lifespan,
    open_session,
    session_dependency,
    store_of,
)
from reactifact.testing import JumpingClock

pytestmark = pytest.mark.anyio


Given = Annotated[Session, Depends(session_dependency("customer"))]


def client_of(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")


async def test_fastapi_gets_the_session_of_the_path_and_saves_it(tmp_path: Path) -> None:
    app = FastAPI(lifespan=lifespan(tmp_path / "s.git"), exception_handlers=exception_handlers())

    @app.post("/{customer}/notes/{text}")
    async def note(text: str, session: Given) -> int:
        session.context.create(Note(text=text))
        return len(session.context.list_artifacts(Note))

    async with app.router.lifespan_context(app), client_of(app) as client:
        answers = [(await client.post(f"/ann/notes/{text}")).json() for text in ("a", "b")]
        other = await client.post("/bob/notes/c")
    assert (answers, other.json()) == ([1, 2], 1)
    store = SessionStore(tmp_path / "s.git")
    assert await store.list_sessions() == ["ann", "bob"]
    await store.aclose()


async def test_a_request_that_fails_saves_nothing_and_a_busy_session_is_409() -> None:
    store = SessionStore(InMemoryKVBackend())
    entered, left = anyio.Event(), anyio.Event()

    async def handle(request: Request) -> JSONResponse:
        wanted = request.path_params["what"]
        async with open_session(request, request.path_params["name"], wait=0) as session:
            session.context.create(Note(text=wanted))
            if wanted == "fail":
                raise ZeroDivisionError
            if wanted == "stay":
                entered.set()
                await left.wait()
        return JSONResponse({})

    app = Starlette(
        routes=[Route("/{name}/{what}", handle)],
        lifespan=lifespan(store),
        exception_handlers=exception_handlers(),
    )
    async with app.router.lifespan_context(app), client_of(app) as client:
        with pytest.raises(ZeroDivisionError):
            await client.get("/a/fail")
        assert not await store.has_session("a")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.get, "/a/stay")
            await entered.wait()
            busy = await client.get("/a/go")
            left.set()
        assert (busy.status_code, busy.headers["retry-after"]) == (409, "1")
        assert "a" in busy.json()["error"]
        assert (await client.get("/a/go")).status_code == 200
        assert (await client.get("/" + "x" * 5000 + "/go")).status_code == 400
    assert await store.has_session("a")  # a store that was handed in stays open


async def test_what_a_crash_left_is_delivered_at_the_start_and_again_later(tmp_path: Path) -> None:
    world = Outside("notify:order:1")
    store = SessionStore(tmp_path / "s.git")
    session = await store.open("s")
    session.context.create(Order(item="tea"), id="order:1")
    with pytest.raises(ConnectionError):
        await Runtime(session.context, [notifier()], dispatcher=world, session=session).arun()
    await store.aclose()
    clock = JumpingClock()
    tried = anyio.Event()

    async def dispatch(context: Any, action: Any) -> None:
        try:
            await world(context, action)
        except ConnectionError:
            world.failing.clear()
            raise
        tried.set()

    app = Starlette(lifespan=lifespan(tmp_path / "s.git", dispatcher=dispatch, drain_every=30, clock=clock))
    async with app.router.lifespan_context(app):
        await tried.wait()
    assert world.sent == ["notify:order:1"]
    assert 30 in clock.slept


async def test_an_application_without_the_lifespan_is_told_so() -> None:
    request = Request({"type": "http", "app": Starlette()})
    with pytest.raises(ReactifactError, match=r"lifespan=lifespan\(store\)"):
        store_of(request)
