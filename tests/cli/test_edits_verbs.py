"""The verbs that change a store, from an empty folder on: what they say, what git then sees, exit codes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from shop import Order

from reactifact.branching import BranchStore
from reactifact.cli import main


@pytest.fixture
def place(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the shop as `state.git` in the current folder."""
    shutil.copytree(store, tmp_path / "state.git")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REACTIFACT_STORE", raising=False)
    return tmp_path / "state.git"


def git(store: Path, *arguments: str) -> str:
    command = ["git", "-C", str(store), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


Run = Callable[..., Any]


def test_init_makes_a_store_that_the_other_verbs_find(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REACTIFACT_STORE", raising=False)
    nowhere = run("sessions")
    assert (nowhere.code, "reactifact init" in nowhere.err) == (2, True)
    assert run("init").out == "state.git: made, empty\n"
    assert run("init", "--json").json == {"what": "init", "store": "state.git", "made": False}
    assert git(tmp_path / "state.git", "fsck", "--strict") == ""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    assert run("sessions").out == "no sessions\n"


def test_the_store_is_named_by_option_argument_or_environment(
    run: Run, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    forms = [
        ("-C", place, "log", "user-1"),
        ("log", "-C", place, "user-1"),
        ("log", f"--store={place}", "user-1"),
    ]
    shown = {run(*form).out for form in [*forms, ("log", place, "user-1")]}
    assert len(shown) == 1
    monkeypatch.setenv("REACTIFACT_STORE", str(place))
    assert run("log", "user-1").out in shown
    other = tmp_path / "other.git"
    assert run("init", other).code == 0
    assert run("sessions", other).out == "no sessions\n"  # the argument counts before the environment
    monkeypatch.chdir(place)
    monkeypatch.delenv("REACTIFACT_STORE")
    assert run("log", "user-1").out in shown


def test_tag_fork_and_delete(run: Run, place: Path) -> None:
    assert run("tag", "user-1~1", "older").code == 0
    older = git(place, "rev-parse", "user-1/main~1")
    assert git(place, "rev-parse", "refs/tags/user-1/older") == older
    assert run("tag", "--json").json["tags"] == [{"session": "user-1", "name": "older", "commit": older}]
    made = run("fork", "user-1/older", "try", "--json").json
    assert (made["session"], made["branch"], made["commit"]) == ("user-1", "try", older)
    assert run("fork", "user-1", "try").code == 2  # taken
    assert run("delete", "user-1/try").code == 2  # nobody to ask
    assert run("delete", "user-1/try", "-y").out == "deleted branch user-1/try\n"
    assert run("delete", "user-1", "o2", "-y").code == 0
    assert run("show", "user-1", "o2").code == 2
    assert run("undo", "user-1").code == 0
    assert run("show", "user-1", "o2").code == 0
    assert run("delete", "shop", "-y", "--json").json["branch"] is None
    assert "shop" not in run("sessions").out


def test_merge_previews_and_writes(run: Run, place: Path) -> None:
    before = git(place, "rev-parse", "user-1/main")
    preview = run("merge", "user-1", "plan b", "--preview", "--json").json
    assert (preview["commit"], preview["preview"]["adopted"]) == (None, ["o1"])
    assert git(place, "rev-parse", "user-1/main") == before
    merged = run("merge", "user-1", "plan b", "--json").json
    assert merged["commit"] == git(place, "rev-parse", "user-1/main")
    assert git(place, "rev-parse", "user-1/main^2") == git(place, "rev-parse", "user-1/plan%20b")
    assert "nothing was merged" in run("merge", "user-1/plan b").out
    assert run("undo", "user-1", "--json").json["done"] == "the merge that made version 3"
    assert run("show", "user-1", "o1", "--json").json["data"]["note"] == ""
    assert run("redo", "user-1").code == 0
    assert run("show", "user-1", "o1", "--json").json["data"]["note"] == "hurry"


def test_a_conflict_is_exit_code_1_and_a_policy_settles_it(run: Run, place: Path) -> None:
    async def contradict() -> None:
        store = BranchStore(place)
        async with store.edit("user-1") as context:
            context.update("o1", Order(customer="somebody else"))
        await store.aclose()

    anyio.run(contradict)
    before = git(place, "rev-parse", "user-1/main")
    refused = run("merge", "user-1", "plan b")
    assert (refused.code, "o1" in refused.err) == (1, True)
    assert "--policy ours or theirs" in refused.err
    told = run("merge", "user-1", "plan b", "--json")
    assert (told.code, told.json["commit"], len(told.json["conflicts"])) == (1, None, 1)
    assert git(place, "rev-parse", "user-1/main") == before
    assert run("merge", "user-1", "plan b", "--policy", "ours").code == 0


def test_revert_takes_back_a_generation(run: Run, place: Path) -> None:
    reverted = run("revert", "user-1@v2", "--json").json
    assert reverted["commit"] == git(place, "rev-parse", "user-1/main")
    assert run("show", "user-1", "receipt:o2").code == 2
    assert run("show", "user-1", "receipt:o1").code == 0
    assert "nothing was reverted" in run("revert", "user-1@v2").out


def test_compact_keeps_the_state(run: Run, place: Path) -> None:
    before = run("show", "user-1", "o1", "--json").json["data"]
    done = run("compact", "user-1", "--keep", "1", "--json").json
    assert (done["folded"], done["version"]) == (1, 2)
    assert run("show", "user-1", "o1", "--json").json["data"] == before


def test_git_runs_it(place: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "git-reactifact"
    root = Path(main.__code__.co_filename).parents[2]
    python = "import sys; from reactifact.cli import git_main; sys.exit(git_main())"
    script.write_text(f"#!/bin/sh\nPYTHONPATH={root} exec {sys.executable} -c '{python}' \"$@\"\n")
    script.chmod(0o755)
    environment = {**os.environ, "PATH": os.pathsep.join([str(folder), os.environ["PATH"]])}
    command = ["git", "-C", str(place), "reactifact", "log", "user-1", "-n", "1"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert shown.stdout.startswith(git(place, "rev-parse", "user-1/main")[:10])
    command = ["git", f"--git-dir={place}", "reactifact", "sessions"]
    shown = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=True)
    assert "user-1" in shown.stdout
