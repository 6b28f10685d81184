"""A subject: one store in a process of its own, told over a pipe what to do.

Owns the process, so that the memory, the open files and the garbage collection of one store do not
weigh on the figures of another. What is measured stands in `turn`.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

Serve = Callable[..., None]


class SubjectFailed(Exception):
    """The process of a subject ended; its own error stands above, on stderr."""


class Subject:
    """A process that runs `serve(connection, *args)` and answers one request at a time."""

    def __init__(self, serve: Serve, *args: Any) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._connection, theirs = spawn.Pipe()
        self._process = spawn.Process(target=serve, args=(theirs, *args), daemon=True)
        self._process.start()
        theirs.close()

    def send(self, request: str, *args: Any) -> None:
        """Send a request and do not wait for its answer."""
        self._connection.send((request, *args))

    def answer(self) -> Any:
        """Wait for the answer to the oldest request. Raises `SubjectFailed`."""
        try:
            return self._connection.recv()
        except EOFError:
            self._process.join()
            raise SubjectFailed(
                f"the measured process ended with status {self._process.exitcode}; see its error above"
            ) from None

    def ask(self, request: str, *args: Any) -> Any:
        """Send a request and return its answer. Raises `SubjectFailed`."""
        self.send(request, *args)
        return self.answer()

    def __enter__(self) -> Subject:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def requests(connection: Connection) -> Any:
    """Yield the requests that arrive, until the other side closes."""
    while True:
        try:
            yield connection.recv()
        except EOFError:
            return
