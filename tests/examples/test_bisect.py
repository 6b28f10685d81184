"""The bisect example: it names the generation, and plain git finds the same commit."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import forked
import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return forked.run("-m", "examples.bisect.main", *arguments, cwd=ROOT)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A store that the example left (its path has a space in it), and what it printed."""
    path = tmp_path_factory.mktemp("the books") / "state.git"
    done = run("--store", str(path))
    assert done.returncode == 0, done.stderr
    return path, done.stdout


def test_it_names_the_generation(told: tuple[Path, str]) -> None:
    lines = told[1].splitlines()
    assert lines[0] == "40 payments booked; the total is 40297, the entries make 39297"
    looked = re.fullmatch(r"bisect looked at (\d) of 80 states", lines[1])
    assert looked is not None
    assert int(looked[1]) <= 7
    assert re.fullmatch(r"it went wrong in [0-9a-f]{12}, by bookkeeper, because of payment:23", lines[2])


def test_the_printed_commands_of_git_find_the_same_commit(told: tuple[Path, str]) -> None:
    path, printed = told
    commands = re.findall(r"^git -C .*$", printed, re.MULTILINE)
    assert len(commands) == 3
    done = subprocess.run(
        ["sh", "-c", " && ".join(commands)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    first = re.search(r"^([0-9a-f]{40}) is the first bad commit$", done.stdout, re.MULTILINE)
    assert first is not None
    assert f"it went wrong in {first[1][:12]}," in printed
    shown = ["git", "-C", str(path), "log", "-1", "--format=%(trailers:key=Trigger,valueonly)", first[1]]
    trigger = subprocess.run(shown, capture_output=True, text=True, check=True).stdout
    assert trigger.strip() == "artifact_created payment:23"


def test_it_runs_without_a_store_and_refuses_one_that_is_used(told: tuple[Path, str]) -> None:
    done = run()
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 5)
    again = run("--store", str(told[0]))
    assert again.returncode == 2
    assert "earlier run" in again.stderr
    assert "Traceback" not in again.stderr


def test_the_script_is_one_line() -> None:
    script = (ROOT / "examples" / "bisect" / "check.sh").read_text()
    assert len([line for line in script.splitlines() if not line.startswith("#")]) == 1
