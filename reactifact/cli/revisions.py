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
    if _VERSION.fullmatch(text):
        head = chosen_head(database, None, session, branch)
        return resolve(database, text, session=head.session, branch=head.branch)
    return resolve(database, text, session=session, branch=branch)
