"""The log of the refs of a bare repository that moved, for whoever watches them.

Owns `reactifact/moves`: a name of a ref a line, appended after the ref has moved. It is a hint and not a
record: it is not synced, it is there only where somebody watches, and git itself does not write it, so a
watcher also lists all refs from time to time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from ....errors import LinkInStore
from ..files import open_plain, refuse_links, remove, write_all

MOVES = "reactifact/moves"
LIMIT = 256 * 1024
"""Bytes after which the log is removed; a watcher then lists all refs, and begins it anew."""


def note_moved(git_dir: str, names: Iterable[str]) -> None:
    """Append names of refs that have moved, where somebody watches. Never raises for the log's sake."""
    path = f"{git_dir}/{MOVES}"
    with suppress(OSError, LinkInStore):  # the refs have moved, whatever becomes of the hint
        descriptor = open_plain(path, os.O_WRONLY | os.O_APPEND)
        try:
            write_all(descriptor, "".join(f"{name}\n" for name in names).encode())
            if os.fstat(descriptor).st_size > LIMIT:
                remove(path)
        finally:
            os.close(descriptor)


class MovesWatch:
    """Reads the log of one repository. While nothing moves a question costs one `fstat`."""

    def __init__(self, git_dir: str) -> None:
        self._path = f"{git_dir}/{MOVES}"
        self._descriptor = -1
        self._read = 0
        self._open()

    def _open(self) -> None:
        folder = os.path.dirname(self._path)
        os.makedirs(folder, exist_ok=True)
        refuse_links(folder)
        descriptor = open_plain(self._path, os.O_RDONLY | os.O_CREAT, 0o666)  # as the umask shares
        self.close()
        self._descriptor = descriptor
        self._read = os.fstat(descriptor).st_size

    def moved(self) -> set[str] | None:
        """Return the refs that moved since it was asked last; `None` where the log began anew."""
        found = os.fstat(self._descriptor)
        if not found.st_nlink or found.st_size < self._read:
            self._open()  # first: what moves from now on is noted in the new one
            return None
        if found.st_size == self._read:
            return set()
        data = os.pread(self._descriptor, found.st_size - self._read, self._read)
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        return set(whole.decode("utf-8", "surrogateescape").split("\n")[:-1])

    def fileno(self) -> int:
        """Return -1: a file is always readable."""
        return -1

    def close(self) -> None:
        """Close the log."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
