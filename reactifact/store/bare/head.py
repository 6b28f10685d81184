"""`HEAD` of a bare repository: pointed at a branch that exists, so that `git log` and `clone` work.

It owns that one file. Which branches exist is asked of `refs`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from ...errors import Contention
from ..files import sync_folder
from ..locks import LockFolder
from ..protocol import RefUpdate
from .lockfile import LOCK_WAIT, lock_file
from .pack_folder import Step
from .refs import DamagedRef, RefFolder

_BRANCHES = "refs/heads/"
_LEDGER = "/%outbox"
_MAIN = "/main"


class Head:
    """The `HEAD` of one repository. A detached one is left as it is."""

    def __init__(self, git_dir: str, refs: RefFolder, locks: LockFolder, *, sync: bool, step: Step) -> None:
        self._path = f"{git_dir}/HEAD"
        self._refs = refs
        self._locks = locks
        self._sync = sync
        self._step = step

    def follow(self, moved: Sequence[RefUpdate]) -> None:
        """Point `HEAD` anew where these moves left it without a branch, or gave it its first."""
        names = [
            update.name
            for update in moved
            if update.name.startswith(_BRANCHES) and (update.expected is None or update.new is None)
        ]
        if not names or not self._dangles():
            return
        with self._locks.internal("HEAD", LOCK_WAIT) as had:
            if not had:
                raise Contention(f"{self._path} is held by other processes; retry")
            if self._dangles() and (target := self._choose(names)) is not None:
                self._point(target)

    def _dangles(self) -> bool:
        with open(self._path, "rb") as file:
            content = file.read()
        if not content.startswith(b"ref:"):
            return False
        target = content[4:].strip().decode("utf-8", "surrogateescape")
        return not self._exists(target)

    def _exists(self, name: str) -> bool:
        try:
            return self._refs.read(name) is not None
        except DamagedRef:
            return False

    def _choose(self, moved: Iterable[str]) -> str | None:
        for name in moved:
            for candidate in (name.rpartition("/")[0] + _MAIN, name):
                if not candidate.endswith(_LEDGER) and self._exists(candidate):
                    return candidate
        other: str | None = None
        for name in self._branches():
            if name.endswith(_MAIN):
                return name
            if other is None and not name.endswith(_LEDGER):
                other = name
        return other

    def _branches(self) -> Iterator[str]:
        yield from self._refs.packed_under(_BRANCHES)
        yield from self._refs.walk(_BRANCHES)

    def _point(self, target: str) -> None:
        with lock_file(self._path, sync=self._sync) as lock:
            lock.write(f"ref: {target}\n".encode("utf-8", "surrogateescape"))
            lock.commit()
        if self._sync:
            sync_folder(os.path.dirname(self._path))
        self._step("head-pointed")
