"""The file `packed-refs`: looked up by name and by prefix, and rewritten without a name.

It owns that one file and the look at it. Loose refs, which win over packed ones, are the business of
`refs`; packing refs is git's. Git sorts the file and says so in its first line: it is then searched
where it stands, so that a lookup costs the same however many refs are packed. Each line that is met on
the way is checked. A damaged file is not taken for one with fewer refs: what its sound lines name is
found, and looking for anything else raises.
"""

from __future__ import annotations

import mmap
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import lt
from typing import NamedTuple

from ...errors import DamagedRef
from ..files import open_plain, remove, sync_folder, write_new
from ..objects import Oid
from .lockfile import GitLocks

PACKED = "packed-refs"
"""The name of the file, and of the lock between our processes around deletions."""

Stamp = tuple[int, int, int] | None

_HEADER = b"# pack-refs with:"
_LONGEST_HEADER = 256
_LINE = rb"[0-9a-f]{40} (refs/[^\x00-\x20\x7f~^:?*\[\\]+)\n"
_SOUND = re.compile(rb"(?:#[^\n]*\n)?(?:" + _LINE + rb"(?:\^[0-9a-f]{40}\n)?)*+")
_REF = re.compile(_LINE)
_PEELED = re.compile(rb"\^[0-9a-f]{40}\n")
_NAMES = re.compile(rb"^" + _LINE, re.MULTILINE)
_SHOWN = 60
_OID_LENGTH = 40


class _Lines(NamedTuple):
    """The content of the file as sorted lines, each `<id> <name>` or `^<id>`, from `start` on."""

    stamp: Stamp
    content: mmap.mmap | bytes
    start: int
    damage: str = ""


_ABSENT = _Lines(None, b"", 0)


class _Unsound(Exception):
    """A line that git does not write, or that stands in the wrong place."""


class PackedRefs:
    """The packed refs of one repository, as the file that stands there now has them."""

    def __init__(self, git_dir: str, locks: GitLocks, *, sync: bool) -> None:
        self._path = f"{git_dir}/{PACKED}"
        self._locks = locks
        self._sync = sync
        self._lines = _ABSENT

    def get(self, name: str) -> Oid | None:
        """Return the id packed under `name`. Raises `DamagedRef` where a damaged file does not have it."""
        found, oid = next(self.under(name), ("", None))
        if found == name:
            return oid
        if self._lines.damage:
            raise self._damaged(name, self._lines.damage)
        return None

    def damage(self) -> DamagedRef | None:
        """Return what is wrong with the file, if anything is."""
        lines = self._load()
        return self._damaged("packed-refs", lines.damage) if lines.damage else None

    def _damaged(self, name: str, damage: str) -> DamagedRef:
        return DamagedRef(
            name,
            self._path,
            damage,
            "restore the file from a clone (`git ls-remote` prints its lines) or a backup, or put the line "
            "right by hand; then check with `git fsck`",
        )

    def under(self, prefix: str) -> Iterator[tuple[str, Oid]]:
        """Yield the packed refs whose name starts with `prefix`, in order of name."""
        start, last = _encoded(prefix), b""
        lines = self._load()
        while True:
            try:
                for name, oid in _from(lines, start):
                    if not name.startswith(start):
                        return
                    if name > last:
                        last = name
                        yield name.decode("utf-8", "surrogateescape"), oid.decode()
                return
            except _Unsound:
                self._lines = lines = _parsed(bytes(lines.content), lines.stamp)

    @contextmanager
    def without(self, name: str) -> Iterator[None]:
        """Take `name` out of the file, and keep git from packing refs for the length of the `with`.

        The caller removes the loose ref inside. A `git pack-refs` that has read it already would else
        put it into the file afterwards, and it would be back. Callers keep our other processes away.
        """
        with self._locks.file(PACKED):
            if self.get(name) is not None:
                self._replace(self._all_but(_encoded(name)))
            yield

    def _all_but(self, name: bytes) -> list[bytes]:
        """Return the content of the file, in pieces, without the lines of one ref."""
        lines = self._load()
        if lines.damage:
            raise self._damaged(name.decode("utf-8", "surrogateescape"), lines.damage)
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

    def sweep(self) -> None:
        """Remove the lock of a process of ours that was killed. Callers keep our other processes away."""
        if self._locks.recover(PACKED):
            remove(self._part)

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
                    if not _ends_well(lines):
                        lines = _parsed(bytes(content), stamp)
                else:
                    lines = _parsed(begin + file.readall(), stamp)
        except FileNotFoundError:
            lines = _ABSENT
        self._lines = lines
        return lines


def _is_sorted(header: bytes) -> bool:
    return header.startswith(_HEADER) and b"sorted" in header.split()


def _parsed(content: bytes, stamp: Stamp) -> _Lines:
    """Check the content of a whole file, and put it in order."""
    header = content[: content.find(b"\n") + 1]
    names = _NAMES.findall(content)
    damage = _damage_of(content)
    if not damage and _is_sorted(header):
        if all(map(lt, names, names[1:])):
            return _Lines(stamp, content, len(header))
        damage = "says that it is sorted, and a line of it stands in the wrong place"
    # A name that stands there twice is not certain in a damaged file; in others the last one wins.
    unsure = {name for name, count in Counter(names).items() if count > 1} if damage else set[bytes]()
    oids = {match[1]: match[0] for match in _NAMES.finditer(content) if match[1] not in unsure}
    return _Lines(stamp, b"".join(oids[name] for name in sorted(oids)), 0, damage)


def _damage_of(content: bytes) -> str:
    """Say which line is not one that git writes; empty where all are."""
    if not content:
        return "is empty"
    sound = _SOUND.match(content)
    end = 0 if sound is None else sound.end()
    if end == len(content):
        return ""
    line = content[end:].split(b"\n", 1)[0][:_SHOWN].decode("utf-8", "backslashreplace")
    return f"holds {line!r} in line {content.count(bytes([10]), 0, end) + 1}, which is not a packed ref"


def _from(lines: _Lines, name: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield (name, id) of the refs from the first that is not before `name` on, in order.

    Raises `_Unsound`, also for a line that is met on the way to the first.
    """
    content = lines.content
    position = _first(lines, name)
    before = b""
    while position < len(content):
        found = _name_at(content, position)
        if found <= before:
            raise _Unsound
        before = found
        yield found, content[position : position + _OID_LENGTH]
        position = _next_ref(content, position)


def _name_at(content: mmap.mmap | bytes, position: int) -> bytes:
    """Return the name in a line. Raises `_Unsound`."""
    line = _REF.match(content, position)
    if line is None:
        raise _Unsound
    return line[1]


def _ends_well(lines: _Lines) -> bool:
    """Tell whether the last line is whole."""
    content, end = lines.content, len(lines.content)
    if end == lines.start:
        return True
    begin = content.rfind(b"\n", lines.start, end - 1) + 1 or lines.start
    return any(line.fullmatch(content, begin) for line in (_REF, _PEELED))


def _first(lines: _Lines, name: bytes) -> int:
    """Return where the first line that is not before `name` begins. Raises `_Unsound`."""
    content = lines.content
    low, high = lines.start, len(content)  # both begin a line, or stand at the end
    while low < high:
        begin = content.rfind(b"\n", lines.start, (low + high) // 2) + 1 or lines.start
        while begin > lines.start and content[begin : begin + 1] == b"^":
            begin = content.rfind(b"\n", lines.start, begin - 1) + 1 or lines.start
        if _name_at(content, begin) < name:
            low = _next_ref(content, begin)
        else:
            high = begin
    return low


def _next_ref(content: mmap.mmap | bytes, position: int) -> int:
    """Return where the line of the next ref begins, past what a tag points at. Raises `_Unsound`."""
    position = content.find(b"\n", position) + 1 or len(content)
    if content[position : position + 1] != b"^":
        return position
    peeled = _PEELED.match(content, position)
    if peeled is None:
        raise _Unsound
    return peeled.end()


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _stamp(path: str) -> Stamp:
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
