"""The fork lab: two strategies on two forks, compared, merged, one conflict settled by a policy."""

from __future__ import annotations

import subprocess
from pathlib import Path

import forked

ROOT = Path(__file__).parents[2]

TOLD = """\

careful against main:
    kettle: price 4000 -> 4400
    samovar: price 20000 -> 22000

bold against main:
    samovar: price 20000 -> 16000
    teapot: price 3000 -> 2400

they differ in kettle, samovar, teapot

careful has won and is merged
bold is not: samovar: changed differently on both sides (price)
bold is merged, the lower price winning

kettle      44.00
teapot      24.00
cup          8.00
samovar    160.00
the teapot's price is bold's, on goal:bold
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return forked.run("-m", "examples.forklab.main", *arguments, cwd=ROOT)


def git(path: Path, *arguments: str) -> str:
    command = ["git", "-C", str(path), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_it_tells_its_story_without_a_store() -> None:
    done = run()
    assert (done.returncode, done.stdout, done.stderr) == (0, TOLD, "")


def test_git_reads_what_it_left(tmp_path: Path) -> None:
    path = tmp_path / "state.git"
    assert run("--store", str(path)).stdout == TOLD
    assert git(path, "branch", "--format=%(refname:short)").split() == ["lab/bold", "lab/careful", "lab/main"]
    assert git(path, "fsck", "--strict", "--no-dangling") == ""
    merges = git(path, "log", "--merges", "--format=%s", "lab/main").splitlines()
    assert merges == ["Merge lab/bold into lab/main", "Merge careful, the winner of a race"]
    assert git(path, "merge-base", "lab/main", "lab/bold") == git(path, "rev-parse", "lab/bold")
    again = run("--store", str(path))
    assert again.returncode == 2
    assert "earlier run" in again.stderr
