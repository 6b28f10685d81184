"""The public path of backends."""

from __future__ import annotations

from .store.bare import GitBackend
from .store.kv import FileKVBackend, InMemoryKVBackend, KVBackend

__all__ = ["FileKVBackend", "GitBackend", "InMemoryKVBackend", "KVBackend"]
