"""`reactifact relay` as a process: what it delivers, and that a signal lets what is being sent end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import forked
import pytest
from pydantic import BaseModel
from support import Note, Order

from reactifact import (
    Consume,
    PendingAction,
    ProduceCall,
    Runtime,
    RuntimeResources,
    SessionStore,
    create_agent,
    produce,
)
from reactifact.testing import JumpingClock

SCRIPT = '''
import os, sys, time

def note(context, action):
    """Say on a pipe that a send has begun, and wait until the other end says go on."""
    key = action.data.idempotency_key
    with open("begun", "w") as begun:
        begun.write(key)
    with open("go") as go:
        go.read()
    with open("sent", "a") as sent:
        sent.write(key + "\\n")

async def well(context, action):
    with open("sent", "a") as sent:
        sent.write(action.data.idempotency_key + "\\n")

async def ill(context, action):
    raise ConnectionError("no route")

constant = 7
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a store of two sessions, a module with dispatchers, and two pipes."""

    async def fill() -> None:
        store = SessionStore(tmp_path / "s.git", durability="os")
        for key in "ab":
            session = await store.open(key)
            session.context.create(PendingAction(kind="mail", idempotency_key=key), id=f"action:{key}")
            await session.save()

    anyio.run(fill)
    (tmp_path / "mailer_of_test.py").write_text(SCRIPT)
    return tmp_path


def finished(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return forked.run("-m", "reactifact", "relay", "s.git", *arguments, cwd=folder)


def test_one_pass(folder: Path) -> None:
    done = finished(folder, "--dispatcher", "mailer_of_test:well", "--once", "--json", "--log", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["delivered"], report["failed"], report["errors"]) == (2, 0, [])
    assert sorted((folder / "sent").read_text().split()) == ["a", "b"]
    records = [json.loads(line) for line in done.stderr.splitlines()]
    sends = [one for one in records if one["message"] == "action dispatched"]
    assert {(one["session_id"], one["branch"], one["action_key"]) for one in sends} == {
        ("a", "main", "a"),
        ("b", "main", "b"),
    }


def test_a_pass_that_failed_says_so(folder: Path) -> None:
    done = finished(
        folder, "--dispatcher", "mailer_of_test:ill", "--once", "--max-attempts", "1", "--log", "off"
    )
    assert (done.returncode, done.stdout) == (1, "0 delivered, 2 failed, 2 parked; 0 waiting\n")
    assert "a/main: no route" in done.stderr


@pytest.mark.parametrize(
    ("dispatcher", "told"),
    [
        ("mailer_of_test", "give it as module:function"),
        ("mailer_of_test:nothing", "has no 'nothing'"),
        ("mailer_of_test:constant", "int and not a dispatcher"),
        ("no_such_module_of_test:f", "cannot be imported"),
    ],
)
def test_a_dispatcher_that_is_none_is_refused_by_name(folder: Path, dispatcher: str, told: str) -> None:
    done = finished(folder, "--dispatcher", dispatcher, "--once")
    assert done.returncode != 0
    assert told in done.stderr
    assert not (folder / "sent").exists()


def test_a_signal_lets_what_is_being_sent_end_and_be_recorded(folder: Path) -> None:
    for pipe in ("begun", "go"):
        os.mkfifo(folder / pipe)
    arguments = ("--dispatcher", "mailer_of_test:note", "--concurrency", "1")
    process = forked.start("-m", "reactifact", "relay", "s.git", *arguments, cwd=folder)
    with open(folder / "begun") as begun:
        key = begun.read()
    process.send_signal(signal.SIGTERM)
    with open(folder / "go", "w") as go:
        go.write("go on")
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert out == "1 delivered, 0 failed, 0 parked; 0 waiting\n"
    assert (folder / "sent").read_text().split() == [key]
    again = finished(folder, "--dispatcher", "mailer_of_test:well", "--once", "--log", "off")
    assert again.returncode == 0
    assert sorted((folder / "sent").read_text().split()) == ["a", "b"]


class Approval(BaseModel):
    is_approved: bool


def test_questions_that_expired_are_told(folder: Path) -> None:
    @produce(Note)
    async def ask(call: ProduceCall) -> None:
        await call.ask(Approval, "may I?", deadline=timedelta(hours=1))

    async def asked() -> None:
        resources = RuntimeResources(clock=JumpingClock(datetime(2020, 1, 1, tzinfo=UTC)))
        agent = create_agent("asker", consumes=[Consume(Order)], produces=[ask])
        async with await SessionStore(folder / "s.git", durability="os").open("q", resources) as session:
            session.context.create(Order(item="tea"), id="order:1")
            await Runtime(session.context, [agent], session=session).arun()

    anyio.run(asked)
    arguments = ("--dispatcher", "mailer_of_test:well", "--once", "--log", "off")
    done = finished(folder, *arguments)
    told = "2 delivered, 0 failed, 0 parked, 1 branch with questions that expired; 0 waiting\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, told, "")
    again = json.loads(finished(folder, *arguments, "--json").stdout)
    assert (again["expired"], again["delivered"]) == (0, 0)
