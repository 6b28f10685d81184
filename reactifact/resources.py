"""The public path of resources."""

from __future__ import annotations

from .context.resources import ResourceKey, ResourceScope, RuntimeResources

__all__ = ["ResourceKey", "ResourceScope", "RuntimeResources"]
