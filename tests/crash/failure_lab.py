"""Disks that are full or read-only, and rights that are taken away, around a real store. Run by the test.

failure_lab.py FAULT STORE FOLDER   print a JSON list: what each point of the matrix met

Two faults need a disk of their own: an ext4 image behind a loop device. For them it is run in a mount
namespace (`unshare --mount`): however it ends, the mounts and with them the loop devices go with it. For
`denied` root becomes another user first, since root is denied nothing. The exit status `UNAVAILABLE`
means that this machine cannot do it; the reason stands on stderr.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
from failure_scenario import CASES, LOOPS, Fault, run
from power_cut_lab import UNAVAILABLE, Unavailable, command, make_image

from reactifact import SessionStore
from reactifact.errors import ReactifactError

NAMES = {"git": "state.git", "sqlite": "state.db"}
_DISK_SIZE = 8 << 20
_NOBODY = 65534
_BLOCK = 4096


class Disk:
    """A small disk of the lab's own, mounted for the length of a `with`."""

    def __init__(self, image: Path, folder: Path) -> None:
        self._image = image
        self.folder = folder

    def __enter__(self) -> Disk:
        make_image(self._image, _DISK_SIZE, "-m", "0")  # no blocks that root alone may have
        self.folder.mkdir()
        self.mount()
        return self

    def __exit__(self, *exc: object) -> None:
        self.unmount()
        self._image.unlink()
        self.folder.rmdir()

    def mount(self) -> None:
        command("mount", "-o", "loop,errors=remount-ro", self._image, self.folder)

    def unmount(self) -> None:
        """Take it away, which the system refuses while any file on it is open."""
        command("umount", self.folder)


class Full:
    """No block of the disk is free."""

    def __init__(self, disk: Disk) -> None:
        self._ballast = disk.folder / "ballast"

    def strike(self) -> None:
        with open(self._ballast, "wb", buffering=0) as file, suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, os.fstatvfs(file.fileno()).f_bavail * _BLOCK)
        with open(self._ballast, "ab", buffering=0) as file, suppress(OSError):
            while file.write(bytes(_BLOCK)):  # what the first allocation could not have
                pass

    def lift(self) -> None:
        self._ballast.unlink()


class ReadOnly:
    """The disk has met an error and is read-only from then on, until it is mounted anew."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def strike(self) -> None:
        command("sync", "-f", self._disk.folder)  # what is kept from us is the disk, not what was written
        command("mount", "-o", "remount,abort", self._disk.folder)

    def lift(self) -> None:
        self._disk.unmount()  # refused while the store, which was closed, has a file open
        self._disk.mount()


class Denied:
    """This user may no longer write anything in the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def strike(self) -> None:
        self._change(lambda mode: mode & ~0o222)

    def lift(self) -> None:
        self._change(lambda mode: mode | stat.S_IWUSR)

    def _change(self, new: Any) -> None:
        for path in (self._folder, *self._folder.rglob("*")):
            path.chmod(new(stat.S_IMODE(path.stat().st_mode)))


@contextmanager
def on_a_disk(fault: type[Full] | type[ReadOnly], folder: Path) -> Iterator[tuple[Path, Fault]]:
    with Disk(folder / "disk.img", folder / "disk") as disk:
        yield disk.folder, fault(disk)


@contextmanager
def in_a_folder(folder: Path) -> Iterator[tuple[Path, Fault]]:
    own = folder / "own"
    own.mkdir()
    yield own, Denied(own)
    command("rm", "-r", own)


def surroundings(fault: str, folder: Path) -> AbstractContextManager[tuple[Path, Fault]]:
    """Return a folder for a store, and the fault that can strike it."""
    if fault == "denied":
        return in_a_folder(folder)
    return on_a_disk(Full if fault == "full" else ReadOnly, folder)


def said(place: Path, error: BaseException | None) -> dict[str, Any]:
    """Return what the test looks at: the error's type, and its text with STORE for the path."""
    if error is None:
        return {"error": None, "text": ""}
    return {"error": type(error).__name__, "text": str(error).replace(str(place), "STORE")}


def make(place: Path) -> None:
    """Let the first lock make a store."""
    backend = SessionStore(place).database.backend
    with backend.lock("first"):
        pass
    backend.close()


def make_store(place: Path, fault: Fault) -> dict[str, Any]:
    """Make a new store while it is wrong, and again when it is right."""
    fault.strike()
    found: BaseException | None = None
    try:
        make(place)
    except ReactifactError as error:
        found = error
    fault.lift()
    make(place)
    return {"point": "making", "continuation": "anew", **said(place, found)}


def main(fault: str, store: str, base: str) -> None:
    folder = Path(base)
    if fault == "denied" and os.getuid() == 0:
        for loop in LOOPS.values():  # what is imported late may lie where root alone reads
            anyio.run(anyio.sleep, 0, backend=loop)
        os.chown(folder, _NOBODY, _NOBODY)
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
    found = []
    try:
        with surroundings(fault, folder) as (where, wrong):
            found.append(make_store(where / NAMES[store], wrong))
        for point, continuation in CASES:
            with surroundings(fault, folder) as (where, wrong):
                place = where / NAMES[store]
                error = run(place, wrong, point, continuation, place if store == "git" else None)
                found.append({"point": point, "continuation": continuation, **said(place, error)})
    except Unavailable as reason:
        print(reason, file=sys.stderr)
        sys.exit(UNAVAILABLE)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
