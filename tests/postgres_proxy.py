"""A TCP proxy before a PostgreSQL server: it counts trips, loses answers to COMMIT and ends connections."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

_FIELDS = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
_ENDED = b"E" + (len(_FIELDS) + 4).to_bytes(4, "big") + _FIELDS
_READY = b"Z\0\0\0\5I"


class Proxy:
    """Stands between a backend and the server of a DSN; connect to its `dsn`."""

    def __init__(self, dsn: str) -> None:
        self.round_trips = 0
        """How often the other side was asked and answered before more was asked."""
        self.loses_answers_to_commit = 0
        self.ends_after_commit = 0
        """Connections to end as an administrator does, when their COMMIT was done and said so."""
        self.refuses_after_a_loss = False
        self.is_refusing = False
        self._port = int(dsn.rpartition(":")[2].partition("/")[0])
        self._listener = socket.create_server(("127.0.0.1", 0))
        own = self._listener.getsockname()[1]
        self.dsn = dsn.replace(f":{self._port}/", f":{own}/")
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if self.is_refusing:
                client.close()
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self._port))
        asked = threading.Event()

        def back() -> None:
            with suppress(OSError):
                while data := server.recv(65536):
                    if self.loses_answers_to_commit and b"COMMIT\0" in data:  # the server has done it
                        self.loses_answers_to_commit -= 1
                        self.is_refusing = self.refuses_after_a_loss
                        break
                    if self.ends_after_commit and b"COMMIT\0" in data and data.endswith(_READY):
                        self.ends_after_commit -= 1
                        client.sendall(data.removesuffix(_READY) + _ENDED)
                        break
                    self.round_trips += asked.is_set()
                    asked.clear()
                    client.sendall(data)
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            client.close()

        thread = threading.Thread(target=back, daemon=True)
        thread.start()
        with suppress(OSError):
            while data := client.recv(65536):
                asked.set()
                server.sendall(data)
        server.close()
        thread.join()
