"""Stores of other versions: each release's own opens and goes on, older formats go through their steps.

The fixtures are what `tests/fixtures/make_store.py` wrote, run by the release they are named after.
Version 0 is made up here: a store of today whose bookkeeping is turned back into another shape.
"""

from __future__ import annotations

import gzip
import json
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel
from stores import OwnBackend
from support import Outside, action, fsck, git, live

from reactifact import (
    Consume,
    Context,
    PendingAction,
    ProduceCall,
    Runtime,
    SessionStore,
    create_agent,
    produce,
)
from reactifact._store import canonical, migrations
from reactifact._store.commits import read_roots
from reactifact._store.layout import BOOKKEEPING, FORMAT_VERSION
from reactifact._store.migrations import format_file
from reactifact._store.object_db import Database, Staging, blob_entry
from reactifact._store.objects import Oid, TreeEntry
from reactifact._store.protocol import RefUpdate
from reactifact._store.trees import lookup, subtree, update, walk
from reactifact.branching import BranchStore
from reactifact.checkpoints import FileKVBackend, SQLiteKVBackend
from reactifact.cli import main
from reactifact.errors import FormatTooNew, StoreError
from reactifact.transfer import import_store

pytestmark = pytest.mark.anyio

STORES = Path(__file__).parent.parent / "fixtures/stores"
RELEASES = sorted(path.name for path in STORES.iterdir())
SECOND = "compacted: a/b ü"


class Order(BaseModel):
    TYPE_ID: ClassVar[str] = "stores.Order"
    item: str
    price: int = 0


class Receipt(BaseModel):
    TYPE_ID: ClassVar[str] = "stores.Receipt"
    order: str


@produce(Receipt, also_creates=PendingAction)
async def notify(call: ProduceCall) -> None:
    assert call.trigger is not None
    call.effects.create(Receipt(order=call.trigger.id), id=f"receipt:{call.trigger.id}")
    call.effects.act("mail", key=f"notify:{call.trigger.id}", payload={"item": call.trigger.data.item})


AGENTS = [create_agent("notifier", consumes=[Consume(Order)], produces=[notify])]


async def folder_of(release: str, target: Path) -> Path:
    with tarfile.open(STORES / release / "store.git.tar.gz") as archive:
        archive.extractall(target, filter="data")
    return target / "store.git"


async def bundle_of(release: str, target: Path) -> Path:
    await import_store(STORES / release / "store.bundle", target / "imported.git")
    return target / "imported.git"


async def database_of(release: str, target: Path) -> Path:
    (target / "store.db").write_bytes(gzip.decompress((STORES / release / "store.db.gz").read_bytes()))
    return target / "store.db"


Opened = Callable[[str, Path], Any]


# --- what each release wrote -------------------------------------------------------------------------


def test_there_is_a_store_of_every_release() -> None:
    """The newest section of the changelog that has a number has its store."""
    changelog = (STORES.parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
    released = [line[4:].partition("]")[0] for line in changelog.splitlines() if line.startswith("## [")]
    assert set(released) - {"Unreleased"} <= set(RELEASES)
    assert RELEASES
    for file in STORES.rglob("*"):
        assert file.is_dir() or file.stat().st_size < 100_000, file


async def holds_what_was_written(context: Context) -> None:
    assert context.version == 4
    assert live(context, "o1").data == Order(item="tea", price=3)
    assert live(context, "o1").history == [Order(item="tea")]
    assert [order.id for order in context.list_artifacts(Order)] == ["o1", "o2", "m1", "o3"]
    assert [link.to_dict() for link in context.relations()] == [
        {"source_id": "o2", "relation": "goes_with", "target_id": "o1"}
    ]
    assert [commit.context_version for commit in context.history()] == [1, 2, 3, 4]
    assert context.diff(1, 4)["added"].keys() >= {"receipt:o2", "receipt:m1"}
    assert action(context, "notify:o1").status == "dispatched"
    failed = action(context, "notify:o2")
    assert (failed.status, failed.attempts, failed.error) == ("failed", 1, "no route")
    assert [event.artifact_id for event in context.pending_events()] == ["o3"]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("opened", [folder_of, bundle_of, database_of])
async def test_a_store_of_a_release_opens_and_goes_on(release: str, opened: Opened, tmp_path: Path) -> None:
    path = await opened(release, tmp_path)
    store = SessionStore(path, durability="os")
    assert await store.list_sessions() == [SECOND, "user-1"]
    session = await store.open("user-1")
    await holds_what_was_written(session.context)
    branch = await BranchStore(path, durability="os").load_branch("user-1", "plan b")
    assert branch is not None
    assert live(branch, "b1").data == Order(item="jar")
    outside = Outside()
    await Runtime(session.context, AGENTS, session=session, dispatcher=outside).arun()
    assert outside.sent == ["notify:o3"]
    session.context.merge(branch)
    await session.save()
    assert live(session.context, "o1").data == Order(item="tea", price=9)
    second = await store.load_session(SECOND)
    assert second is not None
    assert second.compacted_at == 2
    assert [order.id for order in second.list_artifacts(Order)] == ["n0", "n1", "n2"]
    values = FileKVBackend(path) if path.suffix == ".git" else SQLiteKVBackend(path)
    assert await values.get("note") == {"text": "a value of the application's own"}
    await values.aclose()
    await store.aclose()
    for name in ("user-1", SECOND):
        assert main(["replay", str(path), "--session", name, "--verify-all"]) == 0
    if path.suffix == ".git":
        fsck(path)


@pytest.mark.parametrize("release", RELEASES)
async def test_a_document_of_a_release_opens_and_goes_on(release: str, tmp_path: Path) -> None:
    document = json.loads((STORES / release / "context.json").read_text(encoding="utf-8"))
    context = Context.from_dict(document)
    await holds_what_was_written(context)
    outside = Outside()
    await Runtime(context, AGENTS, dispatcher=outside).arun()
    assert outside.sent == ["notify:o3"]
    store = SessionStore(tmp_path / "new.git", durability="os")
    await store.save_session("again", context)
    assert main(["replay", str(tmp_path / "new.git"), "--session", "again", "--verify-all"]) == 0


# --- a format that never was -------------------------------------------------------------------------


META_NAMES = {"type_id": "kind_of", "created_at": "made"}
RECORD_NAMES = {"change": "name", "operations": "did"}


def turned(names: dict[str, str]) -> dict[str, str]:
    return {new: old for old, new in names.items()}


def renamed(record: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in record.items()}


class Renaming:
    """Gives the keys of artifacts' bookkeeping other names, chains of versions included."""

    def __init__(self, staging: Staging, *, back: bool) -> None:
        self.staging = staging
        self.metas: dict[Oid, Oid] = {}
        self.names = turned(META_NAMES) if back else META_NAMES

    def meta(self, oid: Oid) -> Oid:
        if oid not in self.metas:
            record: Any = canonical.decode(self.staging.read(oid).data)
            record = renamed(record, self.names)
            if "previous" in record:
                record["previous"] = self.meta(record["previous"])
            self.metas[oid] = self.staging.put("blob", canonical.encode(record))
        return self.metas[oid]

    def tree(self, tree: Oid) -> Oid:
        edits: dict[tuple[str, ...], TreeEntry | None] = {}
        for folder in ("meta", "versions"):
            root = subtree(self.staging, tree, (BOOKKEEPING, folder))
            for path, oid in walk(self.staging, root):
                if path[-1] != "trimmed.json":
                    edits[BOOKKEEPING, folder, *path] = blob_entry(self.meta(oid))
        made = update(self.staging, tree, edits)
        assert made is not None
        return made


def age(path: Path) -> None:
    """Turn a store of today into one of the made-up version 0: every commit of every branch."""
    database = Database(FileKVBackend(path, durability="os"))
    staging = Staging(database)
    renaming = Renaming(staging, back=False)
    made: dict[Oid, Oid] = {}

    def aged(oid: Oid) -> Oid:
        if oid not in made:
            commit = staging.commit(oid)
            parents = tuple(aged(parent) for parent in commit.parents)
            entry = lookup(staging, commit.tree, (BOOKKEEPING, "commit.json"))
            assert entry is not None
            record = renamed(json.loads(staging.read(entry.oid).data), RECORD_NAMES)
            edits = {
                (BOOKKEEPING, "format.json"): blob_entry(staging.put("blob", format_file(0))),
                (BOOKKEEPING, "commit.json"): blob_entry(staging.put("blob", canonical.encode(record))),
            }
            tree = update(staging, renaming.tree(commit.tree), edits)
            assert tree is not None
            made[oid] = staging.put_commit(replace(commit, tree=tree, parents=parents))
        return made[oid]

    refs = database.backend.refs("refs/heads/")
    moves = [RefUpdate(name, oid, aged(oid)) for name, oid in refs.items() if not name.endswith("%outbox")]
    database.write(staging.objects, moves)
    database.backend.close()


def format_of(path: Path, commit: str) -> int:
    return int(json.loads(git(path, "show", f"{commit}:{BOOKKEEPING}/format.json"))["format_version"])


def objects_in_packs(path: Path) -> int:
    fields = dict(line.split(": ") for line in git(path, "count-objects", "-v").splitlines())
    return int(fields["in-pack"])


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Register the step from version 0 to 1; note which trees it has brought up."""
    run: list[str] = []

    def noted(staging: Staging, tree: Oid) -> Oid:
        run.append(tree)
        return Renaming(staging, back=True).tree(tree)

    record = partial(renamed, names=turned(RECORD_NAMES))
    monkeypatch.setitem(migrations.TREE_STEPS, 0, migrations.TreeStep(record, noted))
    return run


@pytest.fixture
async def aged(tmp_path: Path) -> Path:
    path = await folder_of("0.1.0", tmp_path)
    age(path)
    return path


async def test_an_older_store_opens_through_its_step(aged: Path, steps: list[str]) -> None:
    before = git(aged, "rev-parse", "refs/heads/user-1/main").strip()
    assert format_of(aged, before) == 0
    assert "kind_of" in git(aged, "grep", "--text", "kind_of", before)
    store = SessionStore(aged, durability="os")
    session = await store.open("user-1")
    await holds_what_was_written(session.context)
    assert await store.pending_sessions() == []
    assert len(steps) == len(set(steps)) > 0  # no tree twice
    outside = Outside()
    await Runtime(session.context, AGENTS, session=session, dispatcher=outside).arun()
    assert outside.sent == ["notify:o3"]
    assert git(aged, "rev-parse", "refs/heads/user-1/main~1").strip() == before  # history stays as it was
    assert format_of(aged, "refs/heads/user-1/main") == FORMAT_VERSION
    await store.aclose()
    fsck(aged)


async def test_what_goes_on_from_an_older_store_needs_no_step_and_is_whole(
    aged: Path, steps: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = SessionStore(aged, durability="os")
    session = await store.open("user-1")
    session.context.update("m1", Order(item="lid", price=1))
    await session.save()
    packed = objects_in_packs(aged)
    session.context.update("m1", Order(item="lid", price=2))
    await session.save()
    assert objects_in_packs(aged) - packed < 25  # what the step made is stored once, with the first commit
    await store.aclose()
    fsck(aged)
    git(tmp_path, "clone", "--quiet", "--mirror", f"file://{aged}", "clone.git")
    monkeypatch.delitem(migrations.TREE_STEPS, 0)
    context = await SessionStore(tmp_path / "clone.git").load_session("user-1")
    assert context is not None
    assert live(context, "m1").data == Order(item="lid", price=2)
    assert live(context, "m1").history == [Order(item="lid"), Order(item="lid", price=1)]


async def test_the_verbs_work_on_an_older_store(aged: Path, steps: list[str]) -> None:
    assert main(["replay", str(aged), "--session", "user-1", "--verify-all"]) == 0
    assert main(["log", str(aged), "--session", "user-1"]) == 0
    store = SessionStore(aged, durability="os")
    session = await store.open("user-1")
    branch = await BranchStore(aged, durability="os").load_branch("user-1", "plan b")
    assert branch is not None
    session.context.merge(branch)
    assert live(session.context, "b1").data == Order(item="jar")
    session.context.checkout(2)
    assert live(session.context, "o1").data == Order(item="tea", price=3)
    session.context.compact(keep_commits=1)
    await session.save()
    again = await SessionStore(aged).load_session("user-1")
    assert again is not None
    assert again.version == 2
    assert live(again, "o1").history == [Order(item="tea")]
    fsck(aged)
    assert main(["replay", str(aged), "--session", "user-1", "--verify-all"]) == 0


async def test_a_document_of_an_older_state_opens_too(aged: Path, steps: list[str]) -> None:
    context = await SessionStore(aged).load_session("user-1")
    assert context is not None
    document = context.to_dict()
    steps.clear()
    await holds_what_was_written(Context.from_dict(document))
    assert steps  # it holds the commits as they are


async def test_without_a_step_an_older_store_is_refused_by_name(aged: Path, tmp_path: Path) -> None:
    shutil.copytree(aged, tmp_path / "before")
    with pytest.raises(StoreError, match=r"format_version 0, and .* no step from 0 to 1.*nothing was"):
        await SessionStore(aged).open("user-1")
    assert git(aged, "for-each-ref") == git(tmp_path / "before", "for-each-ref")


@pytest.mark.parametrize(
    ("content", "error", "match"),
    [
        (b'{"format_version": 3}', FormatTooNew, "format_version 3.*newer"),
        (b'{"format_version": "1"}', FormatTooNew, "format_version '1'"),
        (b'{"format_version": true}', FormatTooNew, "format_version True"),
        (b'{"format_version": -3}', StoreError, "no step from -3 to -2"),
        (b"{}", StoreError, "names no format_version"),
        (b"[1]", StoreError, "names no format_version"),
        (b"\0", StoreError, "names no format_version"),
    ],
)
async def test_another_format_is_refused(
    content: bytes, error: type[Exception], match: str, tmp_path: Path
) -> None:
    path = await folder_of("0.1.0", tmp_path)
    database = Database(FileKVBackend(path, durability="os"))
    staging = Staging(database)
    ref = "refs/heads/user-1/main"
    tip = database.backend.refs(ref)[ref]
    commit = staging.commit(tip)
    edits = {(BOOKKEEPING, "format.json"): blob_entry(staging.put("blob", content))}
    tree = update(staging, commit.tree, edits)
    assert tree is not None
    database.write(staging.objects, [RefUpdate(ref, tip, staging.put_commit(replace(commit, tree=tree)))])
    with pytest.raises(error, match=match):
        await SessionStore(path).open("user-1")
    broken = database.backend.refs(ref)[ref]
    with pytest.raises(error, match=f"the state of commit {broken[:12]}"):
        read_roots(database, broken)  # whoever says nothing of where it stands names the commit
    other = await SessionStore(path).open(SECOND)
    assert other.loaded


# --- documents ---------------------------------------------------------------------------------------


async def test_an_older_document_goes_through_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context()
    context.create(Order(item="tea"), id="o1")
    document = context.to_dict()
    document["heads"] = document.pop("refs")
    document["format_version"] = 0
    with pytest.raises(StoreError, match="no step from 0 to 1"):
        Context.from_dict(document)
    monkeypatch.setitem(
        migrations.DOCUMENT_STEPS,
        0,
        lambda old: {**{key: old[key] for key in old if key != "heads"}, "refs": old["heads"]},
    )
    assert live(Context.from_dict(document), "o1").data == Order(item="tea")
    assert document["format_version"] == 0  # the caller's is left alone


async def test_an_older_document_of_a_users_own_backend_goes_through_its_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = OwnBackend()
    session = await SessionStore(own).open("s")
    session.context.create(Order(item="tea"), id="o1")
    await session.save()
    document = json.loads(own.texts["session-s"])
    document["heads"] = document.pop("refs")
    document["format_version"] = 0
    own.texts["session-s"] = json.dumps(document)
    monkeypatch.setitem(
        migrations.DOCUMENT_STEPS,
        0,
        lambda old: {**{key: old[key] for key in old if key != "heads"}, "refs": old["heads"]},
    )
    session = await SessionStore(own).open("s")
    assert live(session.context, "o1").data == Order(item="tea")
    session.context.create(Order(item="pot"), id="o2")
    await session.save()
    assert json.loads(own.texts["session-s"])["format_version"] == 1
