"""The writer that `test_gc_beside_writer` races against git: it says which commits were acknowledged.

    gc_child.py PATH ROUNDS PROTECT

Each round makes a branch of its own (so that nothing but its own ref keeps its commits alive), moves it, and
pauses in one of the two writes between pack, index and ref until git has come by, as a slow disk or a busy
machine would.
"""

from __future__ import annotations

import sys
from pathlib import Path

PAUSES = ("pack-written", "idx-renamed", "pack-placed", "ref-locked", "ref-written")


def main(path: str, rounds: int, protect: bool) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from building import commit

    from reactifact._store._backends.git.backend import GitBackend
    from reactifact._store.protocol import RefUpdate

    backend = GitBackend(path)
    backend._packs.protect = protect
    for number in range(rounds):
        paused = PAUSES[number % len(PAUSES)]

        def pause(step: str, paused: str = paused) -> None:
            if step == paused:
                print("paused", flush=True)
                sys.stdin.readline()

        ref, old = f"refs/heads/s{number}/main", None
        for turn in range(2):
            backend.fault = pause if turn == number // len(PAUSES) % 2 else None
            oid, objects = commit(f"round {number}, {turn}", *([] if old is None else [old]))
            backend.write(objects, [RefUpdate(ref, old, oid)])
            print("acknowledged", *objects, flush=True)
            old = oid


main(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "protect")
