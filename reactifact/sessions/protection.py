"""Protected branches, for the layer of sessions: see `store/protection`.

`protect` gives the globs to the store's database, so that every context over it refuses to check out,
undo or compact a protected branch; `require_free` is for verbs that delete or reset one by name.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..store.database import Database
from ..store.protection import Protection


def protect(database: Database, patterns: Iterable[str]) -> None:
    """Protect the branches that globs of `session/branch` name, beside those protected already."""
    added = Protection.of(patterns)
    known = database.protection.patterns
    database.protection = Protection(tuple(dict.fromkeys([*known, *added.patterns])))


def require_free(database: Database, verb: str, session: str, branch: str) -> None:
    """Refuse `verb` on a protected branch. Raises `ProtectedBranch`."""
    database.protection.require_free(verb, session, branch)
