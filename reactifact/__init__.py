"""Agents whose state is a git repository, and whose effects on the world are an outbox."""

from __future__ import annotations

from ._context.context import Context
from ._context.view import View
from .agents import Agent, create_agent
from .agents import step as step
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
    "tool",
]
