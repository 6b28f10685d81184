"""What a terminal gets: the graph of commits, lines cut to its width, times, progress, the pager."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest

from reactifact.cli._shared.terminal import Graph, Moment, Progress, cut
from reactifact.cli.common import Cell

Run = Callable[..., Any]
ROOT = Path(__file__).parents[2]


def drawn(*commits: tuple[str, str]) -> list[str]:
    graph, rows = Graph(), []
    for commit, parents in commits:
        row, below = graph.add(commit, parents.split())
        rows += ["".join(cell.text for cell in cells) for cells in [row, *below]]
    return rows


def test_a_merge_and_its_fork() -> None:
    assert drawn(("m", "a b"), ("b", "r"), ("a", "r"), ("r", "")) == [
        "*",
        r"|\ ".rstrip(),
        "| *",
        "* |",
        "|/",
        "*",
    ]


def test_two_branches_and_a_commit_without_parents() -> None:
    assert drawn(("x", "r"), ("y", "r"), ("z", ""), ("r", "")) == ["*", "| *", "|/", "| *", "*"]


def test_a_lane_joins_over_another() -> None:
    rows = drawn(("a", "r"), ("b", "q"), ("c", "r"), ("q", "r"), ("r", ""))
    assert rows == ["*", "| *", "| | *", "|_|/", "| *", "|/", "*"]


def test_log_graph_lists_the_commits_of_git(run: Run, store: Path) -> None:
    command = ["git", "-C", str(store), "rev-list", "--branches=user-1/*"]
    commits = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    short = sorted(commit[:10] for commit in commits)
    shown = run("log", store, "user-1", "--all", "--graph").lines
    assert sorted(word for text in shown for word in text.split() if word in short) == short
    assert any("(HEAD -> main)" in text for text in shown)
    assert len([text for text in run("log", store, "user-1", "--graph", "-n", "2").lines if "*" in text]) == 2
    assert run("log", store, "user-1", "--graph", "--json").code == 2


def test_a_line_is_cut_to_the_terminal() -> None:
    assert cut(["abcdef", Cell("ghi", None)], 8) == "abcdefg…"
    assert cut(["abc"], 8) == "abc"
    assert cut(["日本語"], 5) == "日本…"
    assert cut(["abc"], None) == "abc"


def test_times_as_people_write_them() -> None:
    now = datetime.now(UTC)
    moment = Moment()
    assert abs(moment.convert("2 hours ago", None, None) - (now - timedelta(hours=2))) < timedelta(minutes=1)
    assert abs(moment.convert("3d", None, None) - (now - timedelta(days=3))) < timedelta(minutes=1)
    assert moment.convert("2026-01-31T10:00+02:00", None, None) == datetime(2026, 1, 31, 8, tzinfo=UTC)
    assert moment.convert("2026-01-31", None, None) == datetime(2026, 1, 31).astimezone()
    with pytest.raises(click.BadParameter, match="is not a time"):
        moment.convert("soon", None, None)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_says_rate_and_rest_and_is_silent_elsewhere() -> None:
    shown = Progress("importing", stream=Terminal())
    assert shown.text(500, 2000, 10.0) == "importing: 500 of 2000 objects, 50 a second, 30s left"
    assert shown.text(500, None, 10.0) == "importing: 500 objects, 50 a second"
    shown(1)
    assert shown._stream.getvalue() == ""  # type: ignore[attr-defined]  # it took less than a second
    quiet = Progress("importing", stream=io.StringIO())
    quiet._next = 0.0
    quiet(5)
    assert quiet._stream.getvalue() == ""  # type: ignore[attr-defined]
    loud = Progress("importing", stream=Terminal())
    loud._next = 0.0
    loud(5)
    loud.close()
    assert "importing: 5 objects" in loud._stream.getvalue()  # type: ignore[attr-defined]
    assert loud._stream.getvalue().endswith("\r")  # type: ignore[attr-defined]


def test_a_pager_stands_between_where_a_person_sits(store: Path, tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho PAGED $LESS\ncat\n")
    pager.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "REACTIFACT_PAGER": str(pager)}
    environment.pop("NO_COLOR", None)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "reactifact", "log", str(store), "user-1", "--graph"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:
        pass  # how the end of a terminal shows on Linux
    os.close(ours)
    assert process.wait() == 0
    assert b"PAGED FRX" in shown
    assert b"\x1b[33m" in shown  # in colour all the same
    piped = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert b"PAGED" not in piped.stdout
