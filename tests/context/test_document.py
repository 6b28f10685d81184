"""A context as one dictionary: everything comes back, as plain JSON types."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from support import (
    Echo,
    Note,
    Order,
    Outside,
    Question,
    action,
    answering_agents,
    commit,
    live,
    notifier,
)

from reactifact import Context, ProduceCall, Runtime
from reactifact.checkpoints import FileBackend, InMemoryKVBackend, SQLiteBackend
from reactifact.errors import FormatTooNew, NotAStore, StoreError

pytestmark = pytest.mark.anyio


def again(context: Context) -> Context:
    """Send a context through JSON text and back."""
    return Context.from_dict(json.loads(json.dumps(context.to_dict())))


async def worked() -> Context:
    """Return a context with commits, versions, relations, a delivery and changes that wait."""
    context = Context()
    context.create(Question(text="why?"), id="q")
    context.create(Order(item="tea"), id="order:1")
    await Runtime(context, [*answering_agents(), notifier()], dispatcher=Outside()).arun()
    context.update("q", Question(text="why not?"))
    context.link("q", "asks", "order:1")
    context.link("q", "misses", "nothing")
    return context


async def test_everything_comes_back() -> None:
    context = await worked()
    found = again(context)
    assert found.version == context.version > 0
    assert found.head_id == context.head_id
    assert found.history() == context.history()
    assert found.snapshot() == context.snapshot()
    assert [a.id for a in found.list_artifacts()] == [a.id for a in context.list_artifacts()]
    assert live(found, "q").version == 1
    assert live(found, "q").history == [Question(text="why?")]
    assert live(found, "q").created_at == live(context, "q").created_at
    assert found.relations() == context.relations()
    assert found.dangling_relations() == context.dangling_relations()
    assert found.pending_events() == context.pending_events() != []
    assert [a.id for a in found.stale_artifacts()] == [a.id for a in context.stale_artifacts()]
    assert action(found, "notify:order:1").status == "dispatched"
    assert found.line.seal() == context.line.seal()


async def test_events_that_wait_wake_the_agents_afterwards() -> None:
    found = again(await worked())
    outside = Outside()
    await Runtime(found, [*answering_agents(), notifier()], dispatcher=outside).arun()
    assert [e.data.text for e in found.list_artifacts(Echo)] == ["RE: WHY?", "RE: WHY NOT?"]
    assert outside.sent == []
    assert found.pending_events() == []


async def test_an_empty_context_comes_back_empty() -> None:
    found = again(Context())
    assert (found.version, found.head_id, found.snapshot()) == (0, None, {})


async def test_the_copy_is_independent() -> None:
    context = await worked()
    found = again(context)
    found.update("q", Question(text="changed"))
    assert live(context, "q").data.text == "why not?"


async def test_a_fork_keeps_its_base_and_its_name() -> None:
    def change(text: str) -> Any:
        def work(call: ProduceCall) -> None:
            call.effects.upsert(Note(text=text), id=text)

        return work

    context = Context()
    await commit(context, change("base"))
    fork = again(context.branch(name="try"))
    assert fork.line.branch == "try"
    assert fork.line.fork is not None
    await commit(fork, change("theirs"), kick="fork-kick")
    await commit(context, change("ours"))
    context.merge(again(fork))
    assert {"base", "ours", "theirs"} <= context.snapshot().keys()


async def test_the_dictionary_is_plain_and_can_be_read() -> None:
    document = (await worked()).to_dict()
    assert json.loads(json.dumps(document)) == document
    texts = document["objects"].values()
    assert any(text.startswith("blob ") and '"text": "why not?"' in text for text in texts)
    assert any(text.startswith("commit tree ") for text in texts)
    assert not any(":base64 " in text for text in texts)


@pytest.mark.parametrize("wrong", [{}, {"artifacts": {}}, {"format_version": 1}, {"format_version": "1"}])
def test_another_dictionary_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(NotAStore, match="reactifact import"):
        Context.from_dict(wrong)


async def test_a_dictionary_that_was_changed_is_refused() -> None:
    document = (await worked()).to_dict()
    newer = {**document, "format_version": 2}
    with pytest.raises(FormatTooNew, match="format 2"):
        Context.from_dict(newer)
    with pytest.raises(NotAStore, match="no branch 'other'"):
        Context.from_dict({**document, "branch": "other"})
    tampered = copy.deepcopy(document)
    oid = next(oid for oid, text in tampered["objects"].items() if "why not?" in text)
    tampered["objects"][oid] = tampered["objects"][oid].replace("why not?", "why, oh why?")
    with pytest.raises(StoreError, match=f"{oid}.*damaged"):
        Context.from_dict(tampered)
    del tampered["objects"][oid]
    with pytest.raises(StoreError, match=oid):
        live(Context.from_dict(tampered), "q").data  # noqa: B018 - reading it is the test


async def test_checkpoints(tmp_path: Path) -> None:
    context = await worked()
    database = SQLiteBackend(tmp_path / "saved.db")
    for place in (
        tmp_path / "new" / "saved.json",
        str(tmp_path / "text.json"),
        FileBackend(tmp_path / "f"),
        database,
    ):
        await context.save_checkpoint(place)
        found = await Context.load_checkpoint(place)
        assert found.snapshot() == context.snapshot()
        assert found.head_id == context.head_id
    await database.aclose()
    with pytest.raises(FileNotFoundError, match="nothing was saved"):
        await Context.load_checkpoint(tmp_path / "absent.json")
    with pytest.raises(TypeError, match="CheckpointBackend"):
        await context.save_checkpoint(7)  # type: ignore[arg-type]


async def test_a_context_under_a_key() -> None:
    backend = InMemoryKVBackend()
    context = await worked()
    await context.to_kv(backend, "mine")
    found = await Context.from_kv(backend, "mine")
    assert found is not None
    assert found.snapshot() == context.snapshot()
    assert await Context.from_kv(backend, "other") is None
