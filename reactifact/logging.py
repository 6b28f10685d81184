"""The public path of structured logging."""

from __future__ import annotations

from .logs import (
    RUN_FIELDS,
    ContextFilter,
    HumanFormatter,
    JSONFormatter,
    bind,
    configure_logging,
    current_context,
    get_logger,
    install_context_filter,
)

__all__ = [
    "RUN_FIELDS",
    "ContextFilter",
    "HumanFormatter",
    "JSONFormatter",
    "bind",
    "configure_logging",
    "current_context",
    "get_logger",
    "install_context_filter",
]
