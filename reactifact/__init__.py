"""Agents whose state is a git repository, and whose effects on the world are an outbox.

A name is imported from its module when it is first asked for: who uses few of them waits for no others.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._context.context import Context
    from ._context.view import View
    from .agents import Agent, create_agent, step
    from .artifacts import Artifact
    from .branching import BranchStore as BranchStore
    from .budget import Budget, BudgetTracker, RunOutcome, RunStats
    from .consume import Consume, consume
    from .effects import Effects, Handle
    from .events import Event, EventType
    from .interrupt import PendingAction, PendingQuestion
    from .logging import bind, configure_logging, get_logger
    from .merging import MergeConflict
    from .operations import Create, Delete, Link, Patch, Relation, Unlink, Update
    from .produce import Produce, ProduceCall, produce
    from .providers import (
        EmbeddingProvider,
        FakeEmbedder,
        FakeLLM,
        LLMProvider,
        LLMRequest,
        LLMResponse,
        LLMResponseChunk,
        Message,
    )
    from .request import current_request
    from .resources import ResourceKey, ResourceScope, RuntimeResources
    from .runtime import Runtime
    from .session import Session, SessionStore
    from .tools import FunctionTool, Tool, ToolOutput, tool
    from .triggers import Trigger
    from .types.ids import register as register_type

__all__ = [
    "Agent",
    "Artifact",
    "Budget",
    "BudgetTracker",
    "Consume",
    "Context",
    "Create",
    "Delete",
    "Effects",
    "EmbeddingProvider",
    "Event",
    "EventType",
    "FakeEmbedder",
    "FakeLLM",
    "FunctionTool",
    "Handle",
    "LLMProvider",
    "LLMRequest",
    "LLMResponse",
    "LLMResponseChunk",
    "Link",
    "MergeConflict",
    "Message",
    "Patch",
    "PendingAction",
    "PendingQuestion",
    "Produce",
    "ProduceCall",
    "Relation",
    "ResourceKey",
    "ResourceScope",
    "RunOutcome",
    "RunStats",
    "Runtime",
    "RuntimeResources",
    "Session",
    "SessionStore",
    "Tool",
    "ToolOutput",
    "Trigger",
    "Unlink",
    "Update",
    "View",
    "bind",
    "configure_logging",
    "consume",
    "create_agent",
    "current_request",
    "get_logger",
    "produce",
    "register_type",
    "step",
    "tool",
]

_PLACES = {  # where each name stands, and what it is called there
    "Agent": ("agents", "Agent"),
    "Artifact": ("artifacts", "Artifact"),
    "BranchStore": ("branching", "BranchStore"),
    "Budget": ("budget", "Budget"),
    "BudgetTracker": ("budget", "BudgetTracker"),
    "Consume": ("consume", "Consume"),
    "Context": ("_context.context", "Context"),
    "Create": ("operations", "Create"),
    "Delete": ("operations", "Delete"),
    "Effects": ("effects", "Effects"),
    "EmbeddingProvider": ("providers", "EmbeddingProvider"),
    "Event": ("events", "Event"),
    "EventType": ("events", "EventType"),
    "FakeEmbedder": ("providers", "FakeEmbedder"),
    "FakeLLM": ("providers", "FakeLLM"),
    "FunctionTool": ("tools", "FunctionTool"),
    "Handle": ("effects", "Handle"),
    "LLMProvider": ("providers", "LLMProvider"),
    "LLMRequest": ("providers", "LLMRequest"),
    "LLMResponse": ("providers", "LLMResponse"),
    "LLMResponseChunk": ("providers", "LLMResponseChunk"),
    "Link": ("operations", "Link"),
    "MergeConflict": ("merging", "MergeConflict"),
    "Message": ("providers", "Message"),
    "Patch": ("operations", "Patch"),
    "PendingAction": ("interrupt", "PendingAction"),
    "PendingQuestion": ("interrupt", "PendingQuestion"),
    "Produce": ("produce", "Produce"),
    "ProduceCall": ("produce", "ProduceCall"),
    "Relation": ("operations", "Relation"),
    "ResourceKey": ("resources", "ResourceKey"),
    "ResourceScope": ("resources", "ResourceScope"),
    "RunOutcome": ("budget", "RunOutcome"),
    "RunStats": ("budget", "RunStats"),
    "Runtime": ("runtime", "Runtime"),
    "RuntimeResources": ("resources", "RuntimeResources"),
    "Session": ("session", "Session"),
    "SessionStore": ("session", "SessionStore"),
    "Tool": ("tools", "Tool"),
    "ToolOutput": ("tools", "ToolOutput"),
    "Trigger": ("triggers", "Trigger"),
    "Unlink": ("operations", "Unlink"),
    "Update": ("operations", "Update"),
    "View": ("_context.view", "View"),
    "bind": ("logging", "bind"),
    "configure_logging": ("logging", "configure_logging"),
    "consume": ("consume", "consume"),
    "create_agent": ("agents", "create_agent"),
    "current_request": ("request", "current_request"),
    "get_logger": ("logging", "get_logger"),
    "produce": ("produce", "produce"),
    "register_type": ("types.ids", "register"),
    "step": ("agents", "step"),
    "tool": ("tools", "tool"),
}


def __getattr__(name: str) -> Any:
    """Import a name, or a public module, that is asked for the first time."""
    if name in _PLACES:
        module, own_name = _PLACES[name]
        found = getattr(import_module(f"{__name__}.{module}"), own_name)
        globals()[name] = found
        return found
    from pkgutil import iter_modules

    if not name.startswith("_") and any(module.name == name for module in iter_modules(__path__)):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})


class _Package(ModuleType):
    """Keeps `produce` and `consume` the functions: importing the modules of that name would replace them."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _PLACES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
