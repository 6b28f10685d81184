"""The file `packed-refs`: looked up by name and by prefix, and rewritten without a name.

It owns that one file and the look at it. Loose refs, which win over packed ones, are the business of
`refs`; packing refs is git's. Git sorts the file and says so in its first line: it is then searched
where it stands, so that a lookup costs the same however many refs are packed.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ..files import open_plain, remove, sync_folder, write_new
from ..objects import Oid
from .lockfile import lock_file, lock_path

Stamp = tuple[int, int, int] | None

_HEADER = b"# pack-refs with:"
_LONGEST_HEADER = 256
_OID_LENGTH = 40
_STALE_AFTER = 5.0
"""Seconds as in `lockfile`: git's lock here stays as it is while it reads every loose ref."""
_MARK = b"reactifact removes a ref\n"
"""What our lock on the file says; git's is empty."""


class _Lines(NamedTuple):
    """The content of the file as sorted lines, each `<id> <name>` or `^<id>`, from `start` on."""

    stamp: Stamp
    content: mmap.mmap | bytes
    start: int


_ABSENT = _Lines(None, b"", 0)


class PackedRefs:
    """The packed refs of one repository, as the file that stands there now has them."""

    def __init__(self, git_dir: str, *, sync: bool) -> None:
        self._path = f"{git_dir}/packed-refs"
        self._sync = sync
        self._lines = _ABSENT

    def get(self, name: str) -> Oid | None:
        """Return the id packed under `name`."""
        wanted = _encoded(name)
        found, oid = next(_from(self._load(), wanted), (b"", b""))
        return oid.decode() if found == wanted else None

    def under(self, prefix: str) -> Iterator[tuple[str, Oid]]:
        """Yield the packed refs whose name starts with `prefix`, in order of name."""
        start = _encoded(prefix)
        for name, oid in _from(self._load(), start):
            if not name.startswith(start):
                return
            yield name.decode("utf-8", "surrogateescape"), oid.decode()

    @contextmanager
    def without(self, name: str) -> Iterator[None]:
        """Take `name` out of the file, and keep git from packing refs for the length of the `with`.

        The caller removes the loose ref inside. A `git pack-refs` that has read it already would else
        put it into the file afterwards, and it would be back. Callers keep our other processes away.
        """
        with lock_file(self._path, sync=self._sync, stale_after=_STALE_AFTER) as lock:
            lock.write(_MARK)
            if self.get(name) is not None:
                self._replace(self._all_but(_encoded(name)))
            yield

    def _all_but(self, name: bytes) -> list[bytes]:
        """Return the content of the file, in pieces, without the lines of one ref."""
        lines = self._load()
        if lines.start:
            content, begin = lines.content, _first(lines, name)
            return [content[:begin], content[_next_ref(content, begin) :]]
        kept: list[bytes] = []
        dropping = False
        with open(self._path, "rb") as file:
            for line in file:
                if not line.startswith(b"^"):  # else what the tag of the line before points at
                    dropping = line.rstrip(b"\n").partition(b" ")[2] == name
                if not dropping:
                    kept.append(line)
        return kept

    def _replace(self, content: Iterable[bytes]) -> None:
        """Put another file in its place, as git does: its lock stays held."""
        new = self._part
        remove(new)
        write_new(new, content, sync=self._sync)
        os.rename(new, self._path)
        if self._sync:
            sync_folder(os.path.dirname(self._path))

    def is_locked(self) -> bool:
        """Tell whether anybody, alive or dead, has a lock on the file."""
        return os.path.exists(self._lock)

    def sweep(self) -> None:
        """Remove the lock of a process of ours that was killed. Callers keep our other processes away."""
        try:
            with open(self._lock, "rb") as file:
                is_ours = file.read(len(_MARK)) == _MARK
        except FileNotFoundError:
            return
        if is_ours:
            remove(self._part)
            remove(self._lock)

    @property
    def _lock(self) -> str:
        return lock_path(self._path)

    @property
    def _part(self) -> str:
        return f"{self._path}.part"

    def close(self) -> None:
        """Give the file back; the next lookup opens it again."""
        self._lines = _ABSENT

    def _load(self) -> _Lines:
        lines = self._lines
        if _stamp(self._path) == lines.stamp:
            return lines
        try:
            with open(self._path, "rb", buffering=0, opener=open_plain) as file:
                stat = os.fstat(file.fileno())
                stamp = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
                begin = file.read(_LONGEST_HEADER) or b""
                header = begin[: begin.find(b"\n") + 1]
                if _is_sorted(header):
                    # It is only ever replaced, never written in place: what is mapped stays as it is.
                    content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                    lines = _Lines(stamp, content, len(header))
                else:
                    lines = _Lines(stamp, _sorted(begin + file.readall()), 0)
        except FileNotFoundError:
            lines = _ABSENT
        self._lines = lines
        return lines


def _is_sorted(header: bytes) -> bool:
    return header.startswith(_HEADER) and b"sorted" in header.split()


def _sorted(text: bytes) -> bytes:
    """Return the refs of a file in any order as sorted lines; the last one wins where a name repeats."""
    oids: dict[bytes, bytes] = {}
    for line in text.splitlines():
        oid, _, name = line.partition(b" ")
        if len(oid) == _OID_LENGTH and name:
            oids[name] = oid
    return b"".join(b"%s %s\n" % (oids[name], name) for name in sorted(oids))


def _from(lines: _Lines, name: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield (name, id) of the refs from the first that is not before `name` on, in order."""
    content = lines.content
    position = _first(lines, name)
    while position < len(content):
        end = _line_end(content, position)
        oid, _, found = content[position:end].partition(b" ")
        if len(oid) == _OID_LENGTH and found:  # else what the tag of the line before points at
            yield found, oid
        position = end + 1


def _first(lines: _Lines, name: bytes) -> int:
    """Return where the first line that is not before `name` begins."""
    content = lines.content
    low, high = lines.start, len(content)  # both begin a line, or stand at the end
    while low < high:
        begin = content.rfind(b"\n", lines.start, (low + high) // 2) + 1 or lines.start
        while begin > lines.start and content[begin : begin + 1] == b"^":
            begin = content.rfind(b"\n", lines.start, begin - 1) + 1 or lines.start
        end = _line_end(content, begin)
        if content[begin + _OID_LENGTH + 1 : end] < name:
            low = _next_ref(content, begin)
        else:
            high = begin
    return low


def _next_ref(content: mmap.mmap | bytes, position: int) -> int:
    """Return where the line of the next ref begins, past what a tag points at."""
    position = _line_end(content, position) + 1
    while content[position : position + 1] == b"^":
        position = _line_end(content, position) + 1
    return position


def _line_end(content: mmap.mmap | bytes, position: int) -> int:
    end = content.find(b"\n", position)
    return len(content) if end < 0 else end


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _stamp(path: str) -> Stamp:
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
