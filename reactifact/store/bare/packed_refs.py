"""The file `packed-refs`: read by name and by prefix, and rewritten without a name.

It owns that one file and a parsed copy of it. Loose refs, which win over packed ones, are the
business of `refs`; packing refs is git's.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from ..files import sync_folder
from ..objects import Oid
from .lockfile import lock_file

Stamp = tuple[int, int, int] | None


class _Parsed(NamedTuple):
    stamp: Stamp
    names: list[str]  # sorted
    oids: dict[str, Oid]


class PackedRefs:
    """The packed refs of one repository, parsed again only when the file was replaced."""

    def __init__(self, git_dir: str, *, sync: bool) -> None:
        self._path = f"{git_dir}/packed-refs"
        self._sync = sync
        self._parsed = _Parsed(None, [], {})

    def get(self, name: str) -> Oid | None:
        """Return the id packed under `name`."""
        return self._load().oids.get(name)

    def under(self, prefix: str) -> Iterator[tuple[str, Oid]]:
        """Yield the packed refs whose name starts with `prefix`, in order of name."""
        parsed = self._load()
        for position in range(bisect_left(parsed.names, prefix), len(parsed.names)):
            name = parsed.names[position]
            if not name.startswith(prefix):
                return
            yield name, parsed.oids[name]

    def remove(self, name: str) -> None:
        """Take `name` out of the file. Callers keep our other processes away meanwhile."""
        if self.get(name) is None:
            return
        with lock_file(self._path, sync=self._sync) as lock:
            kept: list[bytes] = []
            dropping = False
            for line in self._read().splitlines(keepends=True):
                if line.startswith(b"^"):  # what the tag of the line before points at
                    if not dropping:
                        kept.append(line)
                    continue
                dropping = line.rstrip(b"\n").partition(b" ")[2] == name.encode()
                if not dropping:
                    kept.append(line)
            lock.write(b"".join(kept))
            lock.commit()
        if self._sync:
            sync_folder(os.path.dirname(self._path))

    def _read(self) -> bytes:
        with open(self._path, "rb") as file:
            return file.read()

    def _load(self) -> _Parsed:
        parsed = self._parsed
        if _stamp(self._path) == parsed.stamp:
            return parsed
        try:
            with open(self._path, "rb") as file:
                stat = os.fstat(file.fileno())
                text = file.read().decode("utf-8", "surrogateescape")
        except FileNotFoundError:
            self._parsed = parsed = _Parsed(None, [], {})
            return parsed
        oids = dict[str, Oid]()
        for line in text.split("\n"):
            oid, _, name = line.partition(" ")
            if len(oid) == 40 and name:
                oids[name] = oid
        stamp = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        self._parsed = parsed = _Parsed(stamp, sorted(oids), oids)
        return parsed


def _stamp(path: str) -> Stamp:
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
