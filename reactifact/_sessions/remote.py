"""Another store as git reaches it: listing its refs, fetching what they hold, pushing without force.

Owns the calls of the program `git` (any transport it knows, with its own credentials) and what their failures
mean. No ref of ours is moved by git: what was fetched is named by our own compare-and-swap.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import anyio
from blake3 import blake3

from .._store._backends.git.backend import GitBackend
from .._store.objects import Oid
from ..errors import RemoteError, SyncUnsupported

DEFAULT = "origin"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LINE = re.compile(r"([0-9a-f]{40})\t(refs/\S+)")
_PASSWORD = re.compile(r"(?<=://)([^/@:\s]*):[^/@\s]*@")
_FETCH = (
    *("-c", "fetch.unpackLimit=1", "fetch", "--quiet", "--no-tags", "--no-write-fetch-head"),
    *("--no-auto-maintenance", "--no-recurse-submodules", "--stdin"),
)
_PUSH = ("push", "--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no", "--no-signed")
_SHOWN = 600


@dataclass(frozen=True, slots=True)
class Move:
    """A ref of the other store as it was seen (`None`: it was not there), and where it is to stand.

    `new` is empty for one that is to go.
    """

    name: str
    seen: Oid | None
    new: Oid
    is_forward: bool = True

    @property
    def lease(self) -> list[str]:
        """What lets git move it otherwise than forward, as long as nobody else has moved it."""
        return [] if self.is_forward else [f"--force-with-lease={self.name}:{self.seen or ''}"]


@dataclass(frozen=True, slots=True)
class Remote:
    """Another store: what git calls it, its address, and the name under which its refs are noted here."""

    git_dir: str
    url: str
    push_url: str
    name: str
    may_ask: bool = False  # whether git may ask for a password on the terminal

    @property
    def shown(self) -> str:
        """The address for people, without a password."""
        return without_secrets(self.url)

    async def list(self, patterns: Sequence[str]) -> dict[str, Oid]:
        """Return the refs of the other store that patterns name. Raises `RemoteError`."""
        said = await self._git("ls-remote", "--quiet", "--", self.url, *patterns)
        found = (_LINE.fullmatch(line) for line in said.splitlines())
        return {match[2]: match[1] for match in found if match is not None and not match[2].endswith("^{}")}

    async def fetch(self, refs: Iterable[str]) -> None:
        """Bring what refs of the other store reach; in a shallow store, all that came before as well.

        Raises `RemoteError`.
        """
        deeper = ["--unshallow"] if self.is_shallow else []
        await self._git(*_FETCH, *deeper, "--", self.url, text="".join(f"{ref}\n" for ref in refs))

    @property
    def is_shallow(self) -> bool:
        """Whether our store was cloned without its history."""
        return os.path.exists(f"{self.git_dir}/shallow")

    async def push(self, moves: Sequence[Move]) -> str | None:
        """Move refs of the other store, all or none; return why not where it refused.

        A ref that somebody moved since is refused. Raises `RemoteError` where the other
        store cannot be reached.
        """
        leases = [lease for move in moves for lease in move.lease]
        wanted = [f"{move.new}:{move.name}" for move in moves]
        done = await self._run(*_PUSH, "--atomic", *leases, "--", self.push_url, *wanted)
        if done.returncode != 0 and b"--atomic" in done.stderr and not _is_told(done):
            # an old or a plain server: ledgers first, so that no branch is there without its deliveries
            for move in sorted(moves, key=lambda move: not move.name.endswith("/%outbox")):
                one = f"{move.new}:{move.name}"
                done = await self._run(*_PUSH, *move.lease, "--", self.push_url, one)
                if done.returncode != 0:
                    break
        if done.returncode == 0:
            return None
        if not _is_told(done):
            raise self._failed("push", done)
        return _shortened(done.stdout + done.stderr)

    async def _git(self, *arguments: str, text: str = "") -> str:
        done = await self._run(*arguments, text=text)
        if done.returncode != 0:
            raise self._failed(next(one for one in arguments if one in ("ls-remote", "fetch")), done)
        return done.stdout.decode("utf-8", "surrogateescape")

    async def _run(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[bytes]:
        command = ["git", f"--git-dir={self.git_dir}", "-c", "gc.auto=0", *arguments]
        return await _run(command, text, may_ask=self.may_ask)

    def _failed(self, verb: str, done: subprocess.CompletedProcess[bytes]) -> RemoteError:
        why = _shortened(done.stderr) or f"exit code {done.returncode}"
        return RemoteError(
            f"git {verb} with {self.shown} failed: {why}; see that `git ls-remote {self.shown}` works here, "
            f"then sync again: nothing is half done"
        )


async def open_remote(backend: object, place: str | None, *, may_ask: bool = False) -> Remote:
    """Return the other store that a name of git's, an address or a path means; default: the only one known.

    Raises `SyncUnsupported` for a store of ours that is not a git repository, `RemoteError` where there is
    nothing to choose, or no program `git`.
    """
    if not isinstance(backend, GitBackend):
        raise SyncUnsupported(
            f"{getattr(backend, 'location', backend)} is a {type(backend).__name__}, and sync works on a "
            f"bare repository: bring it to one with `reactifact export`, sync that, and use it from then on"
        )
    git_dir = os.path.normpath(backend.repository.path)
    known = await _known(git_dir)
    if place is None:
        place = DEFAULT if DEFAULT in known else next(iter(known), "")
        if not known or (len(known) > 1 and place != DEFAULT):
            named = f"knows {', '.join(sorted(known))}" if known else "knows no remote"
            raise RemoteError(
                f"{backend.location} {named}: name one, give an address or a path, or set one with "
                f"`git --git-dir={backend.location} remote add origin ADDRESS`"
            )
    if place in known:
        url, push_url = known[place]
        return Remote(git_dir, url, push_url, place, may_ask)
    if not place or place.startswith("-"):
        raise RemoteError(f"{place!r} is neither a remote of {backend.location} nor an address or a path")
    if "://" not in place and os.path.exists(place):
        place = os.path.realpath(place)
    name = f"at-{blake3(without_secrets(place).encode()).hexdigest()[:12]}"
    return Remote(git_dir, place, place, name, may_ask)


async def _known(git_dir: str) -> dict[str, tuple[str, str]]:
    """Return the remotes that a repository knows, each with its addresses to fetch from and to push to."""
    command = ["git", f"--git-dir={git_dir}", "remote"]
    names = (await _run([*command], "")).stdout.decode().split()
    found = {}
    for name in names:
        if not _NAME.fullmatch(name):
            continue
        urls = [
            (await _run([*command, "get-url", *push, "--", name], "")).stdout.decode().strip()
            for push in ([], ["--push"])
        ]
        if all(urls):
            found[name] = (urls[0], urls[1])
    return found


async def _run(
    command: Sequence[str], text: str, *, may_ask: bool = False
) -> subprocess.CompletedProcess[bytes]:
    try:
        return await anyio.run_process(
            command,
            input=text.encode("utf-8", "surrogateescape"),
            check=False,
            start_new_session=not may_ask,  # without a terminal git fails where it would wait for a person
        )
    except FileNotFoundError as error:
        raise RemoteError(
            "there is no program `git` to reach another store with: install git 2.29 or newer, and see that "
            "it is on the PATH"
        ) from error


def _is_told(done: subprocess.CompletedProcess[bytes]) -> bool:
    """Tell whether a push ended with an answer about single refs, and not before."""
    return any(line.startswith(b"!") for line in done.stdout.splitlines())


def _shortened(said: bytes) -> str:
    lines = [line.strip() for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    text = without_secrets("; ".join(lines))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def without_secrets(text: str) -> str:
    """Return a text without the passwords of addresses in it."""
    return _PASSWORD.sub(r"\1:***@", text)


def tracking_ref(remote: str, ref: str) -> str:
    """Return the ref under which a branch or a ledger of another store is noted here."""
    return f"refs/remotes/{remote}/{ref.removeprefix('refs/heads/')}"


def changed(seen: Mapping[str, Oid], now: Mapping[str, Oid], moves: Iterable[Move]) -> bool:
    """Tell whether somebody moved a ref of the other store that we meant to move."""
    return any(seen.get(move.name) != now.get(move.name) for move in moves)
