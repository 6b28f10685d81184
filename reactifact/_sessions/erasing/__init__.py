"""Erasing what a person asks for: what belongs to it, which refs move, the order, clones that hold it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..._store.object_db import Database
from ...resources import RuntimeResources
from ...threads import in_thread

if TYPE_CHECKING:
    from ...erasure import Erasure


class Erases:
    """What a store of sessions, and of branches, erases."""

    database: Database

    async def erase(
        self,
        session_id: str,
        *artifact_ids: str,
        by: str,
        reason: str = "",
        fields_only: bool = False,
        dry_run: bool = False,
        wait: float = 30.0,
        resources: RuntimeResources | None = None,
    ) -> Erasure:
        """Remove artifacts, in all their versions, from all that the store keeps of a session and its forks.

        The history is made anew without them: commits get other ids, Change-Ids and versions stay, and
        `verify_history` holds. Actions and questions that came from them, or name them, go too, with their
        names in the ledger, kept results and waiting events. What is left is a tombstone: of which kind it
        was, when it went, and by whose wish (`by`, `reason`). Nothing of it can be undone; what moves of
        branches left behind before goes as well. Then every object that no ref reaches is removed from
        the store, as by `prune(grace=0, rewrite=True)`, in a bare repository too.

        With `fields_only` the fields marked as `reactifact.erasure.Personal` get their placeholder in every
        version, and the rest stays. With `dry_run` nothing is done, and the report says what would be.

        Killed at any moment, it has either not begun or is finished by the next opening of the store. Waits
        `wait` seconds for whoever runs a branch or drains. Raises `SessionBusy`, `UnknownRevision` for an
        id that the session never held, `ErasureRefused` where a model does not take a placeholder or marks no
        field, `TypeNotFoundError`, `ProtectedBranch`, and `StoreError` for a store that cannot remove bytes.
        """
        from .erase import erase
        from .found import Wish

        clock = (resources or RuntimeResources()).clock
        wish = Wish(session_id, tuple(dict.fromkeys(artifact_ids)), fields_only, by, reason, clock.now())
        return await in_thread(partial(erase, self.database, wish, dry_run=dry_run, wait=wait))
