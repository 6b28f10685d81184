"""`HEAD` of a bare repository: pointed at a branch that exists, so that `git log` and `clone` work.

It owns that one file. Which branches exist is asked of `refs`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence

from ...errors import DamagedRef
from ..files import read_plain, sync_folder
from ..protocol import RefUpdate
from .lockfile import GitLocks
from .pack_folder import Step
from .refs import RefFolder

_HEAD = "HEAD"
_BRANCHES = "refs/heads/"
_LEDGER = "/%outbox"
_MAIN = "/main"
_DETACHED = re.compile(rb"[0-9a-f]{40}\s*")


class Head:
    """The `HEAD` of one repository. A detached one is left as it is."""

    def __init__(self, git_dir: str, refs: RefFolder, locks: GitLocks, *, sync: bool, step: Step) -> None:
        self._path = f"{git_dir}/{_HEAD}"
        self._refs = refs
        self._locks = locks
        self._sync = sync
        self._step = step

    def prepare(self, planned: Sequence[RefUpdate]) -> None:
        """Point `HEAD` where it can stay: at the first branch to come, away from one about to go.

        Whoever is killed between two moves then leaves it at a branch, if there is any.
        """
        branches = [update for update in planned if _may_lead(update.name)]
        going = dict.fromkeys(update.name for update in branches if update.new is None)  # in order
        coming = [update.name for update in branches if update.expected is None and update.new is not None]
        if (going or coming) and self._better(going, coming) is not None:
            with self._locks.between_ours(_HEAD, _HEAD):
                if (target := self._better(going, coming)) is not None:
                    self._point(target)

    def follow(self, moved: Sequence[RefUpdate]) -> None:
        """Point `HEAD` anew where these moves left it without a branch, or gave it its first."""
        names = [
            update.name
            for update in moved
            if update.name.startswith(_BRANCHES) and (update.expected is None or update.new is None)
        ]
        if not names or not self._dangles():
            return
        with self._locks.between_ours(_HEAD, _HEAD):
            if self._dangles() and (target := self._choose(names)) is not None:
                self._point(target)

    def _better(self, going: Collection[str], coming: Sequence[str]) -> str | None:
        """Return where `HEAD` should point before branches go and come, `None` where it may stay."""
        target = self._target()
        if target in going:
            return self._choose(going, going)
        if coming and target is not None and not self._exists(target):
            mains = (name for name in coming if name.endswith(_MAIN))
            return self._choose(coming, going) or next(mains, coming[0])
        return None

    def _target(self) -> str | None:
        """Return the branch that `HEAD` points at, `None` for a detached one, empty for a damaged one."""
        content = read_plain(self._path)
        if not content.startswith(b"ref:"):
            return None if _DETACHED.fullmatch(content) else ""
        return content[4:].strip().decode("utf-8", "surrogateescape")

    def _dangles(self) -> bool:
        target = self._target()
        return target is not None and not self._exists(target)

    def _exists(self, name: str) -> bool:
        try:
            return self._refs.read(name) is not None
        except DamagedRef:
            return False

    def _choose(self, moved: Collection[str], going: Collection[str] = ()) -> str | None:
        """Return a branch that exists and is not one of `going`; best one beside those that moved."""
        for name in moved:
            for candidate in (name.rpartition("/")[0] + _MAIN, name):
                if candidate not in going and _may_lead(candidate) and self._exists(candidate):
                    return candidate
        other: str | None = None
        for name in self._branches():
            if name in going or not _may_lead(name):
                continue
            if name.endswith(_MAIN):
                return name
            other = other or name
        return other

    def _branches(self) -> Iterator[str]:
        yield from self._refs.packed_under(_BRANCHES)
        yield from self._refs.walk(_BRANCHES)

    def _point(self, target: str) -> None:
        with self._locks.file(_HEAD) as lock:
            lock.write(f"ref: {target}\n".encode("utf-8", "surrogateescape"))
            lock.commit()
        if self._sync:
            sync_folder(os.path.dirname(self._path))
        self._step("head-pointed")


def _may_lead(name: str) -> bool:
    """Tell whether `HEAD` may point at a ref: at a branch that is no ledger."""
    return name.startswith(_BRANCHES) and not name.endswith(_LEDGER)
