"""Ledgers that git fetched from other stores, below `refs/remotes/`, and what they add to our own.

Owns which of them belong to a session of ours, and the joining of those before anything relies on our ledger.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import MissingObject
from ..branch import MAIN
from ..commits import read_record
from ..graph import merge_bases
from ..ledger import Ledger
from ..names import LEDGER_BRANCH, branch_ref, encode_name, is_ledger_ref
from ..object_db import Database
from ..objects import Oid


def fetched_news(ledger: Ledger) -> dict[str, Oid]:
    """Return the refs of the fetched ledgers of a session that hold what our own lacks, as it was read."""
    backend = ledger.database.fetches
    if backend is None:
        return {}
    refs = backend.fetched_refs()
    own = f"/{encode_name(ledger.session)}/{LEDGER_BRANCH}"
    found = {ref: oid for ref, oid in refs.items() if ref.endswith(own) and not ledger.contains(oid)}
    return {ref: oid for ref, oid in found.items() if _is_related(ledger, oid, ref, refs)}


def join_fetched(database: Database, session: str) -> bool:
    """Bring what fetched ledgers know into that of the session, and write it; return whether there was any.

    Runs in a worker thread. Raises `Contention` after several lost races.
    """
    ledger = Ledger(database, session)
    ledger.refresh()
    for oid in fetched_news(ledger).values():
        ledger.merge(oid)
    if ledger.is_published:
        return False
    ledger.write()
    return True


def _is_related(ledger: Ledger, other: Oid, ref: str, refs: dict[str, Oid]) -> bool:
    """Tell whether a fetched ledger is of our session, and not of another that has the same id."""
    database = ledger.database
    folder = ref.removesuffix(LEDGER_BRANCH)
    theirs = [oid for name, oid in refs.items() if name.startswith(folder) and not is_ledger_ref(name)]
    theirs = [oid for oid in theirs if oid != other]
    try:
        if ledger.tip is not None and merge_bases(database, ledger.tip, other):
            return True
        prefix = branch_ref(ledger.session, MAIN).rpartition("/")[0] + "/"
        ours = [oid for name, oid in database.backend.refs(prefix).items() if not is_ledger_ref(name)]
        if not ours or not theirs:
            return bool(ours)
        return not roots_of(database, ours).isdisjoint(roots_of(database, theirs))
    except MissingObject:
        return True  # a shallow clone, which does not hold where it began


def roots_of(database: Database, commits: Iterable[Oid]) -> set[str]:
    """Return the changes that the lines of some commits began with. Costs their histories."""
    found = set()
    for commit in commits:
        root = commit
        while parents := database.commit(root).parents:
            root = parents[0]
        record = read_record(database, root)
        found.add(root if record is None else record.change)
    return found
