"""The default store: a bare git repository. The only package that imports pygit2."""

from __future__ import annotations

from pygit2 import Repository

from .backend import GitBackend

__all__ = ["GitBackend", "Repository"]
