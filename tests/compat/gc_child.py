"""The writer that `test_gc_beside_writer` races against git: it says which commits were acknowledged.

    gc_child.py PATH ROUNDS PROTECT

Each round writes a commit on a branch of its own (so that nothing but its own ref keeps it alive) and
pauses between pack, index and ref until git has come by, as a slow disk or a busy machine would.
"""

from __future__ import annotations

import sys
from pathlib import Path

PAUSES = ("pack-renamed", "idx-renamed", "pack-dir-synced", "ref-locked", "ref-written")


def main(path: str, rounds: int, protect: bool) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from building import commit

    from reactifact._store._backends.git.backend import GitBackend
    from reactifact._store.protocol import RefUpdate

    backend = GitBackend(path, durability="os")
    backend._packs.protect = protect
    for number in range(rounds):
        paused = PAUSES[number % len(PAUSES)]

        def pause(step: str, paused: str = paused) -> None:
            if step == paused:
                print("paused", flush=True)
                sys.stdin.readline()

        backend.fault = pause
        oid, objects = commit(f"round {number}")
        backend.write(objects, [RefUpdate(f"refs/heads/s{number}/main", None, oid)])
        print("acknowledged", *objects, flush=True)


main(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "protect")
