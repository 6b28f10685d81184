"""Which sessions and refs an erasure reaches: forks, merges, recordings, branches of git."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from store_bytes import holding
from support import Note, fsck, git

from reactifact import SessionStore
from reactifact._sessions.erasing.found import Wish
from reactifact._sessions.erasing.plan import planned
from reactifact._store.object_db import Staging, blob_entry
from reactifact._store.objects import CommitObject, Signature
from reactifact._store.protocol import RefUpdate
from reactifact.branching import BranchStore
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.clock import SYSTEM_CLOCK
from reactifact.errors import StoreError
from reactifact.replay import verify_history

pytestmark = [pytest.mark.anyio]

SECRET = "Wilhelmina Zzyzx"
NAME = "customer:zzyzx"


async def edit(store: SessionStore, session: str, name: str, text: str, branch: str = "main") -> None:
    async with store.edit(session, branch) as context:
        if context.get(name) is None:
            context.create(Note(text=text), id=name)
        else:
            context.update(name, Note(text=text))


async def test_a_session_that_merged_it_loses_it_and_one_that_did_not_is_not_touched() -> None:
    backend = InMemoryKVBackend()
    store = SessionStore(backend)
    branches = BranchStore(store.database)
    await edit(store, "s", NAME, SECRET)
    await edit(store, "other", "note:1", "first")
    await edit(store, "apart", "note:1", "first")
    theirs = await branches.load_branch("s", "main")
    ours = await branches.load_branch("other", "main")
    assert theirs is not None
    assert ours is not None
    ours.merge(theirs)
    await branches.save_branch(ours, session_id="other", name="main")
    before = backend.refs("refs/heads/apart/")
    report = await store.erase("s", NAME, by="officer")
    assert report.sessions == ("other", "s")
    assert holding(backend, SECRET, "zzyzx") == []
    assert backend.refs("refs/heads/apart/") == before
    for session in ("s", "other"):
        found = verify_history(store.database, session)
        assert found.ok, found


async def test_a_fork_that_was_compacted_in_its_own_session_is_found() -> None:
    backend = InMemoryKVBackend()
    store = SessionStore(backend)
    branches = BranchStore(store.database)
    for number in range(5):
        await edit(store, "s", NAME, f"{SECRET} {number}")
    fork = await branches.load_branch("s", "main")
    assert fork is not None
    await branches.save_branch(fork, session_id="copy", name="main")
    copy = await branches.load_branch("copy", "main")
    assert copy is not None
    copy.compact(keep_commits=0)
    await branches.save_branch(copy, session_id="copy", name="main")
    report = await store.erase("s", NAME, by="officer")
    assert report.sessions == ("copy", "s")
    assert holding(backend, SECRET, "zzyzx") == []


async def test_recorded_model_calls_go_with_what_they_were_about(tmp_path: Path) -> None:
    where = tmp_path / "state.git"
    store = SessionStore(where)
    await edit(store, "s", NAME, SECRET)
    staged = Staging(store.database)
    calls = [
        {"key": "1", "request": {"messages": [f"who is {NAME}?"]}},
        {"key": "2", "request": {"messages": ["hi"]}},
    ]
    recording = "".join(f"{json.dumps(call)}\n" for call in calls)
    tree = staged.put_tree({"recording.jsonl": blob_entry(staged.put("blob", recording.encode()))})
    who = Signature("a", "a@example.invalid", 0)
    report = staged.put_commit(CommitObject(tree, (), who, who, "report\n"))
    store.database.write(staged.objects, [RefUpdate("refs/reactifact/report", None, report)])
    await store.erase("s", NAME, by="officer")
    assert holding(where, SECRET, "zzyzx") == []
    left = git(where, "show", "refs/reactifact/report:recording.jsonl")
    assert [json.loads(line)["key"] for line in left.splitlines()] == ["2"]


async def test_a_commit_made_with_git_is_adopted_and_loses_it(tmp_path: Path) -> None:
    where, tree = tmp_path / "state.git", tmp_path / "tree"
    store = SessionStore(where)
    await edit(store, "s", NAME, SECRET)
    await edit(store, "s", "note:1", "first")
    git(where, "worktree", "add", "-q", "--detach", str(tree), "s/main")
    (file,) = (tree / "artifacts").rglob("customer*.json")
    file.write_text(file.read_text().replace(SECRET, f"{SECRET} by hand"))
    git(
        tree,
        "-c",
        "user.name=Ann",
        "-c",
        "user.email=a@example.org",
        "commit",
        "-q",
        "-a",
        "-m",
        f"mend {SECRET}",
    )
    git(where, "update-ref", "refs/heads/s/main", git(tree, "rev-parse", "HEAD").strip())
    git(where, "worktree", "remove", str(tree))
    await store.erase("s", NAME, by="officer")
    assert holding(where, SECRET, "zzyzx") == []
    assert verify_history(SessionStore(where).database, "s").ok
    fsck(where)


async def test_a_writer_that_needs_no_lock_is_taken_along(tmp_path: Path) -> None:
    where = tmp_path / "state.git"
    store = SessionStore(where, durability="os")
    await edit(store, "s", NAME, SECRET)
    steps = iter([False, True])
    backend: Any = store.database.backend

    def meanwhile(step: str) -> None:
        if step == "ref-moved" and next(steps, False) is False and not written:
            written.append(step)
            anyio.run(edit, SessionStore(where, durability="os"), "s", NAME, f"{SECRET} late")

    written: list[str] = []
    backend.fault = meanwhile  # the first ref that moves is the marker's
    await store.erase("s", NAME, by="officer")
    assert written
    assert holding(where, SECRET, "zzyzx") == []
    assert verify_history(SessionStore(where).database, "s").ok
    fsck(where)


async def test_a_history_that_somebody_brings_back_is_a_fault_until_it_is_erased_again(
    tmp_path: Path,
) -> None:
    where, copy = tmp_path / "state.git", tmp_path / "copy.git"
    store = SessionStore(where)
    await edit(store, "s", NAME, SECRET)
    git(tmp_path, "clone", "-q", "--mirror", str(where), str(copy))
    await store.erase("s", NAME, by="officer")
    git(where, "fetch", "-q", str(copy), "+refs/heads/s/main:refs/heads/s/main")
    report = verify_history(SessionStore(where).database, "s")
    assert "still holds what was erased" in (report.fault or "")
    await SessionStore(where).erase("s", NAME, by="officer")
    assert verify_history(SessionStore(where).database, "s").ok
    assert holding(where, SECRET, "zzyzx") == []


async def test_a_store_that_cannot_remove_bytes_is_refused_before_anything_is_done() -> None:
    class Kept:
        """A backend of somebody's own, without `collect`."""

        location = "own"
        is_local = True

        def __init__(self) -> None:
            self.inner = InMemoryKVBackend()

        def __getattr__(self, name: str) -> Any:
            if name in ("collect", "require_collectable"):
                raise AttributeError(name)
            return getattr(self.inner, name)

        def read_many(self, oids: Any) -> Any:
            return self.inner.read_many(oids)

        def refs(self, prefix: str = "refs/") -> Any:
            return self.inner.refs(prefix)

        def write(self, objects: Any, updates: Any = ()) -> None:
            self.inner.write(objects, updates)

        def queue(self, name: str) -> Any:
            return self.inner.queue(name)

        def lock(self, name: str, *, wait: float = 0.0) -> Any:
            return self.inner.lock(name, wait=wait)

        def close(self) -> None:
            self.inner.close()

    store = SessionStore(Kept())
    await edit(store, "s", NAME, SECRET)
    refs = store.database.backend.refs()
    with pytest.raises(StoreError, match="no `collect`"):
        await store.erase("s", NAME, by="officer")
    assert store.database.backend.refs() == refs


async def test_a_plan_writes_nothing_and_names_its_locks() -> None:
    store = SessionStore(InMemoryKVBackend())
    await edit(store, "s", NAME, SECRET)
    await BranchStore(store.database).fork("s", "s/exp")
    refs = store.database.backend.refs()
    wish = Wish("s", (NAME,), False, "officer", "", SYSTEM_CLOCK.now())
    plan = await to_thread.run_sync(planned, store.database, wish)
    assert plan.locks() == ["run s/exp", "run s/main", "drain s"]
    assert {move.name for move in plan.moves} == {
        "refs/heads/s/exp",
        "refs/heads/s/main",
        "refs/reactifact/erased/s",
    }
    assert store.database.backend.refs() == refs
