"""Progress of long work: what the library tells, and what a terminal shows of it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import anyio
import pytest
from shop import make_shop
from support import Note

from reactifact import SessionStore
from reactifact._store._backends.git.pack_folder import object_count
from reactifact._store.protocol import Progress
from reactifact.checkpoints import GitBackend, SQLiteKVBackend
from reactifact.cli._shared import terminal
from reactifact.replay import bundle_session, verify_history
from reactifact.replay.fsck import check_store
from reactifact.transfer import export_store, import_store


class Told:
    """A progress that keeps what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int | None]] = []

    def __call__(self, done: int, total: int | None) -> None:
        self.calls.append((done, total))

    def last(self) -> tuple[int, int | None]:
        """Return the last call, when the numbers only grew and no total was passed."""
        assert [done for done, _ in self.calls] == sorted(done for done, _ in self.calls)
        assert all(total is None or done <= total for done, total in self.calls)
        return self.calls[-1]


def as_progress(told: Told) -> Progress:
    return told


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "state.git"
    make_shop(path)
    return path


def test_a_copy_tells_how_many_objects_of_how_many(shop: Path, tmp_path: Path) -> None:
    out, back, bundled = Told(), Told(), Told()
    moved = anyio.run(partial(export_store, shop, tmp_path / "copy.db", progress=as_progress(out)))
    assert out.last()[0] == moved.objects
    assert out.calls[0][1] == object_count(f"{shop}/objects")
    again = anyio.run(
        partial(import_store, tmp_path / "copy.db", tmp_path / "again.bundle", progress=as_progress(back))
    )
    assert back.last() == (again.objects, moved.objects)
    store = SessionStore(shop)
    made = bundle_session(store.database, "user-1", tmp_path / "one.bundle", progress=as_progress(bundled))
    assert bundled.last()[0] == made.objects - 3  # without the report, which is made for the bundle
    anyio.run(store.aclose)


def test_a_check_tells_how_many_commits(shop: Path) -> None:
    store = SessionStore(shop)
    one, every = Told(), Told()
    report = verify_history(store.database, "user-1", progress=as_progress(one))
    assert one.last() == (report.commits, report.commits)
    reports = check_store(store.database, progress=as_progress(every))
    assert len(reports) > 1
    assert every.last() == (sum(report.commits for report in reports), None)
    anyio.run(store.aclose)


def test_a_prune_and_a_compaction_tell_how_far_they_are(tmp_path: Path) -> None:
    pruned, folded = Told(), Told()

    async def work() -> None:
        store = SessionStore(tmp_path / "state.db")
        for count in range(5):
            async with store.edit("s") as context:
                context.create(Note(count=count), id=f"n:{count}")
        session = await store.open("s")
        session.context.compact(keep_commits=2, progress=as_progress(folded))
        await session.save()
        backend = store.database.backend
        assert isinstance(backend, SQLiteKVBackend)
        stored = backend.object_count()
        await store.prune(grace=0, progress=as_progress(pruned))
        assert pruned.last()[1] == stored + 1  # with the log of what can no longer be undone
        await store.aclose()

    anyio.run(work)
    kept = folded.last()[1]
    assert kept is not None
    assert [done for done, _ in folded.calls] == list(range(kept))


def test_objects_are_counted_as_git_counts_them(shop: Path) -> None:
    said = subprocess.run(
        ["git", "-C", str(shop), "count-objects", "-v"], capture_output=True, text=True, check=True
    ).stdout
    counts = dict(line.split(": ") for line in said.splitlines())
    backend = GitBackend(shop)
    assert backend.object_count() == int(counts["count"]) + int(counts["in-pack"])
    git = ["git", "-C", str(shop), "hash-object", "-w", "--stdin"]
    subprocess.run(git, input=b"loose", check=True, capture_output=True)
    assert backend.object_count() == int(counts["count"]) + int(counts["in-pack"]) + 1
    backend.close()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("export", "STORE", "TARGET.db"), "exporting: "),
        (("import", "STORE", "TARGET.git"), "importing: "),
        (("bundle", "STORE", "user-1", "-o", "TARGET.bundle"), "bundling: "),
        (("fsck", "STORE"), "checking: "),
        (("replay", "STORE", "user-1", "--verify-all"), "checking: "),
        (("verify", "STORE", "REPORT"), "checking: "),
        (("compact", "STORE", "user-1", "--keep", "1"), "compacting: "),
        (("prune", "STORE.db"), "pruning: "),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_a_verb_shows_it_on_a_terminal_alone(
    run, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    report = tmp_path / "report.json"
    report.write_text(json.dumps(run("audit", shop, "user-1", "receipt:o1", "--json").json), encoding="utf-8")
    anyio.run(export_store, shop, tmp_path / "state.db")
    places = {"STORE": shop, "STORE.db": tmp_path / "state.db", "REPORT": report}
    given = [places.get(one, str(tmp_path / one) if one.startswith("TARGET") else one) for one in arguments]
    monkeypatch.setattr(terminal, "_QUIET_SECONDS", -1.0)
    shown = Terminal()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", shown)
        assert run(*given).code == 0
    assert said in shown.getvalue()
    assert " a second" in shown.getvalue()
    assert shown.getvalue().endswith("\r")
    for left in tmp_path.glob("TARGET*"):
        left.rename(tmp_path / f"before-{left.name}")
    quiet = run(*given)
    assert (quiet.code, quiet.err) == (0, "")
