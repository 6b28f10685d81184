"""Bundles: refs and the objects they need in one file, in git's own format (version 2).

Owns the bytes of the file and `BundleBackend`, which reads one as a store. `git bundle verify`,
`git clone FILE` and `git fetch FILE` work on what is written here; what git writes is read too, as
long as it rests on no objects outside of it. Which refs go into a bundle is decided elsewhere.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence

from ..errors import NotAStore, ObjectTooLarge, StoreError
from .bare.pack import build_pack
from .files import checked_path, os_errors, remove, sync_folder, write_all
from .memory import MemoryBackend
from .objects import MAX_OBJECT, GitObject, Oid, references
from .protocol import ObjectBackend, RefUpdate
from .unpack import MAX_TOTAL, DamagedPack, unpack

SIGNATURES = (b"# v2 git bundle\n", b"# v3 git bundle\n")
_LINE = re.compile(rb"([0-9a-f]{40}) ([^\n]+)")


def is_bundle(path: str | os.PathLike[str]) -> bool:
    """Tell whether a path is a file that begins as a bundle does."""
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            return file.read(len(SIGNATURES[0])) in SIGNATURES
    except OSError:
        return False


def encode_bundle(refs: Mapping[str, Oid], objects: Mapping[Oid, GitObject]) -> bytes:
    """Return the bytes of a bundle that rests on nothing outside of it.

    `HEAD`, if it is among the refs, comes last, so that a clone knows what to check out.
    """
    names = sorted(refs, key=lambda name: (name == "HEAD", name))
    header = SIGNATURES[0] + b"".join(f"{refs[name]} {name}\n".encode() for name in names) + b"\n"
    return header + build_pack(objects).pack


def decode_bundle(
    data: bytes, location: str, *, max_object: int = MAX_OBJECT, max_total: int = MAX_TOTAL
) -> tuple[dict[str, Oid], dict[Oid, GitObject]]:
    """Return the refs and the objects in the bytes of a bundle.

    Raises `NotAStore`, naming `location`, for bytes that are none, that are damaged, or that need
    objects which are not in them, and `ObjectTooLarge` where they become more than is taken.
    """
    end = data.find(b"\n\n")
    if data[: len(SIGNATURES[0])] not in SIGNATURES or end < 0:
        raise NotAStore(f"{location} is no git bundle; give the file that `reactifact bundle` wrote")
    refs: dict[str, Oid] = {}
    for line in data[len(SIGNATURES[0]) : end].split(b"\n"):
        if line.startswith(b"@") and line != b"@object-format=sha1":
            raise NotAStore(
                f"{location} asks for {line[1:].decode(errors='replace')}, which cannot be read; make the "
                f"bundle with `git bundle create --version=2`"
            )
        if line.startswith(b"-"):
            raise NotAStore(
                f"{location} holds a part of a history and rests on commit {line[1:13].decode()}: make it "
                f"of the whole, with `reactifact bundle` or `git bundle create FILE --all`"
            )
        if line.startswith(b"@"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise NotAStore(f"{location} is damaged: {line[:60]!r} is no ref; copy it again")
        refs[match[2].decode(errors="replace")] = match[1].decode()
    try:
        objects = unpack(data[end + 2 :], max_object=max_object, max_total=max_total)
    except ObjectTooLarge as error:
        raise ObjectTooLarge(f"{location}: {error}") from error
    except (DamagedPack, IndexError) as error:
        raise NotAStore(f"{location} is damaged: {error}; copy it again from where it was made") from error
    missing = sorted(name for name, oid in refs.items() if oid not in objects)
    if missing:
        raise NotAStore(f"{location} is damaged: it lacks the commit of {missing[0]}; make it again")
    return refs, objects


def write_bundle(
    path: str | os.PathLike[str], refs: Mapping[str, Oid], objects: Mapping[Oid, GitObject]
) -> int:
    """Write a bundle to `path`, whole or not at all; return its size in bytes.

    A file of that name is replaced. Raises `StoreError` when the disk refuses.
    """
    place = checked_path(path)
    data = encode_bundle(refs, objects)
    folder = os.path.dirname(os.path.abspath(place))
    with os_errors(place, "writing"):
        descriptor, temporary = tempfile.mkstemp(prefix=".bundle-", dir=folder)
        try:
            try:
                os.fchmod(descriptor, 0o644)
                write_all(descriptor, data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, place)
        except BaseException:
            remove(temporary)
            raise
        sync_folder(folder)
    return len(data)


class BundleBackend(MemoryBackend):
    """A bundle read as a store: everything is in memory, nothing can be written.

    Raises `NotAStore` for a file that is no bundle or is damaged, `ObjectTooLarge` for one that says that
    an object has more than `max_object` bytes, or all of them more than `max_total`.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, max_object: int = MAX_OBJECT, max_total: int = MAX_TOTAL
    ) -> None:
        self._path = os.fspath(path)
        super().__init__()
        with os_errors(self._path, "reading"), open(self._path, "rb") as file:
            data = file.read()
        refs, objects = decode_bundle(data, self._path, max_object=max_object, max_total=max_total)
        super().write(objects)
        inner = {name: oid for name, oid in refs.items() if name.startswith("refs/")}
        super().write({}, [RefUpdate(name, None, oid) for name, oid in inner.items()])

    @property
    def location(self) -> str:
        """The path as it was given."""
        return self._path

    def write(self, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate] = ()) -> None:
        """Refuse. Raises `StoreError`."""
        raise StoreError(
            f"{self._path} is a bundle, which is only read: `git clone --mirror {self._path} DIR` makes "
            f"a store of it"
        )


def reachable(backend: ObjectBackend, starts: Iterable[Oid]) -> dict[Oid, GitObject]:
    """Return everything that some commits, tags, trees or blobs reach, read level by level.

    Raises `MissingObject`.
    """
    found: dict[Oid, GitObject] = {}
    level = set(starts)
    while level:
        read = backend.read_many(level)
        found.update(read)
        below: set[Oid] = set()
        for item in read.values():
            below.update(oid for oid, _ in references(item))
        level = below - found.keys()
    return found
