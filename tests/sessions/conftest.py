"""Two machines that share a session through a hub."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import Machine
from support import git


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet", "--bare", "hub.git")
    return tmp_path / "hub.git"


@pytest.fixture
async def pair(tmp_path: Path, hub: Path) -> tuple[Machine, Machine]:
    """Return two machines that share a session with one delivery."""
    a = Machine(tmp_path / "a.git", hub)
    await a.turn("o1")
    assert (await a.sync()).ok
    git(hub, "symbolic-ref", "HEAD", "refs/heads/s/main")
    b = Machine(tmp_path / "b.git", hub)
    report = await b.sync()
    assert report.ok
    assert report.made == [("s", "main")]
    return a, b
