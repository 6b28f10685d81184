"""What reactifact 0.15.3 wrote (samples under `fixtures/published`) opens as sessions, or says how."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import pytest
from pydantic import BaseModel
from support import Outside, action, fsck, git, live

from reactifact import Consume, PendingAction, ProduceCall, Runtime, SessionStore, create_agent, produce
from reactifact._sessions.stores import open_database
from reactifact._store._history.revset import heads
from reactifact.branching import BranchStore
from reactifact.checkpoints import FileKVBackend, PostgreSQLKVBackend, SQLiteKVBackend
from reactifact.cli import main
from reactifact.errors import NameTaken, NotAStore
from reactifact.transfer import Moved, import_store

pytestmark = pytest.mark.anyio

SAMPLES = Path(__file__).parent.parent / "fixtures/published"
SESSIONS = ["a/b ü", "forked:1", "user-1"]


class Order(BaseModel):
    TYPE_ID: ClassVar[str] = "published.Order"
    item: str
    price: int = 0


class Receipt(BaseModel):
    TYPE_ID: ClassVar[str] = "published.Receipt"
    order: str


@produce(Receipt, also_creates=PendingAction)
async def notify(call: ProduceCall) -> None:
    assert call.trigger is not None
    call.effects.create(Receipt(order=call.trigger.id), id=f"receipt:{call.trigger.id}")
    call.effects.act("mail", key=f"notify:{call.trigger.id}", payload={"item": call.trigger.data.item})


Sample = Path | str


@pytest.fixture(params=["kv", "kv.db", "kv.sql"])
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> Sample:
    """A copy, a database by its DSN: reading must not change it."""
    source, copy = SAMPLES / request.param, tmp_path / request.param
    if request.param == "kv.sql":
        dsn: str = request.getfixturevalue("postgres_dsn")
        with psycopg.connect(dsn) as connection:
            connection.execute(source.read_bytes())
        return dsn
    if source.is_dir():
        shutil.copytree(source, copy)
    else:
        shutil.copy(source, copy)
    return copy


def document(sample: Sample, key: str) -> dict[str, Any]:
    """Return what the published package keeps under a key."""
    if isinstance(sample, str):
        with psycopg.connect(sample) as connection:
            found = connection.execute("SELECT data FROM kv_entries WHERE key = %s", (key,)).fetchall()
        return json.loads(found[0][0])
    if sample.is_dir():
        entries = [json.loads(file.read_text()) for file in sample.iterdir()]
        return next(entry["data"] for entry in entries if entry["key"] == key)
    with closing(sqlite3.connect(sample)) as database:
        row = database.execute("SELECT data FROM kv_entries WHERE key = ?", (key,)).fetchone()
    return json.loads(row[0])


async def brought(sample: Sample, target: Path) -> SessionStore:
    await import_store(sample, target)
    return SessionStore(target, durability="os")


@pytest.mark.parametrize("name", ["new.git", "new.db"])
async def test_all_that_was_kept_is_there(sample: Sample, tmp_path: Path, name: str) -> None:
    store = await brought(sample, tmp_path / name)
    assert await store.list_sessions() == SESSIONS
    for session_id in SESSIONS:
        was = document(sample, session_id)
        context = await store.load_session(session_id)
        assert context is not None
        assert (context.version, context.head_id) == (was["version"], was["head_id"])
        assert context.snapshot().keys() == was["artifacts"].keys()
        for artifact_id, kept in was["artifacts"].items():
            found = live(context, artifact_id)
            assert (
                found.data.model_dump(mode="json", exclude={"ordering_key", "not_before", "cancelled_at"})
                == kept["data"]
            )
            assert found.version == kept["version"]
            assert found.created_by_commit == kept["created_by_commit"]
            assert found.to_dict()["created_at"] == kept["created_at"]
            if not artifact_id.startswith("action:"):
                assert [old.model_dump(mode="json") for old in found.history] == kept["history"]
                assert found.to_dict()["updated_at"] == kept["updated_at"]
        assert [link.to_dict() for link in context.relations()] == was["relations"]
        assert [event.to_dict() for event in context.pending_events()] == was["events"]
    assert [order.id for order in context.list_artifacts(Order)] == ["o1", "o2", "o3"]
    await store.aclose()


async def test_the_ledger_knows_what_was_delivered_and_the_turn_goes_on(
    sample: Sample, tmp_path: Path
) -> None:
    store = await brought(sample, tmp_path / "new.git")
    session = await store.open("user-1")
    context = session.context
    assert action(context, "notify:o1").status == "dispatched"
    failed = action(context, "notify:o2")
    assert (failed.status, failed.attempts) == ("failed", 1)
    assert failed.error == "ConnectionError('no route')"
    assert [waiting.id for waiting in context.pending_actions()] == ["action:later"]
    outside = Outside()
    agents = [create_agent("notifier", consumes=[Consume(Order)], produces=[notify])]
    await Runtime(context, agents, session=session, dispatcher=outside).arun()
    assert outside.sent == ["later", "notify:o3"]  # what was delivered is not delivered again
    assert live(context, "receipt:o3").data == Receipt(order="o3")
    assert context.version == document(sample, "user-1")["version"] + 1
    context.retry_action("action:notify:o2")
    await Runtime(context, agents, session=session, dispatcher=outside).arun()
    assert outside.sent[2:] == ["notify:o2"]
    fsck(tmp_path / "new.git")


async def test_one_commit_says_where_it_is_from(sample: Sample, tmp_path: Path) -> None:
    target = tmp_path / "new.git"
    await brought(sample, target)
    subjects = git(target, "log", "--format=%s", "refs/heads/user-1/main").splitlines()
    where = f"{sample}".replace(":secret@", "@")
    assert subjects[1:] == ["Begin session user-1"]
    assert len(subjects[0]) <= 72
    assert f"imported from {where}" in git(
        target, "log", "-1", "--format=%B", "refs/heads/user-1/main"
    ).split("\n")
    fsck(target)
    for session_id in SESSIONS:
        assert main(["replay", str(target), "--session", session_id, "--verify-all"]) == 0
    context = await SessionStore(target).load_session("user-1")
    assert context is not None
    assert context.history() == []  # as after a compaction
    assert context.compacted_at == context.version
    record = context.commits.line.record
    assert record is not None
    known = [commit["id"] for commit in record.details["imported"]["commits"]]
    assert known == [commit["id"] for commit in document(sample, "user-1")["commits"]]


async def test_a_branch_still_merges_three_way(sample: Sample, tmp_path: Path) -> None:
    store = await brought(sample, tmp_path / "new.git")
    assert [head.branch for head in heads(store.database) if head.session == "forked:1"] == [
        "%outbox",
        "main",
        "plan b",
    ]
    session = await store.open("forked:1")
    branches = BranchStore(tmp_path / "new.git")
    branch = await branches.load_branch("forked:1", "plan b")
    assert branch is not None
    assert live(branch, "o1").data == Order(item="tea", price=9)
    session.context.update("n0", Order(item="n0", price=5))  # the other side changed too
    session.context.merge(branch)
    assert live(session.context, "o1").data == Order(item="tea", price=9)
    assert live(session.context, "n0").data == Order(item="n0", price=5)
    assert live(session.context, "b1").data == Order(item="jar")
    assert not session.context.pending_actions()  # both sides had sent all of theirs


async def test_importing_again_changes_nothing(sample: Sample, tmp_path: Path) -> None:
    target = tmp_path / "new.git"
    first = await import_store(sample, target)
    assert (first.refs, first.values) == (7, 1)
    assert await import_store(sample, target) == Moved(0, 0, 0)
    backend = FileKVBackend(target)
    assert await backend.get("note") == {"text": "a value of the application's own"}
    store = SessionStore(target)
    session = await store.open("user-1")
    session.context.create(Order(item="new"), id="o4")
    await session.save()
    with pytest.raises(NameTaken, match="refs/heads/user-1/main"):
        await import_store(sample, target)


@pytest.mark.parametrize("name", ["checkpoint.json", "checkpoint.db"])
async def test_a_checkpoint(tmp_path: Path, name: str) -> None:
    copy = shutil.copy(SAMPLES / name, tmp_path)  # SQLite makes files beside one it reads
    for session, expected in ((None, "checkpoint"), ("mine", "mine")):
        target = tmp_path / f"{expected}.git"
        await import_store(copy, target, session=session)
        context = await SessionStore(target).load_session(expected)
        assert context is not None
        order = live(context, "o1")
        assert (order.data, order.version, order.history) == (
            Order(item="tea", price=3),
            1,
            [Order(item="tea")],
        )


async def test_opening_it_directly_names_the_verb(sample: Sample) -> None:
    kind: Any = PostgreSQLKVBackend
    if not isinstance(sample, str):
        kind = FileKVBackend if sample.is_dir() else SQLiteKVBackend
    for opened in (
        lambda: SessionStore(sample),
        lambda: BranchStore(sample),
        lambda: SessionStore(kind(sample)),
        lambda: open_database(sample, read_only=True),
    ):
        with pytest.raises(NotAStore, match="reactifact import "):
            opened()
    with pytest.raises(NotAStore, match="reactifact import"):
        SessionStore(SAMPLES / "checkpoint.json")


def test_the_verb(sample: Sample, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "new.git"
    assert main(["sessions", str(sample)]) == 2
    assert "reactifact import" in (said := capsys.readouterr().err)
    assert "secret" not in said
    assert main(["import", str(sample), str(target)]) == 0
    assert "7 refs, 1 value, " in capsys.readouterr().out
    assert main(["sessions", str(target)]) == 0
    assert capsys.readouterr().out.count("1        1       main") == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda doc: doc["artifacts"]["o1"].pop("data"), "KeyError"),
        (lambda doc: doc["artifacts"]["o1"].update(id="other"), "calls itself 'other'"),
        (lambda doc: doc["artifacts"]["action:later"]["data"].pop("kind"), "kind"),
        (lambda doc: doc["events"][0].update(type="exploded"), "exploded"),
        (lambda doc: doc.update(relations=[{"source_id": "o1"}]), "relation"),
        (lambda doc: doc["artifacts"]["o1"].update(created_at="yesterday"), "yesterday"),
    ],
)
async def test_damage_is_named_and_nothing_is_written(tmp_path: Path, change: Any, message: str) -> None:
    copy = tmp_path / "kv"
    shutil.copytree(SAMPLES / "kv", copy)
    file = copy / "user-1.json"
    entry = json.loads(file.read_text())
    change(entry["data"])
    file.write_text(json.dumps(entry))
    with pytest.raises(NotAStore, match=message) as caught:
        await import_store(copy, tmp_path / "new.git")
    assert "'user-1'" in str(caught.value)
    file.write_text(file.read_text()[:-5])
    with pytest.raises(NotAStore, match=r"user-1.json is no JSON"):
        await import_store(copy, tmp_path / "new.git")
    assert not (tmp_path / "new.git").exists()


async def test_versions_that_were_trimmed_keep_their_numbers(tmp_path: Path) -> None:
    copy = tmp_path / "kv"
    shutil.copytree(SAMPLES / "kv", copy)
    file = copy / "user-1.json"
    entry = json.loads(file.read_text())
    entry["data"]["artifacts"]["o1"]["version"] = 7
    file.write_text(json.dumps(entry))
    await import_store(copy, tmp_path / "new.git")
    context = await SessionStore(tmp_path / "new.git").load_session("user-1")
    assert context is not None
    order = live(context, "o1")
    assert (order.version, order.history) == (7, [Order(item="tea")])
    assert context.artifact_version("o1", 6) is not None


async def test_a_branch_whose_session_is_gone_or_was_reset(tmp_path: Path) -> None:
    copy = tmp_path / "kv"
    shutil.copytree(SAMPLES / "kv", copy)
    file = copy / "forked%3A1.json"
    entry = json.loads(file.read_text())
    entry["data"] |= {"version": 0, "head_id": None, "artifacts": {}, "commits": []}
    file.write_text(json.dumps(entry))
    await import_store(copy, tmp_path / "reset.git")
    context = await SessionStore(tmp_path / "reset.git").load_session("forked:1")
    assert context is not None
    assert (context.version, context.head_id, context.snapshot()) == (0, None, {})
    file.unlink()
    await import_store(copy, tmp_path / "gone.git")
    for name, sessions in (("reset.git", SESSIONS), ("gone.git", ["a/b ü", "user-1"])):
        assert await SessionStore(tmp_path / name).list_sessions() == sessions
        session_id = "forked:1" if name == "reset.git" else "forked"
        branch = await BranchStore(tmp_path / name).load_branch(
            session_id, "plan b" if name == "reset.git" else "1:plan b"
        )
        assert branch is not None
        assert live(branch, "o1").data == Order(item="tea", price=9)
        assert action(branch, "notify:b1").status == "dispatched"
        fsck(tmp_path / name)


class TestOneDatabaseForBoth:
    @pytest.fixture
    def dsn(self, postgres_dsn: str) -> str:
        with psycopg.connect(postgres_dsn) as connection:
            connection.execute((SAMPLES / "kv.sql").read_bytes())
        return postgres_dsn

    async def test_it_is_brought_over_within_its_database(self, dsn: str) -> None:
        assert (await import_store(dsn, dsn)).refs == 7
        assert await import_store(dsn, dsn) == Moved(0, 0, 0)
        store = SessionStore(dsn)
        assert await store.list_sessions() == SESSIONS
        await store.aclose()
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT count(*) FROM public.kv_entries").fetchone() == (5,)

    async def test_an_import_that_was_interrupted_is_taken_up_again(self, dsn: str) -> None:
        PostgreSQLKVBackend(dsn, beside_published=True).close()  # tables, and nothing in them
        assert (await import_store(dsn, dsn)).refs == 7

    async def test_it_is_found_where_the_search_path_of_the_user_leads(self, postgres_dsn: str) -> None:
        dsn = f"{postgres_dsn}?options=-csearch_path%3Dreactifact"
        with psycopg.connect(postgres_dsn) as connection:
            connection.execute(b"CREATE SCHEMA reactifact")
            connection.execute((SAMPLES / "kv.sql").read_bytes().replace(b"public.", b"reactifact."))
        with pytest.raises(NotAStore, match="reactifact import"):
            SessionStore(dsn)
        assert (await import_store(dsn, dsn)).refs == 7
        store = SessionStore(dsn)
        assert await store.list_sessions() == SESSIONS
        await store.aclose()

    async def test_an_empty_table_holds_no_sessions(self, dsn: str) -> None:
        with psycopg.connect(dsn) as connection:
            connection.execute(b"DELETE FROM kv_entries")
        store = SessionStore(dsn)
        assert await store.list_sessions() == []
        await store.aclose()

    async def test_damage_is_named_and_nothing_is_written(self, dsn: str) -> None:
        with psycopg.connect(dsn) as connection:
            connection.execute(b"UPDATE kv_entries SET data = left(data, 100) WHERE key = 'user-1'")
        with pytest.raises(NotAStore, match=r"row 'user-1' is no JSON"):
            await import_store(dsn, dsn)
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT to_regclass('reactifact.objects')").fetchone() == (None,)
