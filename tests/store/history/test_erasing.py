"""A history made anew: which commits change, what a record still says, which words are looked at."""

from __future__ import annotations

import anyio
from support import Note, Outside, commit

from reactifact import ProduceCall, Runtime, SessionStore
from reactifact._store._history.erasing import Cleared, Rewriter, Spec, token_of
from reactifact._store.commits import own_record
from reactifact._store.object_db import Database, Staging
from reactifact._store.objects import Oid
from reactifact.checkpoints import InMemoryKVBackend


def test_a_free_text_loses_names_and_values_as_whole_words() -> None:
    spec = Spec({"action:mail:7": "erased-1", "a/b": "erased-2"}, values=("Zoe", "Alice"))
    assert spec.without("sent mail:7, not mail:77 nor email:7") == "sent erased-1, not mail:77 nor email:7"
    assert spec.without("a%2Fb of Alice, or Zoe") == "erased-2 of [erased], or Zoe"
    assert spec.without_ids("a/b of Alice") == "erased-2 of Alice"
    assert Spec({}).without("a/b") == "a/b"


def test_a_spec_comes_back_from_its_dictionary() -> None:
    spec = Spec({"a": "erased-1"}, {"b": {"0" * 40: Cleared("{}\n", "r")}}, ("x",), ("k",))
    assert Spec.from_dict(spec.to_dict()) == spec
    assert Spec.from_dict(spec.to_dict()).name == spec.name
    more = spec.with_more(
        Spec({"a": "erased-9", "c": "erased-3"}, {"b": {"1" * 40: Cleared("{}\n", "r")}}, ("y",))
    )
    assert more.tokens == {"a": "erased-1", "c": "erased-3"}
    assert (len(more.cleared["b"]), more.values, more.calls) == (2, ("x", "y"), ("k",))
    assert Spec({"a": "erased-2"}).name != Spec({"a": "erased-1"}).name


def test_a_token_says_whether_all_of_it_went() -> None:
    assert token_of("x", is_whole=True).replace("erased-", "cleared-") == token_of("x", is_whole=False)


async def _filled(store: SessionStore) -> None:
    session = await store.open("s")
    context = session.context
    context.create(Note(text="first"), id="note:1")
    await session.save()

    def plan(call: ProduceCall) -> None:
        call.effects.act("mail", key="main", payload={})
        call.effects.create(Note(text="kept"), id="note:2")

    await commit(context, plan)
    await Runtime(context, [], session=session, dispatcher=Outside()).arun()
    await session.save()
    async with store.edit("s") as edited:
        edited.update("note:1", Note(text="second"))


def _rewritten(database: Database, spec: Spec, ref: str) -> tuple[Rewriter, list[Oid]]:
    tip = database.backend.refs(ref)[ref]
    commits = [tip]
    while parents := database.commit(commits[-1]).parents:
        commits.append(parents[0])
    rewriter = Rewriter(Staging(database), spec)
    for oid in reversed(commits):
        rewriter.add(oid)
    return rewriter, commits


def test_commits_from_before_it_keep_their_ids_and_words_of_records_stay() -> None:
    store = SessionStore(InMemoryKVBackend())
    anyio.run(_filled, store)
    database = store.database
    rewriter, commits = _rewritten(database, Spec({"action:main": "erased-1"}), "refs/heads/s/main")
    changed = [oid for oid in commits if oid in rewriter.changed]
    assert 0 < len(changed) < len(commits)
    assert commits[-1] not in rewriter.changed
    assert rewriter.first == {changed[-1]}
    for old in changed:
        before, after = own_record(database, old), own_record(rewriter._staged, rewriter.commits[old])
        assert before is not None
        assert after is not None
        assert (after.change, after.version, after.branch) == (before.change, before.version, "main")
        assert after.details.get("delivered", ["erased-1"]) == ["erased-1"]


def test_what_nothing_names_changes_nothing() -> None:
    store = SessionStore(InMemoryKVBackend())
    anyio.run(_filled, store)
    rewriter, _ = _rewritten(store.database, Spec({"note:9": "erased-9"}), "refs/heads/s/main")
    assert rewriter.changed == {}
    assert rewriter.first == set()
