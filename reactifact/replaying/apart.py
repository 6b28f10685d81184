"""One run in an interpreter of its own, with another order of sets.

Owns the way there and back: what to import, where the trace is written. What a run is is
`verifying`'s.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import anyio

from ..errors import ReactifactError
from .tracing import Trace

_PROGRAM = (
    "import sys; sys.path[:] = {path!r}; from reactifact.replaying.apart import serve; serve({order!r})"
)
_SHOWN = 2000


class RunApartFailed(ReactifactError):
    """The run in a process of its own did not come to its end; its traceback is in the text."""


def is_importable(function: Callable[..., Any]) -> bool:
    """Tell whether another process finds a function by its module and name."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if not module or not name or "<" in name or module == "__main__":
        return False
    try:
        found = importlib.util.find_spec(module) is not None and _find(module, name) is function
    except (ImportError, AttributeError, ValueError):
        return False
    return found


def _find(module: str, name: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


async def run_apart(
    build: Callable[..., Any], recording: str | None, factory: Callable[..., Any] | None
) -> Trace:
    """Make one run in a fresh interpreter and return what it did. Raises `RunApartFailed`."""
    with tempfile.TemporaryDirectory(prefix="reactifact-run-") as folder:
        is_asyncio = anyio.get_cancelled_exc_class() is asyncio.CancelledError
        result = os.path.join(folder, "trace.json")
        order = {
            "build": [build.__module__, build.__qualname__],
            "factory": None if factory is None else [factory.__module__, factory.__qualname__],
            "recording": None if recording is None else os.path.abspath(recording),
            "loop": "asyncio" if is_asyncio else "trio",
            "result": result,
        }
        program = _PROGRAM.format(path=[os.path.abspath(part) for part in sys.path], order=order)
        # -R: hashes of texts, and so the order of sets, are drawn anew
        done = await anyio.run_process([sys.executable, "-R", "-c", program], check=False)
        if done.returncode != 0:
            text = done.stderr.decode(errors="replace")[-_SHOWN:]
            raise RunApartFailed(
                f"{build.__module__}.{build.__qualname__} failed in a process of its own (separate=False "
                f"keeps it in this one):\n{text}"
            )
        with open(result, encoding="utf-8") as file:
            return Trace(**json.load(file))


def serve(order: dict[str, Any]) -> None:
    """Do what `run_apart` asks for (called in the fresh interpreter)."""
    from .verifying import trace_run  # it needs this module

    build = _find(*order["build"])
    factory = None if order["factory"] is None else _find(*order["factory"])
    trace = anyio.run(trace_run, build, order["recording"], factory, backend=order["loop"])
    with open(order["result"], "w", encoding="utf-8") as file:
        json.dump(trace.to_dict(), file)
