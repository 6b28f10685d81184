"""What the README says is run: its example, twice, and the git commands below it."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def block(language: str, containing: str) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (found,) = [text for text in blocks if containing in text]
    return str(found)


def run_example(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "orders.py"], cwd=folder, capture_output=True, text=True, check=True
    )


def test_the_example_runs_as_pasted_and_resumes_when_run_again(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(block("python", "SessionStore"), encoding="utf-8")
    first = run_example(tmp_path)
    assert first.stdout == "notify: {'to': 'a@example.com'}, key notify:42\n"
    assert first.stderr == ""
    second = run_example(tmp_path)
    assert (second.stdout, second.stderr) == ("", "")


def test_the_git_commands_read_the_state(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(block("python", "SessionStore"), encoding="utf-8")
    run_example(tmp_path)
    said = []
    for line in block("sh", "git -C state.git log").splitlines():
        command = shlex.split(line, comments=True)
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        said.append(done.stdout)
    log, diff, fsck, _ = said
    assert "notifier: act notify:42, create Receipt receipt:42" in log
    assert '+  "text": "confirmed"' in diff
    assert ".reactifact" not in diff
    assert fsck == ""
    assert (tmp_path / "state" / "artifacts").is_dir()
