"""A writer in a process of its own, to be killed, paused or raced by the tests beside it.

writer_child.py kill PATH STEP DURABILITY   write one commit on refs/heads/s/main, die at STEP
writer_child.py delete PATH NAME STEP       delete the ref NAME, die at STEP
writer_child.py open PATH                   open (or make) the store and write one ref of its own
writer_child.py hold PATH NAME              take the lock NAME, say so, and wait to be killed
writer_child.py maintain PATH STEP          merge packs, die at STEP
writer_child.py fill PATH BYTES             write with every file limited to BYTES bytes
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from typing import cast

from building import MAIN, blob, commit, put

from reactifact._store._backends.git.backend import GitBackend
from reactifact._store.protocol import Durability, RefUpdate
from reactifact.errors import StoreError


def dies_at(step: str) -> Callable[[str], None]:
    def fault(name: str) -> None:
        if name == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return fault


def main(action: str, path: str, *rest: str) -> None:
    if action == "kill":
        step, durability = rest
        backend = GitBackend(path, durability=cast(Durability, durability))
        backend.fault = dies_at(step)
        old = backend.refs(MAIN)[MAIN]
        oid, objects = commit("two", old)
        backend.write(objects, [RefUpdate(MAIN, old, oid)])
    elif action == "delete":
        name, step = rest
        backend = GitBackend(path)
        backend.fault = dies_at(step)
        backend.write({}, [RefUpdate(name, backend.refs()[name], None)])
    elif action == "open":
        put(GitBackend(path), f"refs/heads/child-{os.getpid()}/main", "one")
    elif action == "hold":
        with GitBackend(path).lock(rest[0]):
            print("held", flush=True)
            signal.pause()
    elif action == "fork":
        with GitBackend(path).lock("one"):
            if os.fork() == 0:
                for descriptor in (0, 1, 2):
                    os.close(descriptor)
                for _ in range(1000):
                    if os.path.exists(f"{path}/end"):
                        break
                    time.sleep(0.02)
                os._exit(0)
            print("forked", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    elif action == "maintain":
        backend = GitBackend(path)
        backend.fault = dies_at(rest[0])
        backend.maintain()
    elif action == "fill":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        backend = GitBackend(path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(rest[0]), resource.RLIM_INFINITY))
        try:
            backend.write(dict([blob(os.urandom(2 * int(rest[0])))]))
        except StoreError as error:
            print(error)


main(*sys.argv[1:])
