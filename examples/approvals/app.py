"""The page: a refund is asked for, a person approves or refuses it, and everybody sees what became of it.

One process serves one session. A request changes the state and runs a turn; what waits for a person waits
in the store, so the process may end in between.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from html import escape
from urllib.parse import parse_qs

import anyio
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from reactifact import Artifact, Context, PendingAction, PendingQuestion, Runtime, Session, SessionStore
from reactifact.errors import AnswerConflict, AnswerInvalid, QuestionExpired
from reactifact.interrupt import TypedQuestion

from .refunds import Decision, Refund, agents

SESSION = "refunds"

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Refunds</title>
<h1>Refunds</h1>
<form method="post" action="/refunds">
<label>Customer <input name="customer" required></label>
<label>Cents <input name="cents" type="number" min="1" required></label>
<button>Ask for a refund</button>
</form>
<h2>Waiting for you</h2>
<ul id="questions">{questions}</ul>
<h2>Decided</h2>
<ul id="decisions">{decisions}</ul>
</html>
"""


class Service:
    """The open session behind the page."""

    def __init__(self, session: Session, patience: timedelta) -> None:
        self.session = session
        self.paid: list[str] = []
        self._lock = anyio.Lock()
        self._runtime = Runtime(
            session.context,
            agents=agents(patience),
            session=session,
            dispatcher=self._pay,
            session_save_policy="per_step",
        )

    async def _pay(self, context: Context, action: Artifact[PendingAction]) -> None:
        """Stands for a bank: it is told each key once, or again with the same key."""
        self.paid.append(action.data.idempotency_key)

    async def turn(self, change: Callable[[Context], object] | None = None) -> None:
        """Make a change, and run the agents until nothing is left to do but to wait."""
        async with self._lock:
            if change is not None:
                change(self.session.context)
            await self._runtime.arun()

    def page(self) -> str:
        """Return the page as HTML."""
        context = self.session.context
        questions = "".join(_question(one) for one in context.pending_questions())
        decisions = "".join(
            f"<li>{escape(one.data.refund)}: {escape(one.data.text)}</li>"
            for one in context.list_artifacts(Decision)
        )
        return PAGE.format(questions=questions, decisions=decisions)


def _question(question: Artifact[PendingQuestion]) -> str:
    assert isinstance(question.data, TypedQuestion)
    buttons = "".join(
        f'<button name="option" value="{escape(option.label)}">{escape(option.label)}</button>'
        for option in question.data.options or []
    )
    text, action = escape(question.data.question), escape(f"/questions/{question.id}")
    return f'<li>{text} <form method="post" action="{action}">{buttons}</form></li>'


def make_app(store: SessionStore, patience: timedelta = timedelta(hours=1)) -> Starlette:
    """Return the ASGI application over a store."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with await store.open(SESSION, wait=10) as session:
            app.state.service = Service(session, patience)
            await app.state.service.turn()  # what was left over by the process before
            yield

    routes = [
        Route("/", _show),
        Route("/refunds", _ask, methods=["POST"]),
        Route("/questions", _list),
        Route("/questions/{id:path}", _answer, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


async def _show(request: Request) -> Response:
    service: Service = request.app.state.service
    await service.turn()  # a deadline may have passed
    return HTMLResponse(service.page())


async def _list(request: Request) -> Response:
    service: Service = request.app.state.service
    found = service.session.context.pending_questions()
    return JSONResponse({one.id: one.data.model_dump(mode="json") for one in found})


async def _ask(request: Request) -> Response:
    form = await _form(request)
    try:
        refund = Refund.model_validate(form)
    except ValidationError as error:
        return Response(str(error), 422)
    await request.app.state.service.turn(lambda context: context.create(refund))
    return RedirectResponse("/", 303)


async def _answer(request: Request) -> Response:
    service: Service = request.app.state.service
    question_id = request.path_params["id"]
    found = service.session.context.get(question_id)
    if found is None or not isinstance(found.data, TypedQuestion):
        return Response("there is no such question", 404)
    form = await _form(request)
    answers = {option.label: option.answer for option in found.data.options or []}
    answer = answers.get(form.get("option", ""))
    return await _saying(lambda: service.turn(lambda context: context.resume(question_id, answer)))


async def _saying(answer: Callable[[], Awaitable[None]]) -> Response:
    """Give the typed errors of an answer their status."""
    try:
        await answer()
    except AnswerInvalid as error:
        return Response(str(error), 422)
    except QuestionExpired as error:
        return Response(str(error), 410)
    except AnswerConflict as error:
        return Response(str(error), 409)
    return RedirectResponse("/", 303)


async def _form(request: Request) -> dict[str, str]:
    found = parse_qs((await request.body()).decode(), keep_blank_values=True)
    return {name: values[-1] for name, values in found.items()}
