"""Resources: by name, by type, by key, and for the length of a block."""

from __future__ import annotations

from typing import Any

import pytest

from reactifact import FakeEmbedder, FakeLLM, ResourceKey, ResourceScope, RuntimeResources

NAMED = {
    "llm": None,
    "embedder": None,
    "sources": None,
    "context_builder": None,
    "verification_threshold": None,
    "redactor": None,
    "trace_truncate": 1500,
    "id_factory": None,
    "pricer": None,
    "metrics": None,
    "principal": None,
    "authorizer": None,
    "guardrails": None,
    "quota": None,
}

REFUSED = [
    "sources",
    "context_builder",
    "verification_threshold",
    "trace_truncate",
]


GUARDS = ["redactor", "authorizer", "guardrails", "quota"]
"""These stand guard, and are checked: see `test_guards`."""


class Client:
    """A client that notes that it was closed."""

    def __init__(self, notes: list[str], name: str, error: Exception | None = None) -> None:
        self.notes = notes
        self.name = name
        self.error = error

    async def aclose(self) -> None:
        self.notes.append(self.name)
        if self.error is not None:
            raise self.error


class SyncClient(Client):
    def close(self) -> None:
        self.notes.append(self.name)

    aclose = None  # type: ignore[assignment]  # it can be closed, but not asynchronously


def test_the_named_resources_and_their_defaults() -> None:
    resources = RuntimeResources()
    assert {name: getattr(resources, name) for name in NAMED} == NAMED
    given: dict[str, Any] = {name: f"my {name}" for name in NAMED if name not in (*REFUSED, *GUARDS)}
    positional = RuntimeResources(*[given.get(name, default) for name, default in NAMED.items()])  # type: ignore[arg-type]
    assert {name: getattr(positional, name) for name in given} == given


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_ignored_is_refused_by_name(name: str) -> None:
    resources = RuntimeResources(**{name: NAMED[name]})  # its default says nothing, and is taken
    given: Any = {name: 7}
    with pytest.raises(ValueError, match=f"{name}= is not supported"):
        RuntimeResources(**given)
    with pytest.raises(ValueError, match=f"{name}= is not supported"):
        resources.set(name, 7)
    with pytest.raises(ValueError, match=f"{name}= is not supported"):
        setattr(resources, name, 7)
    assert resources.get(name) == NAMED[name]


def test_named_extras() -> None:
    resources = RuntimeResources(mailer="m1")
    assert (resources.get("mailer"), resources.additional) == ("m1", {"mailer": "m1"})
    resources.set("mailer", "m2")
    resources.set("printer", "p1")
    assert (resources.get("mailer"), resources.get("printer"), resources.get("none")) == ("m2", "p1", None)
    assert resources.require("printer") == "p1"
    assert resources.has("printer")
    assert not resources.has("none")


def test_set_and_get_reach_the_named_ones() -> None:
    resources = RuntimeResources()
    llm = FakeLLM()
    resources.set("llm", llm)
    assert resources.llm is resources.get("llm") is llm
    assert "llm" not in resources.additional


@pytest.mark.parametrize("name", ["budget", "budget_deadline", "budget_tracker", "_typed", "additional"])
def test_what_the_runtime_keeps_cannot_be_set(name: str) -> None:
    resources = RuntimeResources()
    given: Any = {name: 1}
    with pytest.raises(ValueError, match=f"{name} cannot be set"):
        resources.set(name, 1)
    with pytest.raises(ValueError, match=f"{name} cannot be passed"):
        RuntimeResources(**given)
    assert resources.get(name) is None


def test_by_type_and_by_key() -> None:
    resources = RuntimeResources()
    first, second = ResourceKey[Client]("mail"), ResourceKey[Client]("mail")
    notes: list[str] = []
    clients = [Client(notes, name) for name in "abc"]
    for key, client in zip((Client, first, second), clients, strict=True):
        assert resources.register(key, client) is client
    assert [resources.get(key) for key in (Client, first, second)] == clients
    assert resources.require(first) is clients[1]
    assert list(resources.registered) == [Client, first, second]
    assert first in resources.registered
    assert len(resources.registered) == 3
    assert resources.typed_values() == clients
    assert resources.has(second)
    assert not resources.has(ResourceKey[Client]("mail"))
    assert resources.get(SyncClient) is None


@pytest.mark.parametrize(
    ("key", "name"), [("mailer", "'mailer'"), (Client, "'Client'"), (ResourceKey[Any]("smtp"), "'smtp'")]
)
def test_what_is_required_and_missing_is_named(key: Any, name: str) -> None:
    with pytest.raises(LookupError, match=f"no resource {name} is registered"):
        RuntimeResources().require(key)


def test_a_name_is_not_registered_but_set() -> None:
    with pytest.raises(TypeError, match=r"use set\('mailer'"):
        RuntimeResources().register("mailer", object())


@pytest.mark.anyio
async def test_aclose_closes_what_can_be_closed() -> None:
    notes: list[str] = []
    await RuntimeResources(llm=Client(notes, "llm"), embedder=SyncClient(notes, "embedder")).aclose()
    assert notes == ["llm", "embedder"]
    await RuntimeResources(llm=FakeLLM(), embedder=FakeEmbedder()).aclose()
    await RuntimeResources().aclose()


@pytest.mark.anyio
async def test_one_object_in_both_places_is_closed_once() -> None:
    notes: list[str] = []
    both = Client(notes, "both")
    await RuntimeResources(llm=both, embedder=both).aclose()
    assert notes == ["both"]


@pytest.mark.anyio
async def test_the_embedder_is_closed_although_the_llm_fails() -> None:
    notes: list[str] = []
    failing = Client(notes, "llm", OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        await RuntimeResources(llm=failing, embedder=Client(notes, "embedder")).aclose()
    assert notes == ["llm", "embedder"]


@pytest.mark.anyio
async def test_a_scope_makes_resources_and_closes_them() -> None:
    notes: list[str] = []

    def make() -> RuntimeResources:
        return RuntimeResources(llm=Client(notes, "llm"))

    async def make_later() -> RuntimeResources:
        return make()

    for factory in (make, make_later):
        scope = RuntimeResources.scope(factory)
        assert isinstance(scope, ResourceScope)
        async with scope as resources:
            assert isinstance(resources, RuntimeResources)
            assert notes == []
        assert notes == ["llm"]
        notes.clear()
    with pytest.raises(KeyError):
        async with RuntimeResources.scope(make):
            raise KeyError("x")
    assert notes == ["llm"]
