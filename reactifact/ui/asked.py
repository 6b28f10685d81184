"""What a request asks for: names in a query, found in the store; and the addresses of other pages.

Names stand in the query and never in the path, because a session, a branch and an artifact may have any name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from urllib.parse import parse_qsl, urlencode

from .._html import Child, Html, el
from .._store._history.log import Entry, entry
from .._store._history.revset import Head, find_head, heads, resolve
from .._store.commits import read_roots
from .._store.index import Indexes
from .._store.ledger import Ledger
from .._store.names import ledger_ref
from .._store.object_db import Database, Staging
from .._store.objects import Oid
from .._store.state import State
from ..errors import UnknownRevision

_OID = re.compile(r"[0-9a-f]{40}")
_WITHIN = "in"


class BadQuery(Exception):
    """A query that names nothing this page can show; its text says what to do."""


def url(path: str, /, **query: str | int | None) -> str:
    """Return an address of this server, without what is `None`."""
    known = {name.rstrip("_"): str(value) for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(known, errors='surrogatepass')}" if known else path


def within(**query: str | int | None) -> Html:
    """Return the hidden field of a form that brings names along.

    They are encoded, since a browser changes what stands in a field: the ends of its lines.
    """
    return el("input", type="hidden", name=_WITHIN, value=url("", **query).lstrip("?"))


@dataclass(frozen=True)
class Asked:
    """One request: the store, its query, the time, and whether this browser may write."""

    database: Database
    query: Mapping[str, str]
    now: datetime
    secret: str | None = None
    """What a form has to send along to be believed; `None` where nothing may be written."""

    @staticmethod
    def parsed(text: str) -> dict[str, str]:
        """Return a query, together with what a hidden field of its form carried."""
        own = dict(parse_qsl(text, errors="surrogatepass"))
        return {**dict(parse_qsl(own.pop(_WITHIN, ""), errors="surrogatepass")), **own}

    def text(self, name: str) -> str | None:
        """Return a part of the query, `None` where it is absent or empty."""
        return self.query.get(name) or None

    def required(self, name: str, what: str) -> str:
        """Return a part of the query. Raises `BadQuery`."""
        found = self.text(name)
        if found is None:
            raise BadQuery(f"The address names no {what}: begin at the list of sessions.")
        return found

    def oid(self, name: str) -> Oid | None:
        """Return an object's id from the query. Raises `BadQuery` for anything else."""
        found = self.text(name)
        if found is not None and not _OID.fullmatch(found):
            raise BadQuery(f"{name}={found!r} is not the id of an object: forty hex digits are.")
        return found

    def number(self, name: str) -> int:
        """Return a number from the query, 0 where there is none. Raises `BadQuery`."""
        found = self.text(name) or "0"
        if not found.isascii() or not found.isdigit() or len(found) > 9:
            raise BadQuery(f"{name}={found!r} is not a number.")
        return int(found)

    # -- what it names -----------------------------------------------------------------------------

    @cached_property
    def session(self) -> str:
        """The session. Raises `BadQuery`."""
        return self.required("s", "session")

    @cached_property
    def head(self) -> Head:
        """The branch: the one named, else the session's own, else its only one. Raises `UnknownRevision`."""
        found = find_head(self.database, self.session, self.text("b"))
        if found.is_ledger:
            raise UnknownRevision(
                f"{found.name} is the ledger of the session: its deliveries are on the outbox board"
            )
        return found

    @cached_property
    def branches(self) -> list[Head]:
        """The branches of the session, without its ledger."""
        return [head for head in heads(self.database, self.session) if not head.is_ledger]

    @cached_property
    def commit(self) -> Oid:
        """The commit whose state is shown: `at`, else the newest of the branch."""
        return self.oid("at") or self.head.commit

    def point(self, name: str) -> Oid:
        """Return the commit that a text in the query names (an id, a branch, a tag, `v3`).

        Raises `UnknownRevision`.
        """
        text = self.required(name, f"point {name!r}")
        if _OID.fullmatch(text):
            return text
        return resolve(self.database, text, session=self.session, branch=self.head.branch)

    def state(self, commit: Oid | None = None) -> State:
        """Return the state of a commit. Nothing of it is read yet."""
        roots = read_roots(self.database, commit or self.commit)
        return State(Staging(self.database), roots, 0, Indexes())

    @cached_property
    def ledger(self) -> Ledger:
        """What was delivered for the session, up to now."""
        found = Ledger(self.database, self.session)
        found.refresh()
        return found

    @cached_property
    def ledger_tip(self) -> Oid | None:
        """The newest commit of the session's ledger."""
        ref = ledger_ref(self.session)
        return self.database.backend.refs(ref).get(ref)

    def entry(self, commit: Oid) -> Entry:
        """Return a commit. Raises `MissingObject`, and `BadQuery` for an object of another kind."""
        if self.database.read(commit).kind != "commit":
            raise BadQuery(f"{commit} is not a commit.")
        return entry(self.database, commit)

    # -- addresses ---------------------------------------------------------------------------------

    def url(self, path: str, /, **query: str | int | None) -> str:
        """Return an address in the same session and on the same branch, unless others are named."""
        here = {"s": self.text("s"), "b": self.text("b")}
        return url(path, **{**here, **query})

    def link(self, text: Child, path: str, class_: str | None = None, /, **query: str | int | None) -> Html:
        """Return a link to such an address."""
        return el("a", text, href=self.url(path, **query), class_=class_)

    def artifact(self, artifact_id: str, at: Oid | None = None) -> Html:
        """Return a link to an artifact, as it is or as it was at a commit."""
        return self.link(artifact_id, "/artifact", "id", id=artifact_id, at=at or self.text("at"))
