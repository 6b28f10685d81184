"""The request a turn serves: a mapping that follows into everything the turn runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from types import MappingProxyType
from typing import Any

__all__ = ["current_request", "reset_request", "set_request"]


_EMPTY: Mapping[str, Any] = MappingProxyType({})
_request: ContextVar[Mapping[str, Any]] = ContextVar("reactifact_request", default=_EMPTY)


current_request: Callable[[], Mapping[str, Any]] = _request.get
"""Returns what `arun(request=)` was given; an empty mapping outside of a turn."""


def set_request(request: Mapping[str, Any] | None) -> Token[Mapping[str, Any]]:
    """Set the request; `None` inherits the present one. Give the token to `reset_request`."""
    return _request.set(_request.get() if request is None else request)


def reset_request(token: Token[Mapping[str, Any]]) -> None:
    """Take a `set_request` back."""
    _request.reset(token)
