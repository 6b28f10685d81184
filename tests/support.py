"""Models, agents and places that several test files share.

Models that are written to a durable store stand here, at the top level of a module: a local class
could not be found again by another process.
"""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel, Field

from reactifact import (
    Agent,
    Artifact,
    Consume,
    Context,
    Event,
    EventType,
    PendingAction,
    ProduceCall,
    Runtime,
    SessionStore,
    Trigger,
    create_agent,
    produce,
)
from reactifact.branching import BranchStore
from reactifact.checkpoints import InMemoryKVBackend


class Question(BaseModel):
    text: str


class Answer(BaseModel):
    text: str


class Echo(BaseModel):
    text: str


class Note(BaseModel):
    text: str = ""
    count: int = 0
    tags: list[str] = Field(default_factory=list)
    extra: dict[str, Any] = Field(default_factory=dict)


class SpecialNote(Note):
    rank: int = 0


class Order(BaseModel):
    item: str
    status: str = "open"
    price: int = 0
    carrier: str = ""


class Receipt(BaseModel):
    order: str


class Place:
    """Where a test keeps its sessions. Each call opens the place anew, as another process would."""

    def __init__(self, path: Path | str | None) -> None:
        self.path = path
        self._memory = InMemoryKVBackend()

    def store(self) -> SessionStore:
        if self.path is None:
            return SessionStore(self._memory)
        return SessionStore(self.path, durability="os")

    def branches(self) -> BranchStore:
        if self.path is None:
            return BranchStore(self._memory)
        return BranchStore(self.path, durability="os")

    async def load(self, session_id: str, branch: str | None = None) -> Context:
        """Read a session, or a branch of it, as another process would."""
        if branch is None:
            found = await self.store().load_session(session_id)
        else:
            found = await self.branches().load_branch(session_id, branch)
        assert found is not None
        return found


def git(path: Path, *arguments: str, text: str | None = None) -> str:
    """Run real git in a repository and return what it prints."""
    done = subprocess.run(
        ["git", "-C", str(path), *arguments],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def fsck(path: Path) -> None:
    """Let real git check every object; any complaint fails the test."""
    done = subprocess.run(
        ["git", "-C", str(path), "fsck", "--strict", "--full", "--no-dangling", "--no-progress"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def trigger_of(call: ProduceCall) -> Artifact[Any]:
    assert call.trigger is not None
    return call.trigger


def live(context: Context, artifact_id: str) -> Artifact[Any]:
    """Return an artifact that must be there."""
    found = context.get(artifact_id)
    assert found is not None
    return found


def action(context: Context, key: str) -> PendingAction:
    """Return the action planned under a key, which must be there."""
    data = live(context, f"action:{key}").data
    assert isinstance(data, PendingAction)
    return data


def answering_agents() -> list[Agent]:
    """Return two agents: question -> answer -> echo."""

    @produce(Answer)
    async def answer(call: ProduceCall) -> Answer:
        return Answer(text=f"re: {trigger_of(call).data.text}")

    @produce(Echo)
    async def echo(call: ProduceCall) -> Echo:
        return Echo(text=trigger_of(call).data.text.upper())

    return [
        create_agent("answerer", consumes=[Consume(Question)], produces=[answer]),
        create_agent("echoer", consumes=[Consume(Answer)], produces=[echo]),
    ]


def notifier(name: str = "notifier") -> Agent:
    """Return an agent that plans one action for each order: kind `mail`, key `notify:<order id>`."""

    @produce(Receipt, also_creates=PendingAction)
    async def notify(call: ProduceCall) -> None:
        order = trigger_of(call)
        call.effects.create(Receipt(order=order.id), id=f"receipt:{order.id}")
        call.effects.act("mail", key=f"notify:{order.id}", payload={"item": order.data.item})

    return create_agent(name, consumes=[Consume(Order)], produces=[notify])


class Outside:
    """The world: a dispatcher that notes what it was asked to send, and fails where it is told to."""

    def __init__(self, *failing: str) -> None:
        self.sent: list[str] = []
        self.tried: list[str] = []
        self.failing = set(failing)

    async def __call__(self, context: Context, artifact: Artifact[PendingAction]) -> None:
        key = artifact.data.idempotency_key
        self.tried.append(key)
        if key in self.failing:
            raise ConnectionError(f"no route for {key}")
        self.sent.append(key)


class Kick(BaseModel):
    """Wakes the agent of `commit`."""

    number: int = 0


async def commit(
    context: Context, work: Callable[[ProduceCall], Any], *, author: str = "worker", kick: str = "kick"
) -> None:
    """Make one commit of a context: what `work` plans, by an agent called `author`."""

    class Worker(Agent):
        triggers = (
            Trigger(EventType.ARTIFACT_CREATED, Kick),
            Trigger(EventType.ARTIFACT_UPDATED, Kick),
        )

        async def run(self, event: Event | None, context: Context) -> None:
            trigger = None if event is None else context.get(event.artifact_id)
            result = work(ProduceCall(context, [], event, trigger))
            if isinstance(result, Awaitable):
                await result

    known = context.get(kick)
    if known is None:
        context.create(Kick(), id=kick)
    else:
        context.update(kick, Kick(number=known.data.number + 1))
    await Runtime(context, [Worker(author)]).arun()


def load_script(name: str) -> ModuleType:
    """Import a Python program of `scripts/`, which is no package."""
    path = Path(__file__).parents[1] / "scripts" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_script", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
