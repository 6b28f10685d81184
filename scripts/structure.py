"""Measure the structure of the package: `python scripts/structure.py [--check] [--turn] [--root DIR]`.

Prints lines and modules, circles of imports, the widest folder, modules that exactly one other imports, and
modules without a test that has their name. `--turn` also runs README's outbox turn on a bare repository in
this interpreter and counts the modules it enters, the calls from module to module, and its Python calls.
`--check` exits with 1 where modules import each other in a circle, or a folder holds more than `WIDEST` of
them. The package is read as text; only `--turn` imports it.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGE = "reactifact"
WIDEST = 15
"""Modules side by side in one folder, the public face (the package's own folder) aside."""
WARM_TURNS = 3
"""Turns before the one that is counted, so that caches and imports are those of a running service."""


def modules(root: Path) -> dict[str, Path]:
    """Return the path of each module by its dotted name; a package goes by the name of its folder."""
    found = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path, known: dict[str, Path]) -> set[str]:
    """Return the modules of the package that one module imports anywhere in it, also for types alone."""
    found = set()
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in known}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            target = ".".join(base + ([node.module] if node.module else []))
            for alias in node.names:
                inner = f"{target}.{alias.name}"
                found.add(inner if inner in known else target)
    return {target for target in found if target in known and target != name}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that reach each other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph[node]):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            at = stack.index(node)
            group = stack[at:]
            del stack[at:]
            if len(group) > 1:
                found.append(sorted(group))

    sys.setrecursionlimit(max(sys.getrecursionlimit(), 10 * len(graph) + 1000))
    for node in graph:
        if node not in index:
            visit(node)
    return found


def without_test(root: Path, known: dict[str, Path]) -> list[str]:
    """Return the modules with functions or classes of their own and no test file or folder of their name."""
    names = {path.stem for path in (root / "tests").rglob("test_*.py")}
    names |= {f"test_{path.name}" for path in (root / "tests").rglob("*") if path.is_dir()}
    defining = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    missing = []
    for name, path in known.items():
        behaves = any(isinstance(node, defining) for node in ast.parse(path.read_text(encoding="utf-8")).body)
        leaf = name.rpartition(".")[2].lstrip("_")
        if behaves and not any(re.match(rf"test_{leaf}(_|$)", test) for test in names):
            missing.append(name)
    return missing


def structure(root: Path) -> Iterator[tuple[str, Any, list[str]]]:
    """Yield the name, the figure and the names behind it of each thing that is measured."""
    known = modules(root)
    graph = {name: imports(name, path, known) for name, path in known.items()}
    users: dict[str, set[str]] = defaultdict(set)
    for name, targets in graph.items():
        for target in targets:
            users[target].add(name)
    folders: dict[Path, list[str]] = defaultdict(list)
    for name, path in known.items():
        if path.name != "__init__.py" and path.parent != root / PACKAGE:
            folders[path.parent].append(name)
    widest = max(folders, key=lambda folder: len(folders[folder]))
    groups = circles(graph)
    once = [name for name, by in users.items() if len(by) == 1]
    missing = without_test(root, known)
    yield "lines", sum(len(path.read_text(encoding="utf-8").splitlines()) for path in known.values()), []
    yield "modules", len(known), []
    yield "circles of imports", len(groups), [" ".join(group) for group in groups]
    yield "modules in the widest folder", len(folders[widest]), [str(widest.relative_to(root))]
    yield "modules that one other imports", len(once), sorted(once)
    yield "modules without a test of their name", len(missing), missing


def turn() -> dict[str, int]:
    """Run outbox turns on a bare repository and count one: modules entered, calls between them, calls."""
    import anyio

    return anyio.run(_turn)


async def _turn() -> dict[str, int]:
    from benchmarks.turn import Order, process_order
    from reactifact import Consume, Runtime, SessionStore, create_agent

    entered: set[str] = set()
    edges: set[tuple[str, str]] = set()
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        if event != "call":
            return
        calls += 1
        callee = frame.f_globals.get("__name__", "")
        if not callee.startswith(f"{PACKAGE}."):
            return
        entered.add(callee)
        caller = frame.f_back
        while caller is not None and not caller.f_globals.get("__name__", "").startswith(f"{PACKAGE}."):
            caller = caller.f_back
        if caller is not None and caller.f_globals["__name__"] != callee:
            edges.add((caller.f_globals["__name__"], callee))

    async def dispatch(context: object, action: object) -> None:
        """Take the action; what a dispatcher does is not ours to count."""

    with tempfile.TemporaryDirectory() as folder:
        session = await SessionStore(Path(folder) / "state.git").open("session")
        agents = [create_agent("notifier", consumes=[Consume(Order)], produces=[process_order])]
        runtime = Runtime(session.context, agents=agents, session=session, dispatcher=dispatch)
        for number in range(WARM_TURNS + 1):
            if number == WARM_TURNS:
                _profile(count)
            session.context.create(Order(id=str(number), customer="a"), id=f"order:{number}")
            await runtime.arun()
        _profile(None)
    return {"modules of a turn": len(entered), "edges of a turn": len(edges), "calls of a turn": calls}


def _profile(function: Any) -> None:
    """Follow the calls of this thread and of the worker threads, also of those that run already."""
    import threading

    set_all = getattr(threading, "setprofile_all_threads", None)  # Python 3.12
    if set_all is not None:
        set_all(function)
    else:
        threading.setprofile(function)
        sys.setprofile(function)


def main() -> int:
    """Print what was measured; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 where a limit is broken")
    parser.add_argument("--turn", action="store_true", help="also count one outbox turn")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("-v", "--verbose", action="store_true", help="also print the names behind a figure")
    options = parser.parse_args()
    broken = False
    for name, figure, behind in structure(options.root):
        print(f"{figure:>7,}  {name}")
        limit = {"circles of imports": 0, "modules in the widest folder": WIDEST}.get(name)
        over = options.check and limit is not None and figure > limit
        broken |= over
        if options.verbose or over:
            print("".join(f"         {text}\n" for text in behind), end="")
    if options.turn:
        sys.path.insert(0, str(options.root))
        for name, figure in turn().items():
            print(f"{figure:>7,}  {name}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
