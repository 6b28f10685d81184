"""A write that moved the ref and failed afterwards: trying again goes on from it, it is nobody else's."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from support import Note, Order, Outside, action, fsck, git, notifier

from reactifact import Runtime, Session, SessionStore
from reactifact._store._backends.git.backend import GitBackend
from reactifact.errors import StaleSession, StoreError

pytestmark = pytest.mark.anyio

STEPS = ("ref-renamed", "ref-moved", "keep-removed")


class Fault:
    """Let a backend fail once at a step, the `place`-th time it is there."""

    def __init__(self, backend: GitBackend, step: str, place: int = 1) -> None:
        self.step = step
        self.left = place
        backend.fault = self

    def __call__(self, step: str) -> None:
        if step == self.step:
            self.left -= 1
            if self.left == 0:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.fixture
def backend(tmp_path: Path) -> GitBackend:
    return GitBackend(tmp_path / "store.git", durability="os")


async def opened(backend: GitBackend) -> Session:
    return await SessionStore(backend).open("s")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("is_first", [False, True])
async def test_a_save_is_tried_again(
    backend: GitBackend, tmp_path: Path, step: str, more: bool, is_first: bool
) -> None:
    session = await opened(backend)
    if not is_first:
        await session.save()
    session.context.create(Note(text="one"), id="one")
    fault = Fault(backend, step)
    with pytest.raises(StoreError, match="raise the limit of open files"):
        await session.save()
    assert fault.left == 0
    if more:
        session.context.create(Note(text="two"), id="two")
    await session.save()
    session.context.create(Note(text="three"), id="three")
    await session.save()
    again = await opened(GitBackend(tmp_path / "store.git"))
    assert [found.id for found in again.context.list_artifacts(Note)] == ["one", *(["two"] * more), "three"]
    fsck(tmp_path / "store.git")


async def test_somebody_else_who_wrote_on_top_is_not_overwritten(backend: GitBackend) -> None:
    session = await opened(backend)
    session.context.create(Note(text="one"), id="one")
    Fault(backend, "ref-renamed")
    with pytest.raises(StoreError):
        await session.save()
    async with SessionStore(backend).edit("s") as context:
        context.create(Note(text="theirs"), id="theirs")
    with pytest.raises(StaleSession):
        await session.save()
    assert await session.refresh()
    assert {found.id for found in session.context.list_artifacts(Note)} == {"one", "theirs"}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("place", range(1, 3))
async def test_a_turn_goes_on_and_delivers_once(
    backend: GitBackend, tmp_path: Path, step: str, place: int
) -> None:
    session, outside = await opened(backend), Outside()
    session.context.create(Order(item="tea"), id="tea")
    fault = Fault(backend, step, place)
    with pytest.raises(StoreError, match="raise the limit of open files"):
        await Runtime(session.context, [notifier()], session=session, dispatcher=outside).arun()
    assert fault.left == 0
    await Runtime(session.context, [notifier()], session=session, dispatcher=outside).arun()
    assert set(outside.sent) == {"notify:tea"}
    assert action((await opened(backend)).context, "notify:tea").status == "dispatched"
    recorded = git(tmp_path / "store.git", "log", "--format=%s", "s/%outbox").splitlines()
    assert len(recorded) == len(set(recorded)) == 1
    fsck(tmp_path / "store.git")
