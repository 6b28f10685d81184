"""Erasing artifacts, or their personal fields, from all that a store keeps of a session and of its forks.

Owns the marker by which an erasure that was killed is finished, and the order of things. What goes is
`found`'s, which refs move `plan`'s, how a commit is made anew `_store/_history/erasing`'s, how bytes go for
good the backend's (`collect`).

The marker is written first, and holds all that is needed to go on. From then on the next opening of the
store, or the next erasure, finishes what was begun; before, nothing has happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import Any

from ..._context.rebase import write_adopted
from ..._store import canonical
from ..._store._history.erasing import Spec
from ..._store._history.tombstones import ERASING
from ..._store.names import encode_name
from ..._store.object_db import Database
from ..._store.objects import Oid, object_id
from ..._store.protocol import Collectable, RefUpdate
from ...erasure import ErasedArtifact, Erasure
from ...errors import Contention, ErasureRefused, SessionBusy, StoreError, UnknownRevision
from ...logging import get_logger
from .found import Wish
from .plan import Plan, made, planned

log = get_logger("reactifact.erasure")

_ATTEMPTS = 8


def erase(database: Database, wish: Wish, *, dry_run: bool = False, wait: float = 30.0) -> Erasure:
    """Erase; see `SessionStore.erase`. Runs in a worker thread."""
    backend = database.backend
    if not isinstance(backend, Collectable):
        raise StoreError(
            f"{backend.location} is a {type(backend).__name__}, which cannot remove what no ref reaches (it "
            f"has no `collect`): nothing can be erased from it; bring it to another store with export_store"
        )
    if not wish.ids:
        raise ErasureRefused("nothing was named: give the id of at least one artifact")
    backend.require_collectable()
    if dry_run:
        return planned(database, wish).report(is_dry_run=True)
    with backend.lock("erase", wait=wait):
        _finish_held(database, wait)
        while True:
            locks = planned(database, wish).locks()
            with _locked(database, locks, wait):
                plan = _adopted(database, planned(database, wish))
                if set(plan.locks()) <= set(locks):
                    return _carried_out(database, plan, _planned_again)
            # a branch was made meanwhile


def _planned_again(database: Database, plan: Plan) -> Plan:
    """Plan once more after a writer that needs no lock: what was found before, and what it added."""
    try:
        fresh = planned(database, plan.wish)
    except (UnknownRevision, ErasureRefused):  # all that held it has moved by now
        return _same_again(database, plan)
    known = {one.id for one in plan.listed}
    listed = [*plan.listed, *(one for one in fresh.listed if one.id not in known)]
    folders = {**plan.folders, **fresh.folders}
    spec = plan.spec.with_more(fresh.spec)
    return made(database, plan.wish, spec, listed, folders, plan.first | fresh.first)


def _same_again(database: Database, plan: Plan) -> Plan:
    return made(database, plan.wish, plan.spec, plan.listed, plan.folders, plan.first)


def _adopted(database: Database, plan: Plan) -> Plan:
    """Adopt what somebody made with git on the branches, so that it is erased from there as well."""
    before = database.backend.refs("")
    for head in plan.branches:
        if not head.is_ledger:
            write_adopted(database, head.session, head.branch)
    return plan if database.backend.refs("") == before else planned(database, plan.wish)


def _locked(database: Database, names: Sequence[str], wait: float) -> ExitStack:
    stack = ExitStack()
    try:
        for name in names:
            stack.enter_context(database.backend.lock(name, wait=wait))
    except BaseException:
        stack.close()
        raise
    return stack


def _carried_out(database: Database, plan: Plan, again: Callable[[Database, Plan], Plan]) -> Erasure:
    """Write the marker, the new history and the tombstones, then remove the bytes. Callers hold the locks.

    Where somebody who needs no lock moved a ref, it is planned `again`.
    """
    report = plan.report()
    marker, ended = ERASING + encode_name(plan.wish.session), object_id("blob", _COLLECTING)
    for left in reversed(range(_ATTEMPTS)):
        held = database.backend.refs(marker).get(marker)
        begun = plan.staged.put("blob", _marker(plan))
        plan.staged.put("blob", _COLLECTING)
        if held != begun:
            database.write({begun: plan.staged.objects[begun]}, [RefUpdate(marker, held, begun)])
        wanted = plan.staged.reachable(move.new for move in plan.moves if move.new is not None)
        objects = {oid: item for oid, item in plan.staged.objects.items() if oid in {*wanted, ended}}
        try:
            database.write(objects, [*plan.moves, RefUpdate(marker, begun, ended)])
        except Contention:
            if not left:
                raise
            plan = again(database, plan)
        else:
            break
    _collected(database, marker, ended)
    log.info(
        "erased",
        extra={
            "session": plan.wish.session,
            "erased": [one.token for one in plan.listed],
            "by": plan.wish.by,
        },
    )
    return report


_COLLECTING = canonical.encode({"phase": "collecting"})


def _marker(plan: Plan) -> bytes:
    wish = plan.wish
    return canonical.encode(
        {
            "phase": "rewriting",
            "session": wish.session,
            "by": wish.by,
            "reason": wish.reason,
            "when": wish.when.isoformat(),
            "fields_only": wish.fields_only,
            "folders": plan.folders,
            "first": sorted(plan.first),
            "spec": plan.spec.to_dict(),
            "listed": [
                [one.id, one.token, one.type_id, one.versions, one.because, list(one.fields)]
                for one in plan.listed
            ],
        }
    )


def _collected(database: Database, marker: str, ended: Oid) -> None:
    assert isinstance(database.backend, Collectable)
    database.backend.collect()
    database.forget()
    database.write({}, [RefUpdate(marker, ended, None)])


def finish(database: Database, *, wait: float = 0.0) -> bool:
    """Finish the erasures that were killed, if there are any; return whether none is left.

    One that somebody is at, or whose branches somebody runs, is left alone. Blocks.
    """
    if not database.backend.refs(ERASING):
        return True
    try:
        with database.backend.lock("erase", wait=wait):
            _finish_held(database, wait)
    except SessionBusy as error:
        log.warning("an erasure is not finished yet", extra={"error": f"{error}"})
        return False
    return True


def _finish_held(database: Database, wait: float) -> None:
    """Finish what was killed. The lock `erase` is held, so nobody is at it."""
    for marker, held in database.backend.refs(ERASING).items():
        record: Any = canonical.decode(database.read(held).data)
        if record["phase"] == "collecting":
            _collected(database, marker, held)
            continue
        listed = [
            ErasedArtifact(name, token, kind, count, because, tuple(fields))
            for name, token, kind, count, because, fields in record["listed"]
        ]
        when = datetime.fromisoformat(record["when"])
        wish = Wish(
            record["session"],
            tuple(one.id for one in listed if not one.because),
            record["fields_only"],
            record["by"],
            record["reason"],
            when,
        )
        spec = Spec.from_dict(record["spec"])
        first = frozenset(record["first"])
        plan = made(database, wish, spec, listed, dict(record["folders"]), first)
        with _locked(database, plan.locks(), wait):
            _carried_out(database, _same_again(database, plan), _same_again)
