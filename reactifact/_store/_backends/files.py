"""Small file steps that the other modules share: write whole files, sync, turn OS errors into ours.

Paths are plain strings here and in the modules that write: `pathlib` costs as much as the system
calls of a write do. It knows nothing of packs or refs.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from contextlib import suppress

from ...errors import LinkInStore, NotAStore, StoreError

_BLOCK = 4096
_READ = 1024 * 1024  # bytes of one read of a large file

_WAY_OUT = {
    errno.ENOSPC: "free some space and try again",
    errno.EDQUOT: "free some space or raise the quota, and try again",
    errno.EROFS: "mount the file system writable, or use a copy of the store",
    errno.EACCES: "give this user write permission on the store, or use a copy of it",
    errno.EPERM: "give this user write permission on the store, or use a copy of it",
    errno.EMFILE: "raise the limit of open files (ulimit -n), and try again",
}


_PARAMETERS = (  # with one of them the keyword form of a PostgreSQL DSN begins
    "host hostaddr port dbname user password passfile service servicefile options connect_timeout "
    "client_encoding application_name fallback_application_name sslmode target_session_attrs"
)
_ADDRESSES = (
    (re.compile(r"(?s).*://"), "a URL"),
    (
        re.compile(rf"(?s)\s*({'|'.join(_PARAMETERS.split())})\s*=|.*\bpassword\s*="),
        "a PostgreSQL DSN made of keywords",
    ),
    (re.compile(r"(postgres(ql)?|mysql|sqlite|redis|file|https?|ssh|git):"), "an address that lacks its //"),
    (
        re.compile(r":memory:\Z"),
        "SQLite's name for a database in memory (use InMemoryKVBackend())",
    ),
    (re.compile(r"[^/\\\s]+@[^/\\\s:]+:|[^/\\:@\s]+:[^/\\@]*@"), "the address of a user at a host"),
)


def address_kind(place: object) -> str | None:
    """Say what a text is that reads like an address and not like a path; `None` for a path.

    A `Path`, and a text that begins with `/`, `./`, `../` or `~`, is always a path.
    """
    if not isinstance(place, str) or place.startswith(("/", "./", "../", "~")):
        return None
    return next((kind for pattern, kind in _ADDRESSES if pattern.match(place)), None)


def checked_path(place: str | os.PathLike[str]) -> str:
    """Return a place as the text of a path. Raises `NotAStore`, which does not repeat it, for an address."""
    kind = address_kind(place)
    if kind is not None:
        raise NotAStore(
            f"what was given is not a path but {kind}: give a path (./NAME for a file of such a name), or "
            f"postgresql://USER@HOST/DATABASE for a PostgreSQL database"
        )
    return os.fspath(place)


class os_errors:  # noqa: N801 - reads as the verb of a with statement
    """Turn an `OSError` inside into a `StoreError` that names the store, the cause, the way out."""

    __slots__ = ("_doing", "_location")

    def __init__(self, location: str, doing: str) -> None:
        self._location = location
        self._doing = doing

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            cause = error.strerror or str(error)
            where = f" ({error.filename})" if error.filename else ""
            raise StoreError(
                f"{self._doing} {self._location} failed: {cause}{where}; {way_out(error.errno)}"
            ) from error


def way_out(code: int | None) -> str:
    """Return what to do about an error of the system, by its number."""
    return _WAY_OUT.get(code or 0, "check the disk and the folder, and try again")


def disk_trouble(folder: str) -> int | None:
    """Return the number of the error that writing a file to `folder` meets, `None` when it meets none.

    For libraries that say no more than that writing failed. The file has no name and is gone again.
    """
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(bytes(_BLOCK))
            os.fsync(file.fileno())
    except OSError as error:
        return error.errno
    return None


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`, however often the system takes only a part."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_new(path: str, chunks: Iterable[bytes], *, sync: bool, mode: int = 0o644) -> None:
    """Write a file that must not exist yet; on an error nothing of it stays.

    Raises `FileExistsError` and every other `OSError`.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        for chunk in chunks:
            write_all(descriptor, chunk)
        if sync:
            os.fsync(descriptor)
    except BaseException:
        remove(path)
        raise
    finally:
        os.close(descriptor)


def open_plain(path: str, flags: int, mode: int = 0o644) -> int:
    """Open a file of a store, not through a symbolic link; also what `open(opener=)` takes.

    Raises `LinkInStore`, and every `OSError`.
    """
    try:
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    except OSError:
        refuse_links(path)
        raise


def read_plain(path: str) -> bytes:
    """Return the content of a file of a store. Raises `LinkInStore`, and every `OSError`."""
    descriptor = open_plain(path, os.O_RDONLY)
    try:  # a file of `open` asks the system four things more, and most of these are a line
        parts = [os.read(descriptor, _BLOCK)]
        while parts[-1]:
            parts.append(os.read(descriptor, _READ if len(parts) > 1 else _BLOCK))
        return b"".join(parts)
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(descriptor)


def refuse_links(*paths: str) -> None:
    """Raise `LinkInStore` for the first path that is a symbolic link, wherever it leads."""
    for path in paths:
        if os.path.islink(path):
            raise LinkInStore(
                f"{path} is a symbolic link where a store keeps its own files: what it points at would be "
                f"read, changed or deleted for the store's. Put the thing itself there, or take the store "
                f"from a clone (`git clone --mirror`)"
            )


def remove(path: str) -> None:
    """Remove a file, if it is there."""
    try:  # noqa: SIM105 - a write does it often, and `suppress` is three calls
        os.unlink(path)
    except FileNotFoundError:
        pass


def sync_folder(path: str) -> None:
    """Bring the names in a folder to stable storage."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(path: str, *, sync: bool) -> None:
    """Make a folder and its missing parents, syncing the parent of each new one."""
    missing: list[str] = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(folder)
        if sync:
            sync_folder(os.path.dirname(folder))
