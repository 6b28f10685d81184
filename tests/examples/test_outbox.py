"""The outbox example: exactly seven lines, and a store that plain git can read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LINES = """\
1. commit -> dispatch sent=['notify:42'] status=dispatched
2. re-derivation first run sent 1; the re-run sent 0
3. same generation producers=2 intents=1 sent=1
4. two merged branches branches=2 intents-after-merge=1 sent=1
5. replay sent before replay=1 after replay=1
6. failure -> retry raised 'smtp temporarily unavailable'; retry sent once
7. app-owned retry transient outage absorbed by the wrapper
"""


def run(*arguments: str, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *python, "-m", "examples.outbox.main", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def git(store: Path, *arguments: str) -> str:
    command = ["git", "-C", str(store), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("outbox") / "state.git"
    done = run("--store", str(path))
    assert done.returncode == 0, done.stderr
    assert done.stdout == LINES
    return path


def test_seven_lines_without_a_store() -> None:
    done = run()
    assert (done.returncode, done.stdout) == (0, LINES)


def test_git_finds_nothing_wrong(store: Path) -> None:
    assert git(store, "fsck", "--strict") == ""


def test_the_log_reads_like_a_story(store: Path) -> None:
    story = git(store, "log", "--format=%an %s", "demo/main").splitlines()
    assert story == [
        "notifier notifier: act notify:42, create Receipt receipt:42",
        "application application: create Order order:42",
        "reactifact Begin session demo",
    ]


def test_the_ledger_tells_the_deliveries(store: Path) -> None:
    assert git(store, "log", "--format=%s", "demo/%outbox").splitlines() == ["delivered notify:42"]
    failed = git(store, "log", "--reverse", "--format=%s", "failed-then-retried/%outbox").splitlines()
    assert failed == ["failed notify:42", "retry notify:42", "delivered notify:42"]


def test_a_diff_shows_fields_in_full_and_bookkeeping_as_stubs(store: Path) -> None:
    diff = git(store, "diff", "derived-again/main~2", "derived-again/main")
    assert '-  "text": "confirmed for a@example.com"' in diff
    assert '+  "text": "confirmed for a@example.com: deliver in the morning"' in diff
    hidden = [part for part in diff.split("diff --git ")[1:] if part.startswith("a/.reactifact")]
    assert hidden
    assert all(len(part.splitlines()) <= 4 for part in hidden)


def test_a_store_with_sessions_of_an_earlier_run_is_refused(store: Path) -> None:
    done = run("--store", str(store))
    assert done.returncode == 2
    assert "earlier run" in done.stderr
    assert "Traceback" not in done.stderr
