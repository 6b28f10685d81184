"""A TCP proxy before a server that is some way off: each direction takes longer, and trips are counted.

`python distance.py PORT SECONDS` prints the port it listens on, and for each line it is given how often
it was asked something and answered before more was asked. It ends with its standard input. Bytes are passed
on in the order and at the distance in time in which they came: what is sent in one go arrives in one go.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import IO

_AT_ONCE = 1 << 20


class Distance:
    """Listens on `port`, and stands between who connects there and a server on this machine."""

    def __init__(self, server_port: int, seconds: float) -> None:
        self.round_trips = 0
        self._server_port = server_port
        self._seconds = seconds
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections; those there are end with their two sides."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                asked = threading.Event()
                self._carry(client, server, asked, is_question=True)
                self._carry(server, client, asked, is_question=False)

    def _carry(
        self, source: socket.socket, target: socket.socket, asked: threading.Event, *, is_question: bool
    ) -> None:
        """Pass on what comes from one side, each piece as long after as the distance takes."""
        waiting: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

        def read() -> None:
            data = b"-"
            while data:
                data = b""
                with suppress(OSError):
                    data = source.recv(_AT_ONCE)
                if data and is_question:
                    asked.set()
                elif data and asked.is_set():
                    asked.clear()
                    self.round_trips += 1
                waiting.put((time.monotonic() + self._seconds, data))  # from here on it may be answered

        def write() -> None:
            with suppress(OSError):
                while True:
                    when, data = waiting.get()
                    if (left := when - time.monotonic()) > 0:
                        time.sleep(left)
                    if not data:
                        target.shutdown(socket.SHUT_WR)
                        return
                    target.sendall(data)

        for one in (read, write):
            threading.Thread(target=one, daemon=True).start()


@dataclass(frozen=True, slots=True)
class Distant:
    """A database behind a proxy that runs in a process of its own."""

    dsn: str
    _questions: IO[str]
    _answers: IO[str]

    def round_trips(self) -> int:
        """Return how often it was asked something and answered before more was asked."""
        self._questions.write("?\n")
        self._questions.flush()
        return int(self._answers.readline())


@contextmanager
def at_a_distance(dsn: str, seconds: float) -> Iterator[Distant]:
    """Lend a database (`...@127.0.0.1:PORT/NAME`) with each direction to it so many seconds longer."""
    port = dsn.rpartition(":")[2].partition("/")[0]
    command = [sys.executable, __file__, port, str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        own = int(process.stdout.readline())
        yield Distant(dsn.replace(f":{port}/", f":{own}/"), process.stdin, process.stdout)


def main() -> None:
    """Serve until the standard input ends."""
    found = Distance(int(sys.argv[1]), float(sys.argv[2]))
    print(found.port, flush=True)
    for _ in sys.stdin:
        print(found.round_trips, flush=True)


if __name__ == "__main__":
    main()
