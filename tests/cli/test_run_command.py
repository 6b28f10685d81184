"""`reactifact run`: agents of a module on a session, or a runtime that a function of it makes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from support import git

from reactifact import SessionStore

MODULE = """
from typing import ClassVar
from pydantic import BaseModel
from reactifact import PendingAction, ProduceCall, Runtime, step


class Cup(BaseModel):
    TYPE_ID: ClassVar[str] = f"{__name__}/cup"
    size: int


@step(consumes=Cup, produces=[Cup, PendingAction])
async def grow(call: ProduceCall[Cup]) -> None:
    size = call.trigger.data.size + 1
    if size < 5:
        call.effects.upsert(Cup(size=size), id="cup")
    else:
        call.effects.act("mail", key="mail:cup", payload={"size": size})


@step(consumes=Cup, produces=Cup)
async def spill(call: ProduceCall[Cup]) -> None:
    raise OverflowError("the cup is full")


agents = [grow]
sent = []


async def deliver(context, action) -> None:
    sent.append(action.data.idempotency_key)


def make(session):
    session.context.create(Cup(size=3), id="cup")
    return Runtime(session.context, agents=[grow], session=session, dispatcher=deliver)


async def make_later(session):
    return make(session)


def wrong(session):
    return 5
"""


@pytest.fixture
def place(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """An empty store, and a module beside it under a name of its own."""
    monkeypatch.chdir(tmp_path)
    module = f"cups_{abs(hash(request.node.name))}"
    (tmp_path / f"{module}.py").write_text(MODULE, encoding="utf-8")
    assert run("init", tmp_path / "state.git").code == 0
    return tmp_path / "state.git"


@pytest.fixture
def module(place: Path) -> str:
    return next(place.parent.glob("cups_*.py")).stem


async def put(place: Path, module: str, size: int) -> None:
    cups = __import__(module)
    store = SessionStore(place)
    session = await store.open("s")
    session.context.create(cups.Cup(size=size), id="cup")
    await session.save()
    await store.aclose()


def begin(run: Any, place: Path, module: str, size: int = 3) -> None:
    assert run("graph", module).code == 0  # it is imported as the verb imports it
    anyio.run(put, place, module, size)


def test_the_agents_of_a_module_run_until_nothing_is_left(run: Any, place: Path, module: str) -> None:
    begin(run, place, module)
    done = run("run", place, f"{module}:agents", "s")
    assert done.code == 0
    assert "1 pending action(s), but the Runtime has no dispatcher" in done.err
    assert done.out == "s: 2 executions, completed, stands at v2, 1 action waiting\n"
    assert git(place, "log", "--format=%an", "s/main").splitlines()[0] == "grow"
    assert (
        run("run", place, module, "s").out == "s: 0 executions, completed, stands at v2, 1 action waiting\n"
    )


def test_a_dispatcher_delivers_and_a_budget_ends_the_turn(run: Any, place: Path, module: str) -> None:
    begin(run, place, module, 1)
    found = run(
        "run", place, f"{module}:agents", "s", "--max-runs", 2, "--dispatcher", f"{module}:deliver", "--json"
    )
    assert (found.json["runs"], found.json["pending"], found.json["version"]) == (2, 0, 2)
    assert found.json["outcome"] == "budget_runs_exceeded"
    found = run("run", place, f"{module}:agents", "s", "--dispatcher", f"{module}:deliver", "--json")
    assert (found.json["runs"], found.json["pending"], found.json["outcome"]) == (2, 0, "completed")
    assert __import__(module).sent == ["mail:cup"]


@pytest.mark.parametrize("maker", ["make", "make_later"])
def test_a_function_makes_the_runtime(run: Any, place: Path, module: str, maker: str) -> None:
    found = run("run", place, f"{module}:{maker}", "fresh", "--json")
    assert (found.code, found.err) == (0, "")
    assert (found.json["session"], found.json["runs"], found.json["pending"]) == ("fresh", 2, 0)
    assert __import__(module).sent == ["mail:cup"]


def test_what_cannot_be_run_is_named(run: Any, place: Path, module: str, tmp_path: Path) -> None:
    found = run("run", place, f"{module}:wrong", "s")
    assert found.code == 2
    assert f"{module}:wrong returned int: return a Runtime" in found.err
    with pytest.raises(SystemExit, match="'no_such_module' cannot be imported"):
        run("run", place, "no_such_module", "s")
    found = run("run", tmp_path / "elsewhere.git", module, "s")
    assert found.code == 2
    assert not (tmp_path / "elsewhere.git").exists()


def test_an_error_of_an_agent_leaves_as_it_was_raised(run: Any, place: Path, module: str) -> None:
    begin(run, place, module)
    with pytest.raises(OverflowError, match="the cup is full"):
        run("run", place, f"{module}:spill", "s")
    with pytest.raises(OverflowError):  # the event waits for it still
        run("run", place, f"{module}:spill", "s")
    assert run("sessions", place, "--json").json["sessions"][0]["version"] == 0


def test_what_a_person_pushed_is_read_with_the_models_of_the_module(
    run: Any, place: Path, module: str, tmp_path: Path
) -> None:
    begin(run, place, module, 1)
    git(tmp_path, "clone", "-q", "--branch", "s/main", str(place), "work")
    (path,) = (tmp_path / "work" / "artifacts").rglob("cup.json")
    path.write_text('{"size": 4}', encoding="utf-8")
    git(tmp_path / "work", "commit", "-qam", "A larger cup")
    git(tmp_path / "work", "push", "-q")
    # a process of its own, in which nobody has imported the module before
    done = subprocess.run(
        [sys.executable, "-m", "reactifact", "run", str(place), f"{module}:agents", "s", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["pending"] == 1  # it grew to 5, and a mail is planned
