"""Compacts session `s` of a store in a process of its own, and kills itself at one step of the write.

compaction_child.py PATH STEP   die at the STEP-th step; print how many there were if it came to the end
"""

from __future__ import annotations

import sys

from crash_support import Dying

from reactifact._store._backends.git.backend import GitBackend
from reactifact._store.branch import Branch
from reactifact._store.object_db import Database
from reactifact.context import Context


def main(path: str, last: int) -> None:
    backend = GitBackend(path, durability="os")
    line = Branch.load(Database(backend), "s", "main")
    assert line is not None
    context = Context.over(line)
    backend.fault = dying = Dying(last)
    context.compact(keep_commits=2)
    print(dying.seen.total())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
