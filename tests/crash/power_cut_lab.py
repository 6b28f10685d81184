"""Cuts the power of a disk while a shop runs on it, and reports what each cut left. Run by the test.

power_cut_lab.py FOLDER DURABILITY COPIES SEED   print a JSON list of what each cut left

The disk is an ext4 image behind a loop device, and the image's file is what has reached the disk: dirty
pages of its file system are not in it. A copy of it, mounted, is what a power cut leaves of a disk that
has no volatile cache. The copy has to be of one moment. So the image lies on an outer file system,
which is frozen while it is copied: the loop device waits, in the middle of a sync perhaps.

It is run in a mount namespace of its own (`unshare --mount`): however it ends, the mounts and with them
the loop devices go with it. Exit status `UNAVAILABLE` means that this machine cannot do it; the reason
stands on stderr.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import anyio
from power_cut_shop import SESSIONS, Receipt, runtime_of

from reactifact import Context, PendingAction, SessionStore
from reactifact._store._backends.git import journal
from reactifact._store._backends.git.backend import GitBackend
from reactifact.artifacts import Artifact
from reactifact.branching import BranchStore
from reactifact.errors import ReactifactError

UNAVAILABLE = 77

_FIFREEZE = 0xC0045877
_FITHAW = 0xC0045878
_OUTER_SIZE = 160 << 20
_DISK_SIZE = 64 << 20
_READY_WITHIN = 60.0  # seconds until the shop has taken its first orders
_LONGEST_WAIT = 0.2  # seconds between two cuts


class Unavailable(Exception):
    """This machine mounts no loop images, or freezes no file systems."""


@dataclass
class Cut:
    """What one cut left. Everything but the first three is a loss when it is not empty."""

    delivered: int = 0
    returned: int = 0
    put_back: int = 0
    fsck: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    lost_intents: list[str] = field(default_factory=list)
    lost_turns: list[str] = field(default_factory=list)
    lost_branches: list[str] = field(default_factory=list)
    sent_again: list[str] = field(default_factory=list)


# -- disks ---------------------------------------------------------------------------------------


def command(*words: str | Path) -> None:
    """Run a system command. Raises `Unavailable` with what it said."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, env={**os.environ, "PATH": path}
    )
    if done.returncode:
        raise Unavailable(f"`{' '.join(map(str, words))}` failed: {done.stderr.strip()}")


def make_image(path: Path, size: int, *options: str) -> None:
    """Make a file that holds an empty ext4."""
    with path.open("xb") as file:
        file.truncate(size)
    command("mkfs.ext4", "-q", "-F", *options, path)


@contextmanager
def mounted(image: Path, folder: Path) -> Iterator[Path]:
    """Mount an image for the length of a `with`; its loop device goes with the mount."""
    folder.mkdir(exist_ok=True)
    command("mount", "-o", "loop", image, folder)
    try:
        yield folder
    finally:
        command("umount", folder)


@contextmanager
def frozen(folder: Path) -> Iterator[None]:
    """Let nothing be written to a file system for the length of a `with`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.ioctl(descriptor, _FIFREEZE, 0)
        except OSError as error:
            raise Unavailable(f"freezing {folder} failed: {error.strerror}") from error
        try:
            yield
        finally:
            fcntl.ioctl(descriptor, _FITHAW, 0)
    finally:
        os.close(descriptor)


# -- the shop ------------------------------------------------------------------------------------


@contextmanager
def shop(disk: Path, world: Path, durability: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a shop on a disk, and kill it at the end."""
    script = Path(__file__).with_name("power_cut_shop.py")
    process = subprocess.Popen([sys.executable, script, disk / "state.git", world, durability])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def await_orders(process: subprocess.Popen[bytes], world: Path) -> None:
    """Wait until every session has taken an order. Raises `RuntimeError` when the shop ends."""
    deadline = time.monotonic() + _READY_WITHIN
    while time.monotonic() < deadline:
        require_running(process)
        if {f"returned {session_id} 0" for session_id in SESSIONS} <= set(seen_in(world)):
            return
        time.sleep(0.02)
    raise RuntimeError(f"the shop took no orders within {_READY_WITHIN} seconds")


def require_running(process: subprocess.Popen[bytes]) -> None:
    """Raise `RuntimeError` when the shop has ended: there would be nothing to cut."""
    if process.poll() is not None:
        raise RuntimeError(f"the shop ended with status {process.returncode}; its error stands above")


def seen_in(world: Path) -> list[str]:
    """Return the complete lines of the world's file."""
    text = world.read_text() if world.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


def cut_power(outer: Path, world: Path, copy: Path) -> list[str]:
    """Copy the disk as it is at this moment; return what the world had seen before it."""
    seen = seen_in(world)  # first: whatever is seen from here on may be missing in the copy
    with frozen(outer):
        command("cp", "--sparse=always", outer / "disk.img", copy)
    return seen


# -- what is left --------------------------------------------------------------------------------


async def examine(path: Path, durability: str, seen: list[str]) -> Cut:
    """Hold what a copy of the store has against what the world has seen.

    Git finds a store of the durability `strict` sound as it is, others once we have opened them.
    """
    words = [line.split(" ") for line in seen]
    delivered = [(session_id, key) for verb, session_id, key in words if verb == "delivered"]
    returned = [(session_id, number) for verb, session_id, number in words if verb == "returned"]
    branched = [(session_id, name) for verb, session_id, name in words if verb == "branched"]
    cut = Cut(len(delivered), len(returned))
    if durability == "strict":
        cut.fsck = fsck(path)
    if not (path / "HEAD").exists():
        cut.unreadable.append("there is no store")
        cut.lost_intents = [" ".join(one) for one in delivered]
        return cut
    steps: list[str] = []
    journal.boot_id = lambda: "the boot after the cut"
    GitBackend.fault = staticmethod(steps.append)
    store = SessionStore(path)
    GitBackend.fault = None
    cut.put_back = sum(step.startswith("put-back") for step in steps)
    cut.fsck += fsck(path)
    contexts: dict[tuple[str, str], Context] = {}
    try:
        contexts = await every_branch(store, cut)
    except ReactifactError as error:
        cut.unreadable.append(f"the list of sessions: {error}")
    for session_id, key in delivered:
        context = contexts.get((session_id, "main"))
        if context is None or context.get(f"action:{key}") is None:
            cut.lost_intents.append(f"{session_id} {key}")
    for session_id, number in returned:
        context = contexts.get((session_id, "main"))
        action = None if context is None else context.get(f"action:notify:{number}")
        receipt = None if context is None else context.get(f"receipt:{number}")
        if action is None or receipt is None or action.data.status != "dispatched":
            cut.lost_turns.append(f"{session_id} {number}")
    cut.lost_branches = [" ".join(one) for one in branched if one not in contexts]
    if not cut.unreadable:
        await go_on(store, set(delivered), cut)
    await store.aclose()
    return cut


async def every_branch(store: SessionStore, cut: Cut) -> dict[tuple[str, str], Context]:
    """Load every branch of every session and read it; note those that do not read."""
    branches = BranchStore(store.database)
    found: dict[tuple[str, str], Context] = {}
    for session_id in await store.list_sessions():
        for name in ["main", *await branches.list_branches(session_id)]:
            try:
                context = require_whole(await branches.load_branch(session_id, name), deep=name == "main")
            except Exception as error:
                cut.unreadable.append(f"{session_id} {name}: {type(error).__name__}: {error}")
            else:
                found[session_id, name] = context
    return found


def require_whole(context: Context | None, *, deep: bool) -> Context:
    """Read a branch and return it: its newest artifact, or (`deep`) all of them and its whole history.

    That no object of any branch is missing is what `git fsck` says. Raises what reading raises.
    """
    if context is None:
        raise LookupError("it has a ref and does not load")
    artifacts = context.list_artifacts() if deep else [context.latest(Receipt)]
    if not artifacts or None in artifacts:
        raise LookupError("its artifacts are gone")
    if deep and len(context.history()) != context.version:
        raise LookupError(f"it has {len(context.history())} commits, and says {context.version}")
    return context


async def go_on(store: SessionStore, delivered: set[tuple[str, str]], cut: Cut) -> None:
    """Run the sessions again, as the next process would, and note what is sent a second time."""
    for session_id in SESSIONS:
        if not await store.has_session(session_id):
            continue
        session = await store.open(session_id)

        async def dispatch(
            context: Context, action: Artifact[PendingAction], session_id: str = session_id
        ) -> None:
            if (session_id, action.data.idempotency_key) in delivered:
                cut.sent_again.append(f"{session_id} {action.data.idempotency_key}")

        await runtime_of(session.context, session, dispatch).arun()


def fsck(path: Path) -> list[str]:
    """Return what `git fsck --strict` has to say, dangling objects aside."""
    done = subprocess.run(
        ["git", "-C", path, "fsck", "--strict", "--no-dangling", "--no-progress"],
        capture_output=True,
        text=True,
    )
    said = (done.stdout + done.stderr).splitlines()
    return said if said or not done.returncode else [f"git fsck ended with status {done.returncode}"]


# -- all together --------------------------------------------------------------------------------


def experiment(folder: Path, durability: str, copies: int, seed: int) -> list[Cut]:
    """Cut the power `copies` times at random moments, and examine each copy."""
    random_ = random.Random(seed)
    world = folder / "world"
    make_image(folder / "outer.img", _OUTER_SIZE, "-O", "^has_journal")
    cuts: list[Cut] = []
    with mounted(folder / "outer.img", folder / "outer") as outer:
        make_image(outer / "disk.img", _DISK_SIZE)
        with (
            mounted(outer / "disk.img", folder / "disk") as disk,
            shop(disk, world, durability) as process,
        ):
            await_orders(process, world)
            if durability == "os":
                command("sync", "-f", disk)  # so that what is lost is lost from a store that is there
            for number in range(copies):
                time.sleep(random_.uniform(0, _LONGEST_WAIT))
                require_running(process)
                copy = folder / f"copy-{number}.img"
                seen = cut_power(outer, world, copy)
                with mounted(copy, folder / "copy") as survivor:
                    cuts.append(anyio.run(examine, survivor / "state.git", durability, seen))
                copy.unlink()
    return cuts


def main(folder: str, durability: str, copies: str, seed: str) -> None:
    # A frozen file system would outlive us: end by way of every `finally`.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        cuts = experiment(Path(folder), durability, int(copies), int(seed))
    except Unavailable as error:
        print(error, file=sys.stderr)
        sys.exit(UNAVAILABLE)
    print(json.dumps([asdict(cut) for cut in cuts]))


if __name__ == "__main__":
    main(*sys.argv[1:])
