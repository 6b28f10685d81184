"""The cost of looking back: a state rebuilt and a history checked, by the number of commits.

A session of so many turns is replayed at its newest and at its oldest version and then checked as a
whole (`replay --verify-all`), over a backend that counts what is read and refuses every write. No agent
and no dispatcher exists in the process that measures. What is claimed is that the check reads every
object about once a commit that wrote it, and that its time an object does not grow.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import anyio

from reactifact._store._backends.git.backend import GitBackend
from reactifact._store.object_db import Database
from reactifact._store.objects import GitObject, Oid
from reactifact._store.protocol import RefUpdate
from reactifact.replay import replay_context, replay_summary, verify_history

from .harness import Claim, Report, Row, Settings
from .turn import Shop

NAME = "replay"
SUMMARY = "a state rebuilt and a whole history checked, by the number of commits"
SIZES = (1_000, 5_000)
"""Turns; each makes two commits on the branch and one in the ledger."""
ALLOWED_RATIO = 1.5


class ReadOnly(GitBackend):
    """A bare repository that counts what is read and refuses to be written."""

    objects = 0

    def read_many(self, oids: Iterable[Oid]) -> dict[Oid, GitObject]:
        wanted = list(oids)
        self.objects += len(wanted)
        return super().read_many(wanted)

    def write(self, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate] = ()) -> None:
        raise RuntimeError("looking back wrote something")


class Measured:
    """What one size came to."""

    def __init__(self, path: Path, turns: int) -> None:
        self.path = path
        self.turns = turns
        self.newest, self.newest_read = self._replay(None)
        self.oldest, self.oldest_read = self._replay(1)
        backend = ReadOnly(path, read_only=True)
        # the sizes are measured one after the other, on a machine that others use too
        started = time.process_time()
        report = verify_history(Database(backend), "shop")
        self.checked = time.process_time() - started
        self.checked_read = backend.objects
        self.commits = report.commits
        backend.close()
        if not report.ok or report.objects != backend.objects:
            raise RuntimeError(f"the check went wrong: {report}")

    def _replay(self, version: int | None) -> tuple[float, int]:
        backend = ReadOnly(self.path, read_only=True)

        async def replay() -> int:
            context = await replay_context(backend, "shop", version=version)
            return int(replay_summary(context)["version"])

        started = time.perf_counter()
        found = anyio.run(replay)
        took = time.perf_counter() - started
        if found != (self.turns if version is None else version):
            raise RuntimeError(f"version {found} was replayed")
        backend.close()
        return took, backend.objects


async def _build(path: Path, turns: int) -> None:
    shop = Shop(path, "os")
    await shop.open()
    for _ in range(turns):
        await shop.turn()
    shop.backend.close()


def run(settings: Settings) -> Report:
    """Build the stores and measure."""
    sizes = settings.sizes or SIZES
    found: list[Measured] = []
    for turns in sizes:
        path = settings.folder / f"{turns}.git"
        settings.progress(f"building a session of {turns:,} turns")
        anyio.run(_build, path, turns)
        settings.progress("looking back")
        found.append(Measured(path, turns))
    each = [one.checked / one.checked_read for one in found]
    reads = [one.checked_read / one.commits for one in found]
    rows = [
        Row("commits, branch and ledger", "", tuple(float(one.commits) for one in found)),
        Row("newest state and summary", "ms", tuple(one.newest * 1e3 for one in found)),
        Row("objects read for it", "", tuple(float(one.newest_read) for one in found)),
        Row("state of version 1 and summary", "ms", tuple(one.oldest * 1e3 for one in found)),
        Row("objects read for it", "", tuple(float(one.oldest_read) for one in found)),
        Row("whole history checked, processor time", "s", tuple(one.checked for one in found)),
        Row("objects read and hashed", "", tuple(float(one.checked_read) for one in found)),
        Row("check of one commit", "ms", tuple(one.checked / one.commits * 1e3 for one in found)),
        Row("check of one object", "µs", tuple(one * 1e6 for one in each)),
    ]
    claims = [
        Claim("processor time of the check an object, most over fewest", each[-1] / each[0], ALLOWED_RATIO),
        Claim("objects read a commit, most over fewest", reads[-1] / reads[0], ALLOWED_RATIO),
    ]
    return Report(NAME, SUMMARY, {"folder": str(settings.folder)}, "turns", sizes, rows, claims)
