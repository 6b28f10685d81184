"""Completion in the real shells: bash, zsh and fish complete sessions, branches and ids of a store."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from forked import shell_command

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the command `reactifact` as it would be installed."""
    folder = tmp_path_factory.mktemp("bin")
    script = folder / "reactifact"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {shell_command()} -m reactifact "$@"\n')
    script.chmod(0o755)
    return folder


def run(shell: list[str], program: Path, folder: Path) -> str:
    path = os.pathsep.join([str(program), os.environ["PATH"]])
    environment = {"PATH": path, "HOME": str(folder), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed (.ci/run installs it)")
    done = subprocess.run(
        shell, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


BASH = """
eval "$(_REACTIFACT_COMPLETE=bash_source reactifact)"
for words in "log us" "log user-1/pl" "show user-1 receipt : o" "blame user-1 o" "log -C state.git te"; do
    COMP_WORDS=(reactifact $words)
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMPREPLY=()
    _reactifact_completion reactifact
    echo "$words => ${COMPREPLY[*]}"
done
"""

FISH = """
_REACTIFACT_COMPLETE=fish_source reactifact | source
for words in "log us" "log user-1/pl" "show user-1 receipt:" "log te"
    echo "$words => "(complete -C "reactifact $words" | string join ' ')
end
"""

ZSH = r"""
zmodload zsh/zpty
zpty shell zsh -f -i
type_in() { zpty -w -n shell "$1" }
wait_for() {
    local said all=""
    repeat 400; do
        if zpty -r -t shell said; then all+="$said"; fi
        [[ "$all" == *$1* ]] && { print -r -- "$all"; return 0 }
        sleep 0.05
    done
    print -r -- "$all"
    return 1
}
type_in $'PS1=\nautoload -Uz compinit && compinit -u -D\n'
type_in $'eval "$(_REACTIFACT_COMPLETE=zsh_source reactifact)"; print READ""Y\n'
wait_for READY >/dev/null || exit 3
type_in $'reactifact log us\t'
wait_for 'log user-1' || exit 4
type_in $'\t'
wait_for 'user-1/main' || exit 6
type_in $'\C-ureactifact show user-1 receipt:o\t'
wait_for 'receipt:o2' || exit 5
"""


def test_bash(program: Path, store: Path) -> None:
    said = run(["bash", "--norc", "-c", BASH], program, store.parent)
    assert "log us => user-1" in said
    assert "show user-1 receipt : o => o1 o2\n" in said  # bash cuts words at a colon
    assert "user-1/pl => user-1/plan\\ b\n" in said
    assert "blame user-1 o => o1 o2\n" in said
    assert "te => team team/a" in said


def test_fish(program: Path, store: Path) -> None:
    said = run(["fish", "--no-config", "-c", FISH], program, store.parent)
    assert "log us => user-1 user-1/main user-1/plan b" in said
    assert "show user-1 receipt: => receipt:o1 receipt:o2" in said


def test_zsh(program: Path, store: Path) -> None:
    said = run(["zsh", "-f", "-c", ZSH], program, store.parent)
    assert "user-1/plan b" in said or "user-1/plan\\ b" in said
    assert "receipt:o1" in said
