"""Tags: names for commits of a session that never move.

Owns their listing and their making. What a text like `session/name` means is `revisions`'.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import Contention, InvalidName, NameTaken
from .database import Database
from .names import branch_ref, is_cut, parse_tag_ref, tag_ref
from .objects import Oid
from .protocol import RefUpdate
from .records import own_record

_TAGS = "refs/tags/"


class Tag(NamedTuple):
    """A name of a session and the commit that it stands for."""

    session: str
    name: str
    commit: Oid

    @property
    def ref(self) -> str:
        """The full name of its ref, which git and every verb understand."""
        return tag_ref(self.session, self.name)


def tags(database: Database, session: str | None = None) -> list[Tag]:
    """Return the tags of one session or of all, sorted; tags that others made are left out.

    Raises `InvalidName` for a session id that cannot be stored.
    """
    prefix = _TAGS if session is None else tag_ref(session, "x").rpartition("/")[0] + "/"
    found = (_tag(database, ref, oid) for ref, oid in database.backend.refs(prefix).items())
    return sorted(tag for tag in found if tag is not None)


def _tag(database: Database, ref: str, oid: Oid) -> Tag | None:
    parsed = parse_tag_ref(ref)
    if parsed is None or database.read(oid).kind != "commit":
        return None
    record = own_record(database, oid)
    if record is None:
        return None
    session, name = parsed  # a session that was cut is whole in the record
    return Tag(record.session if session is None else session, name, oid)


def make_tag(database: Database, session: str, name: str, commit: Oid) -> Tag:
    """Name a commit of a session; naming it so again changes nothing.

    Raises `NameTaken` where the name stands for another commit or for a branch, `InvalidName` for
    one that cannot be stored.
    """
    ref = tag_ref(session, name)
    if is_cut(ref.rpartition("/")[2]):
        raise InvalidName(f"{name[:50]!r}... is too long for a tag: its name must be readable from its ref")
    branch = branch_ref(session, name)
    if branch in database.backend.refs(branch):
        raise NameTaken(f"session {session!r} has a branch {name!r}: choose another name for the tag")
    try:
        database.backend.write({}, [RefUpdate(ref, None, commit)])
    except Contention:
        held = database.backend.refs(ref).get(ref)
        if held is None:
            raise
        if held != commit:
            raise NameTaken(
                f"tag {name!r} of session {session!r} stands for {held[:12]}, and tags do not move: "
                f"choose another name"
            ) from None
    return Tag(session, name, commit)
