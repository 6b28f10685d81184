"""A user of a store in a process of its own, to be killed or raced by the tests beside it.

store_child.py kill PLACE STEP            write one commit on refs/heads/s/main, die at STEP
store_child.py prune PLACE STEP           remove all that no ref reaches, die at STEP
store_child.py append PLACE REF COUNT     append commits to a ref, racing others, and print each id
store_child.py hold PLACE NAME            take the lock NAME, say so, and wait to be killed
store_child.py values PLACE NAME COUNT    open the place anew for each of COUNT values, and set it
store_child.py read PLACE                 print the refs, or the error that opening for reading gives
store_child.py fill PLACE BYTES           write with every file limited to BYTES bytes, print the error
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from typing import Any

import anyio
from building import MAIN, blob, commit, put

from reactifact._sessions.stores import open_database
from reactifact._store.protocol import RefUpdate
from reactifact.errors import Contention, StoreError


def main(action: str, place: str, *rest: str) -> None:
    backend: Any
    if action == "kill":
        backend = open_database(place).backend
        old = backend.refs(MAIN)[MAIN]
        oid, objects = commit("two", old)

        def fault(step: str) -> None:
            if step == rest[0]:
                os.kill(os.getpid(), signal.SIGKILL)

        backend.fault = fault
        backend.write(objects, [RefUpdate(MAIN, old, oid)])
    elif action == "prune":
        backend = open_database(place).backend
        backend.fault = lambda step: os.kill(os.getpid(), signal.SIGKILL) if step == rest[0] else None
        backend.prune(grace=0)
    elif action == "append":
        backend = open_database(place).backend
        ref, count = rest[0], int(rest[1])
        done = 0
        while done < count:
            old = backend.refs(ref).get(ref)
            try:
                oid = put(backend, ref, f"{os.getpid()}.{done}", old)
            except Contention:
                continue
            done += 1
            print(oid, flush=True)
    elif action == "hold":
        backend = open_database(place).backend
        with backend.lock(rest[0]):
            print("held", flush=True)
            signal.pause()
    elif action == "values":
        for number in range(int(rest[1])):
            backend = open_database(place).backend
            anyio.run(backend.set, f"{rest[0]}.{number}", {"number": number, "filler": "x" * 5000})
            backend.close()
    elif action == "read":
        try:
            print(open_database(place, read_only=True).backend.refs())
        except StoreError as error:
            print(f"{type(error).__name__}: {error}")
    elif action == "fill":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        backend = open_database(place).backend
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(rest[0]), resource.RLIM_INFINITY))
        try:
            backend.write(dict([blob(os.urandom(2 * int(rest[0])))]))
        except StoreError as error:
            print(error)


main(*sys.argv[1:])
