"""A second process beside the test of the failure matrix. Run by `test_failure_matrix`.

failure_child.py hold STORE        hold the run lock of the session, print `ready`, wait to be killed
failure_child.py stop STORE        print `ready` in the middle of moving a ref, and wait to be killed
failure_child.py as-nobody STORE   open the store as a user without rights; print `opened` or the error
"""

from __future__ import annotations

import os
import signal
import sys

import anyio
from failure_scenario import SESSION
from support import Note

from reactifact import SessionStore
from reactifact.errors import ReactifactError


async def hold(place: str) -> None:
    async with await SessionStore(place).open(SESSION, wait=0):
        print("ready", flush=True)
        await anyio.sleep_forever()


async def stop(place: str) -> None:
    store = SessionStore(place)

    def fault(step: str) -> None:
        if step == "ref-locked":
            print("ready", flush=True)
            signal.pause()

    store.database.backend.fault = fault  # type: ignore[attr-defined]
    session = await store.open(SESSION)
    session.context.create(Note(text="never written"), id="note:never")
    await session.save()


def as_nobody(place: str) -> None:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    try:
        with SessionStore(place).database.backend.lock("made by the first lock"):
            pass
    except ReactifactError as error:
        print(type(error).__name__, error)
    else:
        print("opened")


if __name__ == "__main__":
    verb, where = sys.argv[1:]
    if verb == "as-nobody":
        as_nobody(where)
    else:
        anyio.run({"hold": hold, "stop": stop}[verb], where)
