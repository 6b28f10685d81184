"""The public path of request correlation."""

from __future__ import annotations

from .authoring.request import current_request, reset_request, set_request

__all__ = ["current_request", "reset_request", "set_request"]
