"""Erases from session `s` of a store in a process of its own, and kills itself at one step of the write.

erase_child.py PLACE STEP   die at the STEP-th step; print how many there were if it came to the end
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

from crash_support import Dying

from reactifact._sessions.erasing.erase import erase
from reactifact._sessions.erasing.found import Wish
from reactifact._sessions.stores import open_database

GONE = ("customer:zzyzx", "receipt:customer:zzyzx")


def main(place: str, last: int) -> None:
    database = open_database(place, durability="os")
    backend: Any = database.backend
    backend.fault = dying = Dying(last)
    erase(database, Wish("s", GONE, False, "officer", "request", datetime.now(UTC)))
    print(dying.seen.total())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
