"""`reactifact questions` and `answer`."""

from __future__ import annotations

from datetime import timedelta

import anyio
import pytest
from pydantic import BaseModel
from shop import Order

from reactifact import Consume, Runtime, SessionStore, create_agent, produce
from reactifact.cli.common import open_store


class Approval(BaseModel):
    approved: bool


@produce(Order)
async def ask(call):
    options = {"yes": Approval(approved=True), "no": Approval(approved=False)}
    answer = await call.ask(Approval, "Ship\nit?", deadline=timedelta(hours=2), options=options, key="k")
    call.effects.create(Order(customer=f"shipped {answer.approved}"), id="shipped")


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "s.git"

    async def write():
        async with await SessionStore(open_store(found)).open("s") as session:
            session.context.create(Order(customer="ann"), id="o1")
            session.context.interrupt("Why?")
            agent = create_agent("asker", consumes=[Consume(Order)], produces=[ask])
            await Runtime(session.context, [agent], session=session).arun()

    anyio.run(write)
    return found


def listed(run, path, *more):
    return run("questions", path, *more, "--json").json["questions"]


def test_questions_are_listed(run, path):
    found = run("questions", path)
    assert found.code == 0
    assert "yes|no" in found.out
    assert "Ship it?" in found.out
    assert "s/main" in found.out
    plain, typed = listed(run, path, "s")
    assert (plain["question"], plain["answer_type"], plain["status"]) == ("Why?", None, "open")
    assert typed["options"] == {"yes": {"approved": True}, "no": {"approved": False}}
    assert typed["asked_by"] == "asker"


def test_answers_are_given_by_option_by_json_and_as_text(run, path):
    plain, typed = listed(run, path)
    models = ("--models", "test_questions_command")
    found = run("answer", path, typed["id"], '{"approved": "hunter2"}', *models)
    assert (found.code, found.out) == (1, "")
    assert "approved" in found.err
    assert "hunter2" not in found.err
    found = run("answer", path, typed["id"], "--option", "yes", *models)
    assert (found.code, found.err) == (0, "")
    assert found.out == f'answered {typed["id"]} of s/main: {{"approved": true}}\n'
    assert run("answer", path, typed["id"], "--option", "no", *models).code == 1
    assert run("answer", path, plain["id"], "because").code == 0
    assert listed(run, path) == []
    assert [one["answer"] for one in listed(run, path, "--all")] == ["because", {"approved": True}]
    assert run("questions", path).out == "no questions\n"


def test_what_is_refused(run, path):
    assert run("answer", path, "nobody", "1").code == 1
    assert run("answer", path, "nobody").code == 2
    assert run("answer", path, "nobody", "1", "--option", "yes").code == 2
