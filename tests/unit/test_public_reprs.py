"""`repr` of everything public says what it is."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel

import reactifact
from reactifact import (
    Consume,
    Context,
    FakeEmbedder,
    FakeLLM,
    PendingAction,
    Produce,
    ProduceCall,
    ResourceKey,
    Runtime,
    RuntimeResources,
    SessionStore,
    View,
    bind,
    create_agent,
)
from reactifact.branching import BranchStore
from reactifact.checkpoints import FileBackend, InMemoryKVBackend, SQLiteBackend, SQLiteKVBackend
from reactifact.effects import Effects
from reactifact.outbox import RetryingDispatcher
from reactifact.recipes import WindowPruner
from reactifact.replay import NotingLLM
from reactifact.streaming import EventHub
from reactifact.testing import JumpingClock, RecordingDispatcher


class Order(BaseModel):
    item: str = "tea"


def public_classes() -> Iterator[tuple[str, type]]:
    """Yield every class that a public module lists, but those that nobody has an instance of."""
    modules = [found.name for found in pkgutil.iter_modules(reactifact.__path__) if found.name[0] != "_"]
    for module in [reactifact, *(importlib.import_module(f"reactifact.{name}") for name in modules)]:
        own = [name for name, found in vars(module).items() if is_own(module, name, found)]
        for name in getattr(module, "__all__", own):
            found = getattr(module, name)
            is_protocol = getattr(found, "_is_protocol", False)
            if inspect.isclass(found) and not (inspect.isabstract(found) or is_protocol):
                yield f"{module.__name__}.{name}", found


def is_own(module: ModuleType, name: str, found: object) -> bool:
    """Whether a module that lists no names defines this one for others."""
    return name[0] != "_" and getattr(found, "__module__", "") == module.__name__


def test_no_public_class_has_the_repr_of_object() -> None:
    classes = dict(public_classes())
    assert len(classes) > 100
    assert [name for name, kind in classes.items() if kind.__repr__ is object.__repr__] == []


def instances(tmp_path: Path) -> list[tuple[Any, str]]:
    context = Context(RuntimeResources(llm=FakeLLM(), shop="tea"))
    artifact = context.create(Order(), id="order:1")
    agent = create_agent("notifier", consumes=[Consume(Order)], produces=[Produce(Order)])
    store = SessionStore(tmp_path / "state.git")
    dispatcher = RecordingDispatcher()
    return [
        (context, "context/main"),
        (context.resources, "llm, shop"),
        (artifact, "order:1"),
        (agent, "notifier"),
        (Consume(Order, wakes=False), "Consume(Order, wakes=False)"),
        (Produce(Order), "Order"),
        (WindowPruner(Order), "WindowPruner"),
        (ProduceCall(context, [], None, artifact), "order:1"),
        (Effects(context), "0 planned"),
        (Runtime(context, [agent]), "notifier"),
        (Runtime(context).astream(), "TurnStream"),
        (store, "state.git"),
        (BranchStore(store.database), "state.git"),
        (FileBackend(tmp_path / "one.json"), "one.json"),
        (SQLiteBackend(tmp_path / "one.db"), "one.db"),
        (SQLiteKVBackend(tmp_path / "two.db"), "two.db"),
        (InMemoryKVBackend(), "InMemoryKVBackend"),
        (ResourceKey[int]("limit"), "limit"),
        (FakeLLM(["a"]), "0 requests"),
        (FakeEmbedder(dim=3), "3"),
        (NotingLLM(FakeLLM()), "FakeLLM"),
        (RetryingDispatcher(dispatcher, attempts=4), "attempts=4"),
        (dispatcher, "0 sent"),
        (JumpingClock(), "2030-01-01"),
        (EventHub(), "0 subscribers"),
        (context.subscribe(), "0 of"),
        (View([artifact]), "1 artifacts"),
        (bind(run="1"), "run='1'"),
        (PendingAction(kind="mail", idempotency_key="k"), "mail"),
    ]


def test_a_repr_names_the_class_and_what_tells_it_from_others(tmp_path: Path) -> None:
    for thing, part in instances(tmp_path):
        text = repr(thing)
        assert text.startswith(type(thing).__name__), text
        assert part in text, text
        assert " at 0x" not in text, text


def test_resources_show_no_values() -> None:
    assert "secret" not in repr(RuntimeResources(api_key="secret"))


@pytest.mark.anyio
async def test_a_session_is_named(tmp_path: Path) -> None:
    session = await SessionStore(tmp_path / "state.git").open("user-1")
    assert repr(session) == "Session('user-1', loaded=False)"
    assert repr(session.context) == "Context('user-1/main', version=0)"
