"""The journal of a bare repository: what a write publishes reaches stable storage by one sync.

A write appends its pack and the move of its ref here, syncs that, and only then puts the files in place. They
are not synced: git sees them at once, and the system brings them to the disk in its own time. What it had not
brought there when the power was cut, the next opening puts back from the records (`lost`, `put_back`). They
name the boot that they are from: while the system runs its files are whole. `settle` syncs the files and
begins the journal anew: when packs are merged, when a store is closed, and when the journal is full.

Every move of a ref is noted, in the order of the moves, also those whose files are synced at once (a ref that
is made or removed): else an earlier record would be taken for the newest.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import NamedTuple

from blake3 import blake3

from ....errors import ReactifactError, StoreBusy
from ...objects import Oid
from ...protocol import RefUpdate, check_oid, check_ref_name
from ..files import make_folders, open_plain, read_plain, remove, sync_folder, write_new
from ..locks import FileLock, LockFolder, wait_lock
from .pack import PACK_MODE, PackFiles

LIMIT = 4 * 1024 * 1024
"""Bytes after which the journal begins anew."""

LARGEST_PACK = 256 * 1024
"""Bytes of a pack up to which it is noted; a larger one is synced where it stands, and not written twice."""

_STEP = 64 * 1024
"""Bytes by which the file grows: a sync that need not bring a new size to the disk takes half the time."""

_MAGIC = b"RFJ1"
_PREFIX = struct.Struct(">4sB3x8sIQ16s")
"""What begins a record: the magic, whether it is void, the nonce of this beginning of the journal, the bytes
of its description and of its content, and the digest of these and the nonce."""
_VOID_AT = len(_MAGIC)
_NONCE = slice(8, 16)
_END = struct.Struct(">Q8s")
"""The content of the lock file: where the next record goes, and the nonce. It is not synced."""
_DIGEST = 16
_LONGEST = 2 * LIMIT  # no record is as long
_LONGEST_PAUSE = 0.003
_STEM = re.compile(r"pack-[0-9a-f]{40}")
_BOOT = "/proc/sys/kernel/random/boot_id"

_sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


@cache
def boot_id() -> str:
    """Return what tells this run of the system from every other; empty where the system does not say it."""
    try:
        return read_plain(_BOOT).decode().strip()
    except (OSError, ValueError):
        return ""


class Record(NamedTuple):
    """What one write noted: the move of a ref, and the pack and index of what it leads to, where small.

    A void one is of a write that failed: somebody may have seen what it did, but nobody relies on the move.
    """

    is_void: bool
    boot: str
    when: int
    ref: str
    old: Oid | None
    new: Oid | None
    stem: str | None
    pack: bytes
    idx: bytes


class Moves(NamedTuple):
    """The moves of one ref that are noted: where it stood before the last, when that was, where it led."""

    name: str
    earlier: frozenset[Oid]
    when: int
    last: Oid


class Journal:
    """The journal of one repository. Threads and processes write to it side by side."""

    def __init__(
        self,
        git_dir: str,
        location: str,
        locks: LockFolder,
        *,
        wait: Callable[[], float],
        step: Callable[[str], None],
    ) -> None:
        self._folder = f"{git_dir}/reactifact"
        self._path = f"{self._folder}/journal"
        self._git_dir = git_dir
        self._packs = f"{git_dir}/objects/pack"
        self._location = location
        self._locks = locks
        self._wait = wait
        self._step = step
        self._noted = False

    @contextmanager
    def noted(self, update: RefUpdate, base: str = "", packed: PackFiles | None = None) -> Iterator[None]:
        """Note a move, and the pack that is to stand at `base`, durably; the `with` puts them in place.

        A `with` that ends in an error makes the record void. Raises `StoreBusy`, and every `OSError`.
        """
        about = {
            "boot": boot_id(),
            "when": int(time.time()),
            "ref": update.name,
            "old": update.expected,
            "new": update.new,
            **({} if packed is None else {"stem": os.path.basename(base), "pack": len(packed.pack)}),
        }
        head = json.dumps(about).encode("ascii")
        content = b"" if packed is None else packed.pack + packed.idx
        journal, start = self._append(head, content)
        try:
            try:
                self._step("journal-written")
                _sync_data(journal.descriptor)
                self._step("journal-synced")
                yield
            except BaseException:
                with suppress(OSError):  # it says what was about to happen, and that did not
                    os.pwrite(journal.descriptor, b"\1", start + _VOID_AT)
                raise
        finally:
            journal.release(unlink=False)

    def settle(self, *, wait: float = 0.0, wipe: bool = False) -> bool:
        """Sync the files that the records name, and begin anew, with `wipe` leaving no byte of them.

        Returns false where others are at work on it for longer than `wait` seconds. Raises `OSError`.
        """
        if not os.path.exists(self._path):
            return True
        journal = wait_lock(self._path, wait, longest_pause=_LONGEST_PAUSE)
        if journal is None:
            return False
        try:
            records = list(_records(journal.descriptor))
            self._sync_files(records)
            self._begin_anew(journal.descriptor, wipe=wipe)
            self._step("journal-settled")
        finally:
            journal.release(unlink=False)
        return True

    def close(self) -> None:
        """Settle it, if anything was noted here and nobody else is at work on it: later is as good."""
        if self._noted:
            self._noted = False
            with suppress(OSError):
                self.settle()

    def has_records(self) -> bool:
        """Tell whether anything was noted since it began anew."""
        try:
            descriptor = open_plain(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            return any(os.pread(descriptor, _PREFIX.size, 0))
        finally:
            os.close(descriptor)

    def is_from_another_boot(self) -> bool:
        """Tell whether what stands in it was noted before the system was started anew, or is torn."""
        if not self.has_records():
            return False
        first = next(self._read(), None)
        return first is None or not first.boot or first.boot != boot_id()

    def lost(self) -> list[Record]:
        """Return the records whose pack or index is not there as it was written."""
        noted = [record for record in self._read() if record.stem is not None]
        return [record for record in noted if not all(_holds(*one) for one in self._files(record))]

    def moves(self) -> list[Moves]:
        """Return the moves of each ref that was not removed by the last."""
        noted: dict[str, list[Record]] = {}
        for record in self._read():
            noted.setdefault(record.ref, []).append(record)
        found: list[Moves] = []
        for name, records in noted.items():
            whole = [record for record in records if not record.is_void]
            # where all failed, a ref that cannot be read any more stood where the first began
            last = whole[-1].new if whole else records[0].old
            seen = {oid for record in records for oid in (record.old, record.new)} if whole else set()
            if last is not None:
                earlier = frozenset(oid for oid in seen if oid is not None and oid != last)
                found.append(Moves(name, earlier, records[-1].when, last))
        return found

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep every writer out for the length of a `with`. Raises `StoreBusy`."""
        journal = wait_lock(self._path, self._wait(), longest_pause=_LONGEST_PAUSE)
        if journal is None:
            raise self._busy()
        try:
            yield
        finally:
            journal.release(unlink=False)

    def begin_anew(self) -> None:
        """Forget all records. Callers are `alone`."""
        descriptor = open_plain(self._path, os.O_RDWR)
        try:
            self._begin_anew(descriptor, wipe=False)
        finally:
            os.close(descriptor)

    def _read(self) -> Iterator[Record]:
        descriptor = open_plain(self._path, os.O_RDONLY)
        try:
            yield from _records(descriptor)
        finally:
            os.close(descriptor)

    def put_back(self, record: Record) -> None:
        """Put the pack and the index of a record in place, synced."""
        for path, content in self._files(record):
            if not _holds(path, content):
                remove(f"{path}.new")
                write_new(f"{path}.new", [content], sync=True, mode=PACK_MODE)
                os.rename(f"{path}.new", path)
        sync_folder(self._packs)

    def _files(self, record: Record) -> Iterator[tuple[str, bytes]]:
        yield f"{self._packs}/{record.stem}.pack", record.pack
        yield f"{self._packs}/{record.stem}.idx", record.idx

    def _append(self, head: bytes, content: bytes) -> tuple[FileLock, int]:
        """Write a record, not synced yet; return the journal, held against `settle`, and where it begins."""
        size = _PREFIX.size + len(head) + len(content)
        while True:
            journal = self._held()
            try:
                with self._end(journal.descriptor) as (end, start, nonce):
                    if not start or start + size <= LIMIT:
                        self._grow(journal.descriptor, start + size)
                        digest = blake3(nonce + head + content).digest(_DIGEST)
                        prefix = _PREFIX.pack(_MAGIC, 0, nonce, len(head), len(content), digest)
                        _write_at(journal.descriptor, prefix + head + content, start)
                        _write_at(end, _END.pack(start + size, nonce), 0)
                        self._noted = True
                        return journal, start
            except BaseException:
                journal.release(unlink=False)
                raise
            journal.release(unlink=False)
            if not self.settle(wait=self._wait()):
                raise self._busy()

    def _held(self) -> FileLock:
        try:
            journal = wait_lock(self._path, self._wait(), longest_pause=_LONGEST_PAUSE, shared=True)
        except FileNotFoundError:  # the folder is missing, or was taken away
            make_folders(self._folder, sync=True)
            journal = wait_lock(self._path, self._wait(), longest_pause=_LONGEST_PAUSE, shared=True)
        if journal is None:
            raise self._busy()
        return journal

    def _busy(self) -> StoreBusy:
        return StoreBusy(
            f"the journal of {self._location} is held by another process for over {self._wait():g} seconds; "
            f"see what holds it up, then retry"
        )

    @contextmanager
    def _end(self, journal: int) -> Iterator[tuple[int, int, bytes]]:
        """Give, while nobody else appends: the file with the place of the end, that place, the nonce."""
        with self._locks.internal("journal", self._wait()) as lock:
            if lock is None:
                raise self._busy()
            said = os.pread(lock.descriptor, _END.size, 0)
            is_known = len(said) == _END.size
            start, nonce = _END.unpack(said) if is_known else (0, b"")
            if start or not is_known:
                first = os.pread(journal, _PREFIX.size, 0)
                if not is_known or first[_NONCE] != nonce:  # one of the two files was taken away
                    start, nonce = _end_of(journal)
            yield lock.descriptor, start, nonce if start else secrets.token_bytes(8)

    def _grow(self, journal: int, size: int) -> None:
        """Fill the file up with zeros as far as a record goes, synced."""
        present = os.fstat(journal).st_size
        if size > present:
            wanted = -(-size // _STEP) * _STEP
            _write_at(journal, bytes(wanted - present), present)
            os.fsync(journal)
            if not present:
                sync_folder(self._folder)

    def _sync_files(self, records: Iterable[Record]) -> None:
        stems = {record.stem for record in records if record.stem is not None}
        refs = {record.ref for record in records}
        for stem in stems:
            for ending in ("pack", "idx"):
                _sync_file(f"{self._packs}/{stem}.{ending}")
        if stems:
            sync_folder(self._packs)
        for ref in refs:
            _sync_file(f"{self._git_dir}/{ref}")
        for folder in {os.path.dirname(ref) for ref in refs}:
            with suppress(FileNotFoundError, NotADirectoryError):  # it went with its last ref
                sync_folder(f"{self._git_dir}/{folder}")

    def _begin_anew(self, journal: int, *, wipe: bool) -> None:
        """Have the next record written in the place of the first, and then make that one none."""
        with self._locks.internal("journal", self._wait()) as lock:
            if lock is None:
                raise self._busy()
            _write_at(lock.descriptor, _END.pack(0, bytes(8)), 0)
        if wipe:
            os.ftruncate(journal, 0)
            os.fsync(journal)
        elif os.fstat(journal).st_size:
            _write_at(journal, bytes(_PREFIX.size), 0)


def _records(journal: int) -> Iterator[Record]:
    """Yield the records that are whole, in order; what is torn ends them."""
    return (record for _, _, record in _walk(journal))


def _record(is_void: bool, head: bytes, content: bytes) -> Record | None:
    """Read one record; `None` for what no writer of ours has written, such as a name that leads elsewhere."""
    try:
        about = json.loads(head)
        ref, old, new, stem = (about.get(name) for name in ("ref", "old", "new", "stem"))
        check_ref_name(ref)
        for oid in (old, new):
            if oid is not None:
                check_oid(oid)
        pack = int(about.get("pack", 0))
        if stem is None or _STEM.fullmatch(stem):
            boot, when = str(about["boot"]), int(about["when"])
            return Record(is_void, boot, when, ref, old, new, stem, content[:pack], content[pack:])
    except (ReactifactError, AttributeError, LookupError, TypeError, ValueError, RecursionError):
        pass
    return None


def _end_of(journal: int) -> tuple[int, bytes]:
    """Return where the records end, and their nonce (empty where there is none)."""
    end, nonce = 0, b""
    for found in _walk(journal):
        end, nonce = found[:2]
    return end, nonce


def _walk(journal: int) -> Iterator[tuple[int, bytes, Record]]:
    """Yield of each whole record where it ends, the nonce, and what it notes."""
    position, first = 0, b""
    while len(prefix := os.pread(journal, _PREFIX.size, position)) == _PREFIX.size:
        magic, void, nonce, head_size, size, digest = _PREFIX.unpack(prefix)
        if magic != _MAGIC or (first and nonce != first) or head_size + size > _LONGEST:
            return
        first = nonce
        body = os.pread(journal, head_size + size, position + _PREFIX.size)
        if blake3(nonce + body).digest(_DIGEST) != digest:
            return
        record = _record(bool(void), body[:head_size], body[head_size:])
        if record is None:
            return
        position += _PREFIX.size + head_size + size
        yield position, nonce, record


def _holds(path: str, content: bytes) -> bool:
    try:
        return read_plain(path) == content
    except FileNotFoundError:
        return False


def _sync_file(path: str) -> None:
    """Sync a file, if it is there still."""
    with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _write_at(descriptor: int, data: bytes, position: int) -> None:
    """Write all of `data` at a place, however often the system takes only a part."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, position)
        view, position = view[written:], position + written
