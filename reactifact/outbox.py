"""The public path of the outbox: how it stands, and a dispatcher that tries again."""

from __future__ import annotations

from .context.outbox_status import ActionStatus, OutboxStatus, actions, outbox_status
from .runtime.dispatching import RetryingDispatcher

__all__ = ["ActionStatus", "OutboxStatus", "RetryingDispatcher", "actions", "outbox_status"]
