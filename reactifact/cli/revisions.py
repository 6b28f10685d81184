"""From the names in a command to a commit: what the verbs with commits share."""

from __future__ import annotations

import re

from ..store.database import Database
from ..store.objects import Oid
from ..store.revisions import resolve
from .common import chosen_head

_VERSION = re.compile(r"v\d+")


def commit_named(database: Database, text: str, session: str | None, branch: str | None) -> Oid:
    """Return the commit that `text` names; a version counts on the branch that is meant.

    Raises `UnknownRevision`.
    """
    session, branch = scope_of(database, text, session, branch)
    return resolve(database, text, session=session, branch=branch)


def scope_of(
    database: Database, text: str, session: str | None, branch: str | None
) -> tuple[str | None, str | None]:
    """Return the session and the branch in which a text counts: a bare `vN` needs both."""
    if not _VERSION.fullmatch(text):
        return session, branch
    head = chosen_head(database, None, session, branch)
    return head.session, head.branch
