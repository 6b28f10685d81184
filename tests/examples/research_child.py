"""The research example in processes that are killed after a number of writes. Run by `test_research_killed`.

Each line of stdin is `{"store": PLACE, "notes": FILE, "kill": N}`: a process is forked that runs the example
to its end, or kills itself right after the N-th write of the store (0: never). Each line of stdout says how
it ended. The process itself only imports and forks, so that a point costs no start.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio

from examples.research import main as example
from reactifact._store.branch import Branch


class Staggered(example.PaidModel):
    """A model whose calls end one after another, so that each may be the one before a kill."""

    async def __call__(self, prompt: str) -> str:
        word, _, number = prompt.partition(" ")
        if word == "find":
            await anyio.sleep(0.004 * int(number))
        return await super().__call__(prompt)


def dying_after(count: int) -> None:
    """Let this process die right after that many writes."""
    write, done = Branch.write, 0

    def counted(self: Branch, publication: Any) -> None:
        nonlocal done
        write(self, publication)
        done += 1
        if done == count:
            os.kill(os.getpid(), signal.SIGKILL)

    Branch.write = counted  # type: ignore[method-assign]


def run(point: dict[str, Any]) -> None:
    example.PaidModel = Staggered  # type: ignore[misc]
    if point["kill"]:
        dying_after(point["kill"])
    anyio.run(example.research, point["store"], Path(point["notes"]), 20, 0.0, "mail")


def main() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                run(json.loads(line))
                code = 0
            finally:
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        print("killed" if os.WIFSIGNALED(status) else f"ended {os.WEXITSTATUS(status)}", flush=True)


if __name__ == "__main__":
    main()
