"""The application: addresses, the pages behind them, what they may write, what an error looks like.

A page is made in a worker thread, from the store alone: no module that a store names is imported.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from .._context import rebase
from .._context.context import Context
from .._context.push import publish_ledger
from .._html import Html, el, lines, style
from .._sessions import questions
from .._store._history.revset import DAMAGE, damage
from .._store.branch import MAIN
from .._store.names import branch_ref
from .._store.object_db import Database
from .._store.protocol import scan_refs
from ..clock import SYSTEM_CLOCK, Clock
from ..errors import (
    AnswerConflict,
    AnswerInvalid,
    InvalidName,
    MissingObject,
    PayloadError,
    QuestionExpired,
    ReactifactError,
    SessionBusy,
    TypeNotFoundError,
    UnknownQuestion,
    UnknownRevision,
)
from ..resources import RuntimeResources
from ..threads import in_thread
from ..types.importer import importing_nothing
from .asked import Asked, BadQuery, url
from .forms import Sent
from .frame import MARK, Page, rendered
from .guard import LOCAL_HOSTS, Guard, Token
from .pages.artifacts import artifact_page, artifacts_page
from .pages.commits import commit_page, diff_page
from .pages.compare import compare_page
from .pages.outbox import outbox_page
from .pages.questions import given_answer, questions_page, read_question, refused_page
from .pages.runs import change_page, run_page
from .pages.session import session_page, sessions_page

Maker = Callable[[Asked], "Page | str"]
"""Makes a page, or gives the address to go to instead."""

PAGES: Mapping[str, Maker] = {
    "/": sessions_page,
    "/session": session_page,
    "/commit": commit_page,
    "/change": change_page,
    "/diff": diff_page,
    "/run": run_page,
    "/artifacts": artifacts_page,
    "/artifact": artifact_page,
    "/compare": compare_page,
    "/outbox": outbox_page,
    "/questions": questions_page,
}

_LARGEST_FORM = 1024 * 1024


def application(
    database: Database,
    *,
    name: str = "",
    token: Token | None = None,
    hosts: Iterable[str] = LOCAL_HOSTS,
    clock: Clock = SYSTEM_CLOCK,
) -> ASGIApp:
    """Return the ASGI application that shows a store.

    `name` is what the pages call the store. With a `token` failed actions can be retried and questions
    answered by whoever opened `/?token=...`; the database must not be read-only then. Requests for other
    `hosts` are refused. Ages and deadlines are told by the `clock`.
    """
    inspector = _Inspector(database, name or database.backend.location, token, clock)
    routes = [Route(path, partial(inspector.show, make)) for path, make in PAGES.items()]
    routes += [
        Route("/retry", inspector.retry, methods=["POST"]),
        Route("/answer", inspector.answer, methods=["POST"]),
        Route("/pulse", inspector.pulse),
        Route("/static/style.css", partial(_text, style(), "text/css")),
        Route("/static/live.js", partial(_text, _static("live.js"), "text/javascript")),
        Route("/static/mark.svg", partial(_text, _mark(), "image/svg+xml")),
    ]
    app = Starlette(routes=routes, exception_handlers={404: inspector.not_found})
    return Guard(app, hosts)


def _static(name: str) -> str:
    return files(__package__).joinpath("static", name).read_text(encoding="utf-8")


def _mark() -> str:
    shown = MARK.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" color="#0c6b5d" ')
    return shown.replace('class="mark-dot"', 'fill="#c2571a"')


async def _text(text: str, kind: str, request: Request) -> Response:
    return Response(text, media_type=kind)


class _Inspector:
    """The store behind the pages."""

    def __init__(self, database: Database, name: str, token: Token | None, clock: Clock) -> None:
        self._database = database
        self._name = name
        self._token = token
        self._clock = clock

    # -- reading -----------------------------------------------------------------------------------

    async def show(self, make: Maker, request: Request) -> Response:
        """Answer with a page."""
        entering = self._entering(request)
        return entering if entering is not None else await in_thread(self._answer, make, self._asked(request))

    def _asked(self, request: Request) -> Asked:
        secret = None
        if self._token is not None and self._token.is_set(request.headers):
            secret = self._token.form_secret
        return Asked(self._database, Asked.parsed(request.url.query), self._clock.now(), secret)

    def _entering(self, request: Request) -> Response | None:
        """Take the token out of an address: a cookie stands for it from now on."""
        query = parse_qsl(request.url.query)
        given = dict(query).get("token")
        if given is None:
            return None
        if self._token is None or not self._token.fits(given):
            return self._problem(
                None, 403, "This token does not fit", "Use the address that the server printed."
            )
        rest = urlencode([pair for pair in query if pair[0] != "token"])
        response = RedirectResponse(request.url.path + (f"?{rest}" if rest else ""), 303)
        response.set_cookie(self._token.cookie_name, self._token.cookie, httponly=True, samesite="strict")
        return response

    def _answer(self, make: Maker, asked: Asked) -> Response:
        try:
            with importing_nothing():
                pulse = self._pulse_of(
                    asked.text("s")
                )  # first, so that what is written meanwhile shows later
                page = make(asked)
                if isinstance(page, str):
                    return RedirectResponse(page, 303)
                text = rendered(page, asked, self._name, pulse if page.is_live else None)
        except BadQuery as error:
            return self._problem(asked, 400, "This address cannot be shown", str(error))
        except (UnknownRevision, InvalidName, MissingObject) as error:
            return self._problem(asked, 404, "Not here", str(error))
        except DAMAGE as error:
            return self._problem(asked, 500, "This cannot be read", damage(error))
        return _html(text, page.status)

    async def pulse(self, request: Request) -> Response:
        """Answer with a text that is another one after every write to the session, or to the store."""
        session = self._asked(request).text("s")
        try:
            return PlainTextResponse(await in_thread(self._pulse_of, session))
        except ReactifactError as error:
            return PlainTextResponse(f"{error}\n", 404)

    def _pulse_of(self, session: str | None) -> str:
        prefix = "refs/heads/" if session is None else branch_ref(session, MAIN).rpartition("/")[0] + "/"
        refs = scan_refs(self._database.backend, prefix).refs
        return hashlib.sha256(repr(sorted(refs.items())).encode()).hexdigest()[:24]

    async def not_found(self, request: Request, error: Exception) -> Response:
        """Answer where there is no such page."""
        return self._problem(None, 404, "Not here", "There is no such page.")

    def _problem(self, asked: Asked | None, status: int, title: str, text: str) -> Response:
        body = [
            el("h1", title),
            el("pre", lines(text), class_="problem"),
            el("p", el("a", "All sessions", href="/")),
        ]
        return _html(rendered(Page(title, body), asked, self._name, None), status)

    # -- writing -----------------------------------------------------------------------------------

    async def retry(self, request: Request) -> Response:
        """Arm an action anew, and show the outbox."""

        async def act(asked: Asked, form: Sent) -> str:
            branch = asked.required("b", "branch")
            await retry_action(self._database, asked.session, branch, asked.required("id", "action"))
            return asked.url("/outbox")

        return await self._written(request, act)

    async def answer(self, request: Request) -> Response:
        """Answer a question, and show those that are left."""

        async def act(asked: Asked, form: Sent) -> str | Page:
            question_id = asked.required("id", "question")
            place = asked.session, asked.required("b", "branch")
            question = await in_thread(read_question, asked, question_id)
            try:
                given, option = given_answer(question, form)
                await answer_question(
                    self._database, place, question_id, given, option=option, clock=self._clock
                )
            except AnswerInvalid as error:
                assert question is not None  # what is no question has no wrong answer
                return refused_page(asked, question, form, error)
            return asked.url("/questions")

        return await self._written(request, act)

    async def _written(
        self, request: Request, act: Callable[[Asked, Sent], Awaitable[str | Page]]
    ) -> Response:
        asked = self._asked(request)
        form = await _form(request)
        if self._token is None:
            return self._problem(asked, 403, "Read-only", "Start the inspector with --allow-writes for this.")
        if form is None:
            return self._problem(asked, 413, "Too large", "A form of this size is not taken.")
        if not self._token.allows(request.headers, (form.get("secret") or [""])[-1]):
            return self._problem(
                asked, 403, "Not allowed", "Open the address with the token that the server printed."
            )
        try:
            with importing_nothing():
                done = await act(asked, form)
                if isinstance(done, str):
                    return RedirectResponse(done, 303)
                return _html(await in_thread(rendered, done, asked, self._name, None), done.status)
        except BadQuery as error:
            return self._problem(asked, 400, "This cannot be done", str(error))
        except (UnknownRevision, UnknownQuestion, InvalidName) as error:
            return self._problem(asked, 404, "Not here", str(error))
        except AnswerConflict as error:
            return self._problem(asked, 409, "Answered already", str(error))
        except QuestionExpired as error:
            return self._problem(asked, 410, "Too late", str(error))
        except SessionBusy as error:
            return self._problem(asked, 409, "Not now", str(error))
        except PayloadError as error:
            return self._problem(asked, 422, "Not what was asked for", str(error))
        except TypeNotFoundError as error:
            return self._problem(
                asked,
                409,
                "Not by this server",
                f"{error}\nStart the inspector with --models and its module.",
            )
        except (ReactifactError, OSError) as error:
            return self._problem(asked, 500, "This could not be written", str(error))


async def _form(request: Request) -> Sent | None:
    """Return the fields of a form, `None` for one that is too large."""
    received = b""
    async for chunk in request.stream():
        received += chunk
        if len(received) > _LARGEST_FORM:
            return None
    return parse_qs(received.decode("utf-8", "replace"), keep_blank_values=True)


def _html(text: Html, status: int) -> Response:
    return HTMLResponse(text.encode("utf-8", "backslashreplace"), status)


# -- what may be changed where it was asked to: arm a failed action anew, answer a question --

AUTHOR = "inspector"
_WAIT = 2.0
"""Seconds to wait for a turn of the branch to end before an answer is refused."""


async def retry_action(database: Database, session: str, branch: str, action_id: str) -> None:
    """Let a failed action be sent again by the next drain. Raises `UnknownRevision`, `BadQuery`."""
    line = await in_thread(rebase.load, database, session, branch)
    if line is None:
        raise UnknownRevision(f"there is no branch {branch!r} of session {session!r}")
    context = Context.over(line)
    try:
        found = context.retry_action(action_id)
    except ValueError as error:
        raise BadQuery(str(error)) from error
    if found is None:
        raise UnknownRevision(f"{session}/{branch} has no action {action_id!r}")
    await publish_ledger(context)


async def answer_question(
    database: Database,
    place: tuple[str, str],
    question_id: str,
    given: Any,
    *,
    option: str | None = None,
    clock: Clock | None = None,
) -> None:
    """Answer a question of a (session, branch); the next turn of the branch reacts to it.

    Raises what `SessionStore.answer` does, `SessionBusy` while a turn runs: an answer written beneath a turn
    would cost it its results.
    """
    resources = RuntimeResources(principal=AUTHOR, clock=clock or SYSTEM_CLOCK)
    session, branch = place
    try:
        await questions.answer(
            database,
            question_id,
            given,
            session=session,
            branch=branch,
            option=option,
            wait=_WAIT,
            resources=resources,
        )
    except SessionBusy as error:
        raise SessionBusy(
            f"a turn of {session}/{branch} is running: answer again when it has ended"
        ) from error


# -- the server: a socket that listens, and uvicorn on it --


class CannotListen(ReactifactError):
    """The address to listen on is taken, or is not one of this machine."""


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one. Raises `CannotListen`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise CannotListen(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another port with "
            f"--port (0 takes a free one), or another address with --host"
        ) from error


def run(app: ASGIApp, listener: socket.socket) -> None:
    """Serve an application on a socket until the process is told to stop (SIGINT, SIGTERM)."""
    config = uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
    )
    uvicorn.Server(config).run(sockets=[listener])


__all__ = ["PAGES", "Token", "application", "url"]
