"""A web service on reactifact: one session a request, hundreds at once, and a dispatcher that fails.

A real server on loopback and a real client. No request fails because a delivery failed, no answer is
lost, and `store.drain` delivers in the end what could not be delivered in the request.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from support import fsck, trigger_of

from reactifact import (
    Artifact,
    Consume,
    Context,
    PendingAction,
    ProduceCall,
    Runtime,
    SessionStore,
    create_agent,
    produce,
)

pytestmark = pytest.mark.anyio

SESSIONS = [120, pytest.param(500, marks=pytest.mark.full)]
FAILS_EACH = 10
"""One delivery in so many fails, once."""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # the server and its loop are asyncio's


class Question(BaseModel):
    text: str


class Reply(BaseModel):
    text: str


@produce(Reply, also_creates=PendingAction)
async def answer(call: ProduceCall) -> None:
    question = trigger_of(call)
    call.effects.create(Reply(text=question.data.text.upper()), id="reply")
    call.effects.act("mail", key=f"mail:{call.request['user']}", payload={"text": question.data.text})


class Mail:
    """The world. The deliveries of one key in ten fail until it is repaired."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.failed = 0
        self.is_repaired = False

    async def __call__(self, context: Context, action: Artifact[PendingAction]) -> None:
        key = action.data.idempotency_key
        await asyncio.sleep(0.002)
        if not self.is_repaired and int(key.rpartition("-")[2]) % FAILS_EACH == 0:
            self.failed += 1
            raise ConnectionError(f"no route for {key}")
        self.sent[key] += 1


def application(store: SessionStore, mail: Mail) -> Starlette:
    """Return the service: `POST /ask/{user}` runs one turn of the user's session and answers."""

    async def ask(request: Request) -> JSONResponse:
        user = request.path_params["user"]
        session = await store.open(user)
        session.context.create(Question(text=(await request.json())["text"]), id="question")
        agent = create_agent("answerer", consumes=[Consume(Question)], produces=[answer])
        runtime = Runtime(
            session.context, agents=[agent], session=session, dispatcher=mail, dispatch_errors="record"
        )
        await runtime.arun(request={"user": user})
        reply = session.context.get("reply")
        assert reply is not None
        return JSONResponse({"reply": reply.data.text})

    return Starlette(routes=[Route("/ask/{user}", ask, methods=["POST"])])


@contextmanager
def served(app: Any) -> Iterator[str]:
    """Serve an application on loopback, in a thread with a loop of its own."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", loop="asyncio"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()
        assert not thread.is_alive()


@pytest.mark.parametrize("sessions", SESSIONS)
async def test_no_request_fails_for_a_delivery_and_drain_delivers_the_rest(
    sessions: int, tmp_path: Path
) -> None:
    path = tmp_path / "state.git"
    mail = Mail()
    limits = httpx.Limits(max_connections=sessions, max_keepalive_connections=0)
    with served(application(SessionStore(path, durability="os"), mail)) as url:
        async with httpx.AsyncClient(base_url=url, limits=limits, timeout=120, trust_env=False) as client:
            asked = [client.post(f"/ask/user-{n}", json={"text": f"hello {n}"}) for n in range(sessions)]
            responses = await asyncio.gather(*asked)
    assert Counter(response.status_code for response in responses) == {200: sessions}
    assert [response.json()["reply"] for response in responses] == [f"HELLO {n}" for n in range(sessions)]
    failing = [f"user-{n}" for n in range(0, sessions, FAILS_EACH)]
    assert mail.failed == len(failing)
    assert len(mail.sent) == sessions - len(failing)

    store = SessionStore(path, durability="os")  # as the next process finds it
    assert len(await store.list_sessions()) == sessions
    assert await store.pending_sessions() == []  # a failed action waits for somebody to re-arm it
    mail.is_repaired = True
    report = await store.drain(mail, retry_failed=True)
    assert (report.tried, report.delivered, report.failed) == (len(failing), len(failing), [])
    assert mail.sent == {f"mail:user-{n}": 1 for n in range(sessions)}
    again = await store.drain(mail, retry_failed=True)
    assert again.tried == 0
    for user in failing:
        context = await store.load_session(user)
        assert context is not None
        action = context.get(f"action:mail:{user}")
        assert action is not None
        assert action.data.status == "dispatched"
    await store.aclose()
    fsck(path)
