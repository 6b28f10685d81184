"""Real `git gc` and `git repack` beside a writer: nothing that was acknowledged is lost.

The writer pauses between pack, index and ref, and git runs in each pause and freely in between. The
same run without the `.keep` loses commits, which shows that the `.keep` is what saves them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from reactifact._store._backends.git.backend import GitBackend

COLLECTORS = (
    ("gc", "--quiet"),
    ("gc", "--quiet", "--prune=now"),
    ("repack", "-a", "-d", "-q"),
)


def collect(path: Path, *command: str) -> None:
    """Run a collector. Its complaints about refs that break under it are not what is tested."""
    subprocess.run(["git", "-C", str(path), *command], capture_output=True, check=False, timeout=60)


def race(path: Path, rounds: int, *, protect: bool) -> list[str]:
    """Run the writer with git beside it; return the ids that it was told are safe.

    Without protection git comes by in the pauses alone: one `git gc` beside another does nothing.
    """
    GitBackend(path)
    writer = subprocess.Popen(
        [
            sys.executable,
            str(Path(__file__).with_name("gc_child.py")),
            str(path),
            str(rounds),
            "protect" if protect else "bare",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
    )
    assert writer.stdin is not None
    assert writer.stdout is not None
    acknowledged: list[str] = []
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            for command in COLLECTORS:
                collect(path, *command)

    beside = threading.Thread(target=loop)
    if protect:
        beside.start()
    pauses = 0
    try:
        for line in writer.stdout:
            word, *oids = line.split()
            acknowledged += oids
            if word == "paused":
                collect(path, *COLLECTORS[pauses % len(COLLECTORS)])
                pauses += 1
                writer.stdin.write("\n")
                writer.stdin.flush()
    finally:
        stop.set()
        if protect:
            beside.join()
        _, err = writer.communicate(timeout=60)
    if protect:
        assert (writer.returncode, err, pauses) == (0, "", rounds)
    return acknowledged


def lost(path: Path, acknowledged: list[str]) -> list[str]:
    """Return the acknowledged objects that git no longer has."""
    shown = subprocess.run(
        ["git", "-C", str(path), "cat-file", "--batch-check=%(objectname)"],
        input="\n".join(acknowledged),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.splitlines()
    return [line.split()[0] for line in shown if line.endswith(" missing")]


def check_nothing_is_lost(path: Path, rounds: int) -> None:
    acknowledged = race(path, rounds, protect=True)
    assert len(acknowledged) == rounds * 2 * 4
    assert lost(path, acknowledged) == []
    backend = GitBackend(path)
    assert len(backend.refs()) == rounds
    assert backend.read_many(acknowledged).keys() == set(acknowledged)
    assert not list(path.rglob("*.keep"))
    done = subprocess.run(
        ["git", "-C", str(path), "fsck", "--strict", "--no-dangling"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    check_nothing_is_lost(tmp_path / "store.git", rounds=10)


def test_without_the_keep_something_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "store.git"
    assert lost(path, race(path, 10, protect=False))


@pytest.mark.full
@pytest.mark.parametrize("run", range(50))
def test_nothing_acknowledged_is_lost_in_fifty_runs(tmp_path: Path, run: int) -> None:
    check_nothing_is_lost(tmp_path / "store.git", rounds=10)
