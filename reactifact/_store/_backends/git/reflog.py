"""The logs in which git notes each move of a ref that it makes, below `logs/`; our own moves are not in them.

Owns reading the last moves of a ref, and letting go of old ones, which keep what they name from `git gc`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

from ...protocol import RefMove
from ..files import open_plain, read_plain, refuse_links, remove

_LOGS = "logs"
_HEAD = "HEAD"
_LINE = re.compile(rb"([0-9a-f]{40}) ([0-9a-f]{40}) [^\n]*?> (\d+) [+-]\d{4}(?:\t[^\n]*)?")
_TAIL = 64 * 1024
"""Bytes at the end of a log that are read for its last moves: some 300 of them."""


class RefLogs:
    """The logs of one repository."""

    def __init__(self, git_dir: str) -> None:
        self._git_dir = git_dir

    def moves(self, name: str) -> list[RefMove]:
        """Return the last moves of a ref, the oldest first. Raises `LinkInStore`, and every `OSError`."""
        path = f"{self._git_dir}/{_LOGS}/{name}"
        try:
            descriptor = open_plain(path, os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return []
        try:
            size = os.fstat(descriptor).st_size
            data = os.pread(descriptor, _TAIL, max(0, size - _TAIL))
        finally:
            os.close(descriptor)
        lines = data.split(b"\n")[1 if size > _TAIL else 0 :]
        return [move for move in map(_move, lines) if move is not None]

    def forget(self, name: str, before: datetime) -> int:
        """Take moves older than a moment out of the log of a ref whose locks are held; return how many."""
        path = f"{self._git_dir}/{_LOGS}/{name}"
        lines = read_plain(path).split(b"\n")
        moves = [(_move(line), line) for line in lines if line]
        young = [line for move, line in moves if move is None or move.when > before]
        if not young:
            remove(path)
        elif len(young) < len(moves):
            with open(f"{path}.lock", "wb", opener=open_plain) as file:
                file.write(b"".join(line + b"\n" for line in young))
            os.rename(f"{path}.lock", path)
        return len(moves) - len(young)

    def remove(self, name: str) -> None:
        """Remove the log of a ref that is deleted, and that of `HEAD`, which may name the same commits."""
        for one in (name, _HEAD):
            path = f"{self._git_dir}/{_LOGS}/{one}"
            if os.path.lexists(path):
                self._require_plain(one)
                remove(path)
                self._remove_empty_folders(os.path.dirname(path))

    def names(self) -> Iterator[str]:
        """Yield the names of all refs that have a log. Raises `LinkInStore`."""
        folder = f"{self._git_dir}/{_LOGS}"
        refuse_links(folder)
        for base, folders, files in os.walk(folder):
            refuse_links(*(f"{base}/{one}" for one in (*folders, *files)))
            yield from (f"{base}/{one}"[len(folder) + 1 :] for one in files if not one.endswith(".lock"))

    def _require_plain(self, name: str) -> None:
        parts = f"{_LOGS}/{name}".split("/")
        refuse_links(*(f"{self._git_dir}/{'/'.join(parts[:end])}" for end in range(1, len(parts))))

    def _remove_empty_folders(self, folder: str) -> None:
        kept = (f"{self._git_dir}/{_LOGS}", f"{self._git_dir}/{_LOGS}/refs")
        with suppress(OSError):  # not empty, or gone already
            while folder not in kept:
                os.rmdir(folder)
                folder = os.path.dirname(folder)


def _move(line: bytes) -> RefMove | None:
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    try:
        when = datetime.fromtimestamp(int(match[3]), UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return RefMove(match[1].decode(), match[2].decode(), when)
