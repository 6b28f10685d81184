"""What users copy is clean for type checkers: the README and every Python block of the manual.

A block that leaves out what stands around it gets that here: public names are imported, and those of
`GIVEN` are declared. `mypy --strict` and pyright look at all of them at once. The examples and the typed face
are looked at by `scripts/test` itself.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import reactifact

ROOT = Path(__file__).parents[2]

GIVEN = {
    "BranchStore": "from reactifact import BranchStore",
    "Receipt": "class Receipt(BaseModel):\n    order: str",
    "mail": "mail: Any = given()",
    "model": "model: Any = given()",
    "send_mail": "send_mail: Any = given()",
    "Order": "class Order(BaseModel):\n    item: str",
    "agents": "agents: list[Agent] = given()",
    "branches": "from reactifact import BranchStore\nbranches: BranchStore = given()",
    "builder": "builder: Any = given()",
    "first_verdict": "async def first_verdict(llm: LLMProvider) -> Any: ...",
    "deliver": "def deliver(context: Context, action: Artifact[PendingAction]) -> None: ...",
    "post": "async def post(payload: dict[str, Any], *, idempotency_key: str) -> None: ...",
    "runtime": "runtime: Runtime = given()",
    "reprice": "def reprice(price: int) -> Strategy: ...  # type: ignore[empty-body]",
    "client": "client: Any = given()",
    "context": "context: Context = given()",
    "dispatcher": "dispatcher: RecordingDispatcher = given()",
    "MyProvider": "def MyProvider(client: Any, name: str) -> LLMProvider: ...  # type: ignore[empty-body]",
    "Post": "class Post(BaseModel):\n    views: int = 0\n    tags: list[str] = []\n    log: list[str] = []",
    "Product": "class Product(BaseModel):\n    price: int",
    "Profile": "class Profile(BaseModel):\n    name: str = ''\n    changed_at: int = 0",
    "PurchaseOrder": "class PurchaseOrder(BaseModel):\n    item: str\n    currency: str",
    "run": "async def run(store: SessionStore, dispatcher: Any) -> None: ...",
    "store": "store: SessionStore = given()",
}
"""What the pages leave out, by name: what a reader has of their own."""

BEFORE = """
from typing import Any
from pydantic import BaseModel
from reactifact.racing import Strategy
from reactifact.testing import RecordingDispatcher
def given() -> Any: ...
"""

MODULES = {
    "shop": """
from pydantic import BaseModel
from reactifact import Agent


class Order(BaseModel):
    item: str


def agents() -> list[Agent]:
    return []
""",
    "mystore": """
from pathlib import Path
from reactifact.checkpoints import SQLiteKVBackend


class MyBackend(SQLiteKVBackend):
    def __init__(self, path: Path) -> None:
        super().__init__(f"{path}.db")
""",
}
"""Modules that blocks import: the reader's own."""


def blocks(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```python(?: [^\n]*)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def missing_names(tree: ast.Module) -> list[str]:
    """Return the names that a block uses and nowhere binds, sorted."""
    nodes = list(ast.walk(tree))
    bound = set(dir(builtins)) | {"__file__", "__name__"}
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return sorted(used - bound)


def completed(block: str, where: str) -> str:
    """Return a block as a whole module."""
    tree = ast.parse(block)
    before = ""
    for name in missing_names(tree):
        given = GIVEN.get(name, "")
        assert given or name in reactifact.__all__, f"{where} uses {name}: import it, or declare it in GIVEN"
        before += f"{given}\n"
    wanted = [name for name in reactifact.__all__ if re.search(rf"\b{name}\b", before)]
    wanted += set(missing_names(tree)) - GIVEN.keys()
    names = "".join(f"from reactifact import {name}\n" for name in sorted(set(wanted)))
    if any(awaits(node) for node in tree.body):
        block = "async def block() -> None:\n" + textwrap.indent(block, "    ")
    return f"{BEFORE if before else ''}{names}{before}\n{block}"


def awaits(node: ast.AST) -> bool:
    """Whether a statement waits outside of any function of its own."""
    if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef | ast.ClassDef | ast.Lambda):
        return False
    if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
        return True
    return any(awaits(child) for child in ast.iter_child_nodes(node))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All blocks as modules, named after their page and place."""
    folder = tmp_path_factory.mktemp("blocks")
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        for number, block in enumerate(blocks(page), 1):
            name = re.sub(r"\W", "_", page.relative_to(ROOT).with_suffix("").as_posix())
            path = folder / f"{name}_{number}.py"
            path.write_text(completed(block, f"{page.relative_to(ROOT)}, block {number}"), encoding="utf-8")
    assert len(list(folder.iterdir())) > 10
    for page in pages:
        for name, text in re.findall(
            r'^```python title="(\w+)\.py"\n(.*?)^```', page.read_text(), re.S | re.M
        ):
            MODULES[name] = text  # a file of the page that its other blocks import
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return folder


def checked(folder: Path, *command: str) -> None:
    environment = {**os.environ, "MYPYPATH": str(ROOT), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_finds_nothing_in_the_blocks(folder: Path) -> None:
    files = [path.name for path in sorted(folder.glob("*.py"))]
    cache = f"--cache-dir={ROOT / '.mypy_cache' / 'blocks'}"
    checked(folder, sys.executable, "-m", "mypy", "--strict", cache, *files)


def test_pyright_finds_nothing_in_the_blocks(folder: Path) -> None:
    settings = {"typeCheckingMode": "standard", "extraPaths": [str(ROOT)], "include": ["."]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    checked(folder, sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable)
