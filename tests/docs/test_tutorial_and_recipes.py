"""The tutorial is run line by line in one folder, and each recipe as it stands."""

from __future__ import annotations

import ast
import logging
import os
import re
import subprocess
from inspect import CO_COROUTINE
from pathlib import Path
from typing import Any

import pytest
from forked import shell_functions

ROOT = Path(__file__).parents[2]
COMMANDS = f"set -e\nexport PYTHONPATH={ROOT}\n"
BLOCK = re.compile(r"^```(python|sh)(?: title=\"([^\"]+)\")?\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: str) -> list[tuple[str, str, str]]:
    """Return language, file and text of each block of a page that is run."""
    return BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))


@pytest.mark.timeout(600)
def test_every_line_of_the_tutorial(tmp_path: Path) -> None:
    found = blocks("tutorial.md")
    assert len(found) > 9
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REACTIFACT_")}
    folder = tmp_path
    said = ""
    for language, name, text in found:
        if language == "python":
            (folder / name).write_text(text, encoding="utf-8")
            continue
        script = COMMANDS + shell_functions() + text + "pwd > $WHERE\n"
        environment["WHERE"] = str(tmp_path / "where")
        done = subprocess.run(
            ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, text + done.stdout + done.stderr
        said += done.stdout + done.stderr
        folder = Path((tmp_path / "where").read_text().strip())
    assert "order:1" in said
    assert "euros" in said  # the conflict, by field


@pytest.mark.anyio
@pytest.mark.parametrize("block", [text for _, _, text in blocks("recipes.md")])
async def test_a_recipe(block: str) -> None:
    code = compile(block, "recipes.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    logger = logging.getLogger("reactifact")
    before = (logger.handlers[:], logger.propagate, logger.level)
    try:
        known: dict[str, Any] = {"__name__": "__main__"}
        done = eval(code, known)
        if code.co_flags & CO_COROUTINE:
            await done
    finally:
        logger.handlers[:], logger.propagate = before[0], before[1]
        logger.setLevel(before[2])


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
