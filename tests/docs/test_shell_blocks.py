"""The shell blocks that call the command `reactifact`: each line runs as it stands and ends with 0."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import anyio
from forked import shell_functions
from support import Note

from reactifact import SessionStore

ROOT = Path(__file__).parents[2]

COMMAND = f"set -e\nexport PYTHONPATH={ROOT}\n"
"""What stands before a block, and before the commands as an installed program would be called."""


def block(page: str, containing: str) -> str:
    text = (ROOT / page).read_text(encoding="utf-8")
    (found,) = [block for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) if containing in block]
    return str(found)


def run(folder: Path, text: str) -> str:
    script = COMMAND + shell_functions() + text
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def fill(place: str, session: str = "orders", artifact: str = "answer:1") -> None:
    store = SessionStore(place)
    async with store.edit(session) as context:
        context.create(Note(text="tea"), id=artifact)
    await store.aclose()


def test_the_readme(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (tmp_path / "orders.py").write_text(example, encoding="utf-8")
    said = run(tmp_path, "python orders.py\n" + block("README.md", "reactifact sessions"))
    assert "user-1" in said
    assert "+ receipt:42" in said
    assert "user-1/main: 0 pending, 0 failed, 1 dispatched" in said


def test_a_relay_makes_one_pass(tmp_path: Path) -> None:
    anyio.run(fill, str(tmp_path / "state.git"))
    (tmp_path / "mailer.py").write_text("def deliver(context, action):\n    pass\n", encoding="utf-8")
    said = run(tmp_path, block("docs/relay.md", "reactifact relay")).splitlines()
    assert said == [
        "0 delivered, 0 failed, 0 parked; 0 waiting",
        "orders/main: 0 pending, 0 failed, 0 dispatched",
    ]


def test_an_audit_is_made_and_checked(tmp_path: Path) -> None:
    anyio.run(fill, str(tmp_path / "state.git"))
    said = run(tmp_path, block("docs/replay.md", "reactifact audit"))
    assert said.startswith("# Audit report")
    assert said.endswith("the store bears the report out: 1 artifact, every hash, commit and relation\n")


def test_stores_are_moved_and_pruned(tmp_path: Path, postgres_dsn: str) -> None:
    anyio.run(fill, str(tmp_path / "state.db"))
    anyio.run(fill, str(tmp_path / "old.git"), "old")
    moving = block("docs/stores.md", "reactifact export").splitlines()
    moving.sort(key=lambda line: "state.db state.git" not in line)  # this one makes the store of the others
    lines = "\n".join(
        ["reactifact export old.git old.bundle", *moving, block("docs/pruning.md", "reactifact prune")]
    )
    assert lines.count("postgresql://") == 2
    said = run(tmp_path, re.sub(r"postgresql://\S+", f"'{postgres_dsn}'", lines)).splitlines()
    assert [line.split(": ")[1].split(",")[0] for line in said[:4]] == ["1 ref"] * 4
    assert ["0 objects removed" in line for line in said[4:]] == [True, True]


def test_stores_are_backed_up(tmp_path: Path) -> None:
    anyio.run(fill, str(tmp_path / "shop.git"), "shop")
    said = run(tmp_path, block("docs/deploy.md", "backup.bundle")).splitlines()
    assert [line.partition(": ")[0] for line in said[:2]] == ["backup.db", "backup.bundle"]
    assert "shop" in said[2]
    assert run(tmp_path, "reactifact sessions backup.git") == run(tmp_path, "reactifact sessions backup.db")


def test_stores_of_the_published_package_are_imported(tmp_path: Path) -> None:
    samples = ROOT / "tests" / "fixtures" / "published"
    shutil.copytree(samples / "kv", tmp_path / "old-store")
    shutil.copy(samples / "kv.db", tmp_path / "old.db")
    shutil.copy(samples / "checkpoint.json", tmp_path / "checkpoint.json")
    lines = block("docs/moving.md", "reactifact import old-store").splitlines()
    assert len(lines) == 3
    for number, line in enumerate(lines):  # each into a store of its own: the samples hold the same sessions
        said = run(tmp_path, line.replace("state.git", f"state-{number}.git"))
        assert " refs, " in said or " ref, " in said
    assert "checkpoint" in run(tmp_path, "reactifact sessions state-2.git")


def test_a_persons_data_goes(tmp_path: Path) -> None:
    anyio.run(fill, str(tmp_path / "state.git"))
    said = run(tmp_path, block("docs/erase.md", "reactifact erase")).splitlines()
    assert [line.split(": ")[-1].split(",")[0] for line in said if "answer:1" in line] == ["would go", "went"]
    assert said[-1].startswith("session orders: ")


def test_two_stores_are_brought_together(tmp_path: Path) -> None:
    anyio.run(fill, str(tmp_path / "state.git"), "shop")
    said = run(tmp_path, block("docs/sync.md", "reactifact sync"))
    assert "pushed   refs/heads/shop/main" in said
    assert said.endswith(f"nothing new here and in {tmp_path}/hub.git\n")
