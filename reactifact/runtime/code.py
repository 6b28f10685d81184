"""Which code made a commit: a declared version, or a hash of the source of an agent's produces."""

from __future__ import annotations

import hashlib
import inspect
from typing import Any
from weakref import WeakKeyDictionary

from ..authoring.agents import Agent
from ..authoring.produce import FunctionProduce, Produce

_known: WeakKeyDictionary[Agent, str] = WeakKeyDictionary()


def code_version(agent: Agent) -> str:
    """Return the agent's declared `code_version`, else a hash of its source, empty where unknown."""
    if agent.code_version is not None:
        return agent.code_version
    if agent not in _known:
        parts = [_source(part) for part in agent.produces or ()] or [_source(agent)]
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
        _known[agent] = digest if all(parts) else ""
    return _known[agent]


def _source(part: Produce[Any] | Agent) -> str:
    subject = part.function if isinstance(part, FunctionProduce) else type(part)
    try:
        return inspect.getsource(subject)
    except (OSError, TypeError):
        return ""
