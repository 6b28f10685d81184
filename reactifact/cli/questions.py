"""`reactifact questions` and `answer`: what agents ask people, and answering it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import anyio
import click

from .._sessions import questions as asked
from .._sessions.questions import AskedQuestion
from .._store.names import plain
from .._store.object_db import Database
from ..errors import AnswerConflict, AnswerInvalid, QuestionExpired, UnknownQuestion
from .common import (
    Cell,
    duration,
    fail_for,
    find_models,
    json_option,
    line,
    models_option,
    one_line,
    opened,
    print_json,
    say_error,
    store_argument,
    stored_at,
    table,
)

NOT_TAKEN = 1


@click.command(short_help="List the questions that wait for an answer.")
@store_argument
@click.argument("session", metavar="[SESSION]", required=False)
@click.option("--all", "everything", is_flag=True, help="Those that are answered or expired too.")
@json_option
def questions(store: str, session: str | None, everything: bool, as_json: bool) -> None:
    """List the questions that wait for an answer, of every session or of SESSION.

    Each with its id, its session and branch, how long it has waited and how long it is still open, and the
    answers that it takes. `reactifact answer` answers one.

    \b
    --json: {what, questions: [{session, branch, id, question, kind, status, asked_at, notes, answer,
      answer_type, answer_schema, options, deadline, asked_by}], damaged: [{ref, session, branch, error}]}
    """
    now = datetime.now(UTC)
    with opened(store) as database:
        found, broken = asked.questions(database, session, now, only_open=not everything)
    if as_json:
        listed = [one.to_dict() for one in found]
        print_json({"questions": listed, "damaged": [one._asdict() for one in broken]})
    elif found:
        table(
            [["ID", "BRANCH", "ASKED", "OPEN FOR", "STATUS", "ANSWER", "QUESTION"]]
            + [_row(q, now) for q in found]
        )
    elif not broken:
        line("no questions")
    fail_for(broken)


def _row(one: AskedQuestion, now: datetime) -> list[Cell | str]:
    left = (
        "" if one.deadline is None or one.status != "open" else duration((one.deadline - now).total_seconds())
    )
    answers = "|".join(one.options) if one.options else (one.answer_type or "").rpartition(".")[2]
    colours = {"open": "yellow", "expired": "red", "answered": "green"}
    return [
        Cell(plain(one.id), "cyan"),
        plain(f"{one.session}/{one.branch}"),
        f"{duration((now - one.asked_at).total_seconds())} ago",
        left,
        Cell(one.status, colours[one.status]),
        plain(answers),
        one_line(one.question),
    ]


@click.command(short_help="Answer a question.")
@store_argument
@click.argument("question_id", metavar="ID")
@click.argument("answer", metavar="[ANSWER]", required=False)
@click.option("--option", "label", metavar="LABEL", help="Answer with one of the options of the question.")
@click.option("--session", help="The session, where several hold a question of that id.")
@click.option("--branch", help="The branch; default: main, or the only one that has the question.")
@click.option("--change", is_flag=True, help="Change an answer that was given already.")
@click.option("--wait", type=float, default=10.0, show_default=True, help="Seconds to wait for a turn's end.")
@models_option
@json_option
@click.pass_context
def answer(
    click_context: click.Context,
    store: str,
    question_id: str,
    answer: str | None,
    label: str | None,
    session: str | None,
    branch: str | None,
    change: bool,
    wait: float,
    models: tuple[str, ...],
    as_json: bool,
) -> None:
    """Answer the question ID with ANSWER, which is JSON, or with one of its options.

    An answer is validated by the model of the question, so the module of that model has to be named by
    --models (a question without a model takes any JSON, or text that is none). Who waits for the answer is
    woken by the next turn of the session. Exit code 1, and nothing is written, for an answer that is not
    what was asked for, one that is late, a second one, and an id that is not there.

    \b
    --json: {what, session, branch, id, question, kind, status, asked_at, notes, answer, answer_type,
      answer_schema, options, deadline, asked_by}
    """
    if (answer is None) == (label is None):
        raise click.UsageError("give the answer once: as ANSWER, or with --option LABEL")
    find_models(models)
    try:
        with stored_at(store, "auto", read_only=False) as database:
            done = anyio.run(
                _answer, database, question_id, _json(answer), session, branch, label, change, wait
            )
    except (AnswerConflict, AnswerInvalid, QuestionExpired, UnknownQuestion) as error:
        say_error(error)
        click_context.exit(NOT_TAKEN)
    if as_json:
        print_json(done.to_dict())
        return
    said = one_line(json.dumps(done.answer))
    line(f"answered {plain(done.id)} of {plain(done.session)}/{plain(done.branch)}: {said}")


def _json(text: str | None) -> Any:
    """Return the JSON in a text, or the text itself."""
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text


async def _answer(
    database: Database,
    question_id: str,
    given: Any,
    session: str | None,
    branch: str | None,
    label: str | None,
    change: bool,
    wait: float,
) -> AskedQuestion:
    return await asked.answer(
        database, question_id, given, session=session, branch=branch, option=label, change=change, wait=wait
    )
