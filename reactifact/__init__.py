"""Agents whose state is a git repository, and whose effects on the world are an outbox."""

from __future__ import annotations

from .agents import Agent, create_agent
from .artifacts import Artifact
from .branching import MergeConflict
from .budget import Budget, BudgetTracker, RunOutcome, RunStats
from .consume import Consume, consume
from .context import Context
from .effects import Effects, Handle
from .events import Event, EventType
from .interrupt import PendingAction, PendingQuestion
from .operations import Create, Delete, Link, Unlink, Update
from .patches import Patch, Relation
from .produce import Produce, ProduceCall, produce
from .request import current_request
from .resources import ResourceKey, ResourceScope, RuntimeResources
from .runtime import Runtime
from .session import Session, SessionStore
from .triggers import Trigger
from .types import register as register_type

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
    "Event",
    "EventType",
    "Handle",
    "Link",
    "MergeConflict",
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
    "Trigger",
    "Unlink",
    "Update",
    "consume",
    "create_agent",
    "current_request",
    "produce",
    "register_type",
]
