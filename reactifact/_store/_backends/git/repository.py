"""The bare repository itself: made, recognised, refused with a reason, and set up for us.

It owns the skeleton, the settings (`gc.auto` and its like) and `info/attributes`. What is stored in
the repository is the business of the other modules.
"""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from pathlib import Path

import pygit2
from pygit2.enums import RepositoryOpenFlag

from ....errors import NotAStore, StoreError
from ..files import make_folders, os_errors, refuse_links, sync_folder, write_new
from .pack_folder import Step
from .packed_refs import GitLocks

ATTRIBUTES = (
    "* -text -merge",
    ".reactifact/** -diff merge=union linguist-generated",
    "outbox/** -diff merge=union linguist-generated",
)
SETTINGS = {
    "gc.auto": "0",
    "receive.autogc": "false",
    "maintenance.auto": "false",
    "core.logallrefupdates": "true",  # so that what a forced push leaves behind is known
}
_AS_GOOD = {"core.logallrefupdates": ("always",)}

_CREATING = "reactifact-creating"
_FOLDERS = ("info", "objects/info", "objects/pack", "refs/heads", "refs/tags")
_OWN = (
    *(_CREATING, "HEAD", "config", "description", "info", "info/attributes", "packed-refs"),
    *("objects", "objects/info", "objects/info/commit-graphs", "objects/pack"),
    *("refs", "refs/heads", "refs/tags"),
    *("logs", "logs/refs", "logs/refs/heads", "logs/HEAD"),
    *("reactifact", "reactifact/identity", "reactifact/locks", "reactifact/writers"),
    "reactifact/journal",
)
"""What is written, or emptied, in the repository itself; `refs` looks at what lies below it."""

_CONFIG = """\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = true
\tlogallrefupdates = true
[gc]
\tauto = 0
[receive]
\tautogc = false
[maintenance]
\tauto = false
"""
_HARMLESS = frozenset({"lost+found"})  # stands at the root of a freshly made file system
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
_SETTINGS_OF_THE_USER = (".gitconfig'", "/git/config'")


def open_repository(path: Path, location: str, *, create: bool, sync: bool, step: Step) -> pygit2.Repository:
    """Open the bare repository at `path`; with `create`, make it where there is nothing yet.

    Raises `NotAStore` naming path, cause and way out (`LinkInStore` for a part of it that is a link);
    `StoreError` when it cannot be created.
    """
    refuse_links(*(str(path / name) for name in _OWN))
    if path.exists() and not path.is_dir():
        raise NotAStore(
            f"{location} is a file, and a store is a folder; give the path of a folder. {_imported(location)}"
        )
    if not path.exists() and not create:
        raise NotAStore(f"there is nothing at {location}; check the path, or make a store there first")
    with os_errors(location, "opening"):
        if not path.exists() or _is_unmade(path):
            if not create:
                raise NotAStore(f"{location} is an empty folder; check the path, or make a store there first")
            _make(path, sync=sync, step=step)
        _recognise(path, location)
    return _open(path, location)


def settle(repository: pygit2.Repository, locks: GitLocks) -> bool:
    """See to it that settings and attributes are there.

    Returns false when they are missing and the store is read-only: reading needs none of them.
    """
    git_dir = Path(repository.path)
    if not (_missing_settings(git_dir) or _missing_attributes(git_dir)):
        return True
    if not os.access(git_dir, os.W_OK):
        return False
    try:
        with locks.between_ours("settings", "the settings"):
            if names := _missing_settings(git_dir):
                with locks.file("config") as lock:
                    lock.write(_with_settings(git_dir, names))
                    lock.commit()
            if missing := _missing_attributes(git_dir):
                with locks.file("info/attributes") as lock:
                    lock.write(_with_attributes(git_dir, missing))
                    lock.commit()
    except OSError as error:
        if error.errno in _READ_ONLY:
            return False
        raise
    except pygit2.GitError as error:
        raise StoreError(
            f"the settings of {git_dir} cannot be written: {error}; see who holds its `config`, then retry"
        ) from error
    return True


def is_unmade(path: Path, location: str) -> bool:
    """Tell whether there is nothing at a path yet, and a store may be made there.

    Raises `NotAStore` where what it would stand in is not a folder, `LinkInStore`, `StoreError`.
    """
    if not os.path.lexists(path):
        above = next(folder for folder in path.parents if os.path.lexists(folder))
        if not above.is_dir():
            raise NotAStore(f"{location} cannot be made: {above} is not a folder; choose another path")
        return True
    refuse_links(*(str(path / name) for name in _OWN))
    with os_errors(location, "opening"):
        return path.is_dir() and _is_unmade(path)


def _is_unmade(path: Path) -> bool:
    """Tell whether the folder is empty, or somebody is (or was, when killed) making a store of it."""
    names = set(os.listdir(path)) - _HARMLESS
    return not names or (_CREATING in names and "HEAD" not in names)


def _make(path: Path, *, sync: bool, step: Step) -> None:
    """Make the repository in place; of several makers one does it and the others find it done.

    `HEAD` comes last: without it nobody takes the folder for a repository, and the mark lets the
    next maker finish what a killed one began.
    """
    make_folders(str(path), sync=sync)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if not _is_unmade(path):
            return
        (path / _CREATING).touch()
        step("store-marked")
        for name in _FOLDERS:
            make_folders(str(path / name), sync=sync)
            step("store-folder-made")
        for name, text in (
            ("config", _CONFIG),
            ("description", "State of agents, kept by reactifact.\n"),
            ("info/attributes", "".join(f"{line}\n" for line in ATTRIBUTES)),
            ("HEAD", "ref: refs/heads/main\n"),
        ):
            new = path / f"{name}.new"
            new.unlink(missing_ok=True)
            write_new(str(new), [text.encode()], sync=sync)
            os.rename(new, path / name)
            step("store-file-renamed")
        if sync:
            sync_folder(str(path / "info"))
            sync_folder(str(path))
        (path / _CREATING).unlink()
        step("store-made")
    finally:
        os.close(folder)


def _recognise(path: Path, location: str) -> None:
    """Refuse what is not a repository we can use. Raises `NotAStore`."""
    if not all((path / name).exists() for name in ("HEAD", "objects", "refs")):
        if (path / ".git").exists():
            raise _work_tree(path, location)
        if any(name.endswith(".json") for name in os.listdir(path)):
            raise NotAStore(
                f"{location} is a folder with JSON files in it and no git repository. {_imported(location)}"
            )
        raise NotAStore(
            f"{location} is a folder with other things in it and no git repository; "
            f"give an empty folder, a new path, or a bare repository"
        )
    config = _read_config(path, location)
    if (hashing := (config.get("extensions.objectformat") or "sha1").lower()) != "sha1":
        raise NotAStore(
            f"{location} is a {hashing} repository, and a store needs sha1; make a new store "
            f"(`git init --bare --object-format=sha1`) and import into it"
        )
    if (refs := (config.get("extensions.refstorage") or "files").lower()) != "files":
        raise NotAStore(
            f"{location} keeps its refs as {refs}, and a store needs files; convert it with "
            f"`git refs migrate --ref-format=files`"
        )


def _imported(location: str) -> str:
    return (
        f"If an earlier reactifact wrote it, bring it over with `reactifact import {location} NEW_STORE`; "
        f"else choose another path"
    )


def _open(path: Path, location: str) -> pygit2.Repository:
    try:
        repository = pygit2.Repository(str(path), RepositoryOpenFlag.NO_SEARCH)
    except pygit2.GitError as error:
        if "owned by current user" in str(error):
            raise NotAStore(
                f"{location} belongs to another user, and git refuses such repositories; change its owner, "
                f"or allow it with `git config --global --add safe.directory {path}`"
            ) from error
        if any(name in str(error) for name in _SETTINGS_OF_THE_USER):
            raise StoreError(
                f"opening {location} failed: {error}: git's own settings of this user cannot be read; set "
                f"HOME to a folder that this user may read, then try again"
            ) from error
        raise NotAStore(
            f"{location} cannot be opened as a git repository: {error}; see what `git -C {path} fsck` says"
        ) from error
    if not repository.is_bare:
        raise _work_tree(path, location)
    return repository


def _work_tree(path: Path, location: str) -> NotAStore:
    return NotAStore(
        f"{location} is a repository with a work tree, and a store is bare; make a bare one of it with "
        f"`git clone --bare {path} {path.name or 'store'}.git` and give that path"
    )


def _read_config(git_dir: Path, location: str) -> dict[str, str | None]:
    path = git_dir / "config"
    try:
        if not path.is_file():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return {entry.name: entry.value for entry in pygit2.Config(str(path))}
    except (OSError, pygit2.GitError, UnicodeDecodeError) as error:
        raise NotAStore(
            f"{location} has no readable `config` ({error}); restore it from a clone or a backup"
        ) from error


def _missing_settings(git_dir: Path) -> list[str]:
    config = _read_config(git_dir, str(git_dir))
    found = ((name, value, config.get(name)) for name, value in SETTINGS.items())
    return [name for name, value, held in found if held != value and held not in _AS_GOOD.get(name, ())]


def _missing_attributes(git_dir: Path) -> list[str]:
    try:
        present = (git_dir / "info/attributes").read_text(errors="surrogateescape").splitlines()
    except FileNotFoundError:
        present = []
    return [line for line in ATTRIBUTES if line not in present]


def _with_settings(git_dir: Path, names: list[str]) -> bytes:
    """Return the content of `config` with our settings. Libgit2 edits a copy, under no lock of git's."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "config"
        copy.write_bytes((git_dir / "config").read_bytes())
        config = pygit2.Config(str(copy))
        for name in names:
            config[name] = SETTINGS[name]
        return copy.read_bytes()


def _with_attributes(git_dir: Path, missing: list[str]) -> bytes:
    try:
        present = (git_dir / "info/attributes").read_bytes()
    except FileNotFoundError:
        present = b""
    if present and not present.endswith(b"\n"):
        present += b"\n"
    return present + "".join(f"{line}\n" for line in missing).encode()


def require_settled(settled: bool, location: str) -> None:
    """Refuse to write to a store whose settings would let git throw our objects away."""
    if not settled:
        raise StoreError(
            f"{location} lacks the settings of a store ({', '.join(SETTINGS)}) and they cannot be "
            f"written; give this user write permission on it"
        )
