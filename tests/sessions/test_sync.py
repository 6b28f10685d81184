"""Two stores and a hub, over real git: what travels, what is merged, what is refused, what is sent."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from machines import Machine, alike, commits, removed
from support import Order, Receipt, fsck, git, notifier

from reactifact import Runtime, RuntimeResources, SessionStore
from reactifact.branching import BranchStore
from reactifact.errors import (
    LeaseHeld,
    LedgerMissing,
    NameTaken,
    RemoteError,
    SyncUnsupported,
    UnknownRevision,
    UnrelatedHistories,
)
from reactifact.testing import JumpingClock

pytestmark = pytest.mark.anyio

LEDGER = "refs/heads/s/%outbox"


async def test_what_one_machine_decided_and_sent_reaches_the_other(pair: tuple[Machine, Machine]) -> None:
    a, b = pair
    assert await b.state() == await a.state()
    assert await b.drain() == []
    await b.turn("o2")
    assert (a.outside.sent, b.outside.sent) == (["notify:o1"], ["notify:o2"])
    await alike(b, a)
    assert await a.drain() == []
    assert a.outside.sent == ["notify:o1"]
    assert {"o1", "o2"} <= (await a.state()).keys()


async def test_both_go_on_apart_and_meet(pair: tuple[Machine, Machine]) -> None:
    a, b = pair
    await a.turn("o2")
    await b.turn("o3")
    await b.branches.fork("s/main", "s/idea")
    await a.branches.tag("s/main", "done")
    await alike(a, b)
    assert await a.state() == await b.state()
    assert {"o1", "o2", "o3"} <= (await a.state()).keys()
    assert "refs/heads/s/idea" in a.refs()
    assert b.refs("refs/tags/") == a.refs("refs/tags/") != {}
    for machine in pair:
        context = await machine.store.load_session("s")
        assert context is not None
        assert {one.data.order for one in context.list_artifacts(Receipt)} == {"o1", "o2", "o3"}
        assert await machine.drain() == []
    assert a.outside.sent + b.outside.sent == ["notify:o1", "notify:o2", "notify:o3"]


async def test_what_waits_on_one_machine_is_sent_by_whichever_drains_first(
    pair: tuple[Machine, Machine],
) -> None:
    a, b = pair
    await a.turn("o2", sends=False)
    await a.sync()
    await b.sync()
    assert await b.drain() == []
    await b.sync()
    await a.sync()
    assert await a.drain() == []
    assert (a.outside.sent, b.outside.sent) == (["notify:o1"], ["notify:o2"])


async def test_events_that_wait_travel_and_those_reacted_to_do_not_come_back(
    pair: tuple[Machine, Machine],
) -> None:
    a, b = pair
    session = await a.store.open("s")
    session.context.create(Order(item="waits"), id="waits")  # no agent runs on it here
    await session.save()
    await b.turn("o2")
    await a.sync()
    await b.sync()
    await a.sync()
    ran: list[str] = []
    for machine in (b, a):
        session = await machine.store.open("s")
        queued = [event.artifact_id for event in session.context.pending_events()]
        assert queued == ([] if ran else ["waits"]), machine.path
        await Runtime(session.context, [notifier()], session=session, dispatcher=machine.outside).arun()
        ran += queued
        await alike(a, b)
    assert sorted(a.outside.sent + b.outside.sent) == ["notify:o1", "notify:o2", "notify:waits"]


async def test_a_conflict_is_named_and_nothing_of_its_branches_is_pushed(
    pair: tuple[Machine, Machine],
) -> None:
    a, b = pair
    for machine, price in ((a, 1), (b, 2)):
        async with machine.store.edit("s") as context:
            context.update("o1", Order(item="o1", price=price))
    await b.turn("o2")
    await b.branches.fork("s/main", "s/idea")
    assert (await a.sync()).ok
    before, there = b.refs(), git(b.hub, "rev-parse", "refs/heads/s/main")
    report = await b.sync()
    assert not report.ok
    (conflict,) = report.conflicts
    assert (conflict.session, conflict.branch) == ("s", "main")
    assert "price" in conflict.text
    assert [detail.artifact_id for detail in conflict.details] == ["o1"]
    assert b.refs() == before
    assert git(b.hub, "rev-parse", "refs/heads/s/main") == there
    # what was sent is told at once, so that nobody sends it again
    assert report.pushed == [LEDGER]
    report = await b.sync(policy="ours")
    assert report.ok
    await alike(a, b)
    assert (await a.state())["o1"]["price"] == 2


async def test_a_session_that_began_apart_under_one_id_is_refused_by_name(tmp_path: Path, hub: Path) -> None:
    a, b = Machine(tmp_path / "a.git", hub), Machine(tmp_path / "b.git", hub)
    await a.turn("o1")
    await b.turn("o1", sends=False)
    assert (await a.sync()).ok
    before, there = b.refs(), git(hub, "for-each-ref")
    report = await b.sync()
    ((session, branch, error),) = report.failed
    assert (session, branch, type(error)) == ("s", "", UnrelatedHistories)
    assert "begun apart" in str(error)
    assert b.refs() == before
    assert git(hub, "for-each-ref") == there
    # its ledger is here now, and is not taken for ours
    assert await b.drain() == []
    assert b.outside.sent == ["notify:o1"]


async def test_a_push_that_somebody_was_faster_than_is_made_again(
    pair: tuple[Machine, Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    await a.turn("o2")
    await b.turn("o3")
    from reactifact._sessions.remote import Remote

    push, raced = Remote.push, []

    async def slow(remote: Remote, moves: Any) -> str | None:
        if remote.git_dir == os.path.realpath(b.path) and not raced:
            raced.append(remote)
            assert (await a.sync()).ok
        return await push(remote, moves)

    monkeypatch.setattr(Remote, "push", slow)
    report = await b.sync()
    assert (report.ok, report.attempts) == (True, 2)
    await alike(a, b)


async def test_a_hub_that_refuses_is_told_with_its_words(pair: tuple[Machine, Machine]) -> None:
    a, _ = pair
    await a.turn("o2")
    hook = a.hub / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'closed on sundays' >&2\nexit 1\n")
    hook.chmod(0o755)
    before = git(a.hub, "for-each-ref")
    with pytest.raises(RemoteError, match="closed on sundays"):
        await a.sync()
    assert git(a.hub, "for-each-ref") == before
    hook.unlink()
    assert (await a.sync()).ok


async def test_without_atomic_pushes_the_ledger_goes_first(pair: tuple[Machine, Machine]) -> None:
    a, b = pair
    git(a.hub, "config", "receive.advertiseAtomic", "false")
    await a.turn("o2")
    report = await a.sync()
    assert report.ok
    await alike(a, b)


# -- going back and compacting ---------------------------------------------------------------------


async def test_what_was_undone_here_does_not_come_back_from_the_hub(pair: tuple[Machine, Machine]) -> None:
    a, b = pair
    await a.turn("o2")
    await a.sync()
    await a.branches.undo("s")
    assert "receipt:o2" not in await a.state()  # what the turn made; the order itself is a direct change
    await b.turn("o3")
    await alike(a, b)
    assert "receipt:o2" not in await b.state()
    assert {"receipt:o1", "receipt:o3"} <= (await a.state()).keys()
    assert await a.drain() == await b.drain() == []
    assert sorted(a.outside.sent + b.outside.sent) == ["notify:o1", "notify:o2", "notify:o3"]


async def test_an_undo_that_is_taken_back_leaves_nothing_behind(pair: tuple[Machine, Machine]) -> None:
    a, b = pair
    await a.turn("o2")
    await a.sync()
    await a.branches.undo("s")
    await a.branches.redo("s")
    assert (await a.sync()).pushed == []
    await b.sync()
    assert "o2" in await b.state()


async def test_a_compaction_here_meets_what_was_done_there(pair: tuple[Machine, Machine]) -> None:
    a, b = pair
    for number in range(2, 6):
        await a.turn(f"o{number}")
    await a.sync()
    await b.sync()
    await a.branches.tag("s/main", "fifth")
    await a.sync()
    await b.sync()
    session = await a.store.open("s")
    assert session.context.compact(keep_commits=1) > 0  # it makes the tagged commit anew
    await a.turn("o6")
    await b.turn("o7")
    await alike(a, b)
    assert await a.state() == await b.state()
    assert {f"o{number}" for number in range(1, 8)} <= (await a.state()).keys()


async def test_a_hub_that_was_compacted_is_followed_and_the_log_says_so(
    pair: tuple[Machine, Machine],
) -> None:
    a, b = pair
    for number in range(2, 6):
        await a.turn(f"o{number}")
    await alike(a, b)
    before = b.refs()["refs/heads/s/main"]
    session = await SessionStore(a.hub).open("s")
    assert session.context.compact(keep_commits=1) > 0
    report = await b.sync()
    assert report.forwarded == [("s", "main")]
    assert b.refs()["refs/heads/s/main"] != before
    assert await b.state() == await a.state()
    assert "follow" in await b.branches.undo("s")
    assert b.refs()["refs/heads/s/main"] == before


async def compacted(machine: Machine) -> None:
    session = await machine.store.open("s")
    assert session.context.compact(keep_commits=1) > 0
    await session.save()


async def test_a_compaction_saves_its_space_in_every_store(pair: tuple[Machine, Machine]) -> None:
    a, b = pair
    for number in range(2, 8):
        await a.turn(f"o{number}")
    await a.branches.tag("s/main", "seventh")
    await alike(a, b)
    many, left = commits(a.path), a.refs()["refs/heads/s/main"]
    await compacted(a)
    await a.turn("o8")
    report = await a.sync()
    assert {"refs/heads/s/main", "refs/tags/s/seventh"} <= set(report.pushed)
    assert (await b.sync()).forwarded == [("s", "main")]
    await alike(a, b)
    assert git(b.path, "merge-base", "--is-ancestor", left, "refs/reactifact/kept/s/commits") == ""
    for machine in pair:
        await removed(machine)
    git(a.hub, "gc", "--quiet", "--prune=now")
    assert commits(a.path) == commits(b.path) < many
    assert commits(a.hub) < many
    assert await a.state() == await b.state()
    assert {f"o{number}" for number in range(1, 9)} <= (await b.state()).keys()
    assert await a.drain() == await b.drain() == []
    assert sorted(a.outside.sent + b.outside.sent) == [f"notify:o{number}" for number in range(1, 9)]


async def test_a_compaction_that_was_followed_is_gone_back_from(pair: tuple[Machine, Machine]) -> None:
    a, b = pair
    for number in range(2, 6):
        await a.turn(f"o{number}")
    await alike(a, b)
    before = b.refs()["refs/heads/s/main"]
    await compacted(a)
    await a.sync()
    await b.sync()
    assert b.refs() == a.refs() != {}
    assert "follow" in await b.branches.undo("s")
    assert b.refs()["refs/heads/s/main"] == before
    await alike(b, a)
    assert await a.state() == await b.state()


async def test_nothing_is_replaced_at_a_hub_that_holds_what_the_compacted_one_lacks(
    pair: tuple[Machine, Machine],
) -> None:
    a, b = pair
    for number in range(2, 6):
        await a.turn(f"o{number}")
    await alike(a, b)
    await compacted(a)
    await b.turn("o6")
    await b.sync()
    report = await a.sync()
    assert report.merged == [("s", "main")]
    assert "o6" in await a.state()
    await alike(a, b)
    await compacted(a)  # nobody wrote meanwhile
    many = commits(a.hub)
    await alike(a, b)
    git(a.hub, "gc", "--quiet", "--prune=now")
    assert commits(a.hub) < many


async def test_a_hub_whose_refs_only_go_forward_gets_the_old_history_below(
    pair: tuple[Machine, Machine],
) -> None:
    a, b = pair
    for number in range(2, 6):
        await a.turn(f"o{number}")
    await alike(a, b)
    git(a.hub, "config", "receive.denyNonFastForwards", "true")
    before = b.refs()["refs/heads/s/main"]
    await compacted(a)
    report = await a.sync()
    assert report.ok
    await alike(a, b)
    git(a.hub, "merge-base", "--is-ancestor", before, "refs/heads/s/main")


# -- stores that lack something --------------------------------------------------------------------


def single(hub: Path, to: Path) -> None:
    git(hub, "clone", "--quiet", "--bare", "--single-branch", "--branch", "s/main", hub.as_uri(), str(to))


def shallow(hub: Path, to: Path) -> None:
    git(hub, "clone", "--quiet", "--bare", "--depth", "1", "--branch", "s/main", hub.as_uri(), str(to))


def shallow_mirror(hub: Path, to: Path) -> None:
    git(hub, "clone", "--quiet", "--mirror", "--depth", "1", hub.as_uri(), str(to))


def mirror(hub: Path, to: Path) -> None:
    git(hub, "clone", "--quiet", "--mirror", hub.as_uri(), str(to))


def deleted(hub: Path, to: Path) -> None:
    mirror(hub, to)
    git(to, "update-ref", "-d", LEDGER)


def set_back(hub: Path, to: Path) -> None:
    mirror(hub, to)
    git(to, "update-ref", LEDGER, git(to, "rev-parse", f"{LEDGER}~1").strip())


@pytest.mark.parametrize("lose", [single, shallow, deleted, set_back])
async def test_a_store_without_its_ledger_sends_nothing_until_a_sync_brings_it(
    tmp_path: Path, pair: tuple[Machine, Machine], lose: Callable[[Path, Path], None]
) -> None:
    a, _ = pair
    await a.turn("o2")
    await a.turn("o3", sends=False)
    assert (await a.sync()).ok
    lose(a.hub, tmp_path / "c.git")
    c = Machine(tmp_path / "c.git", a.hub)
    with pytest.raises(LedgerMissing, match="reactifact sync"):
        await c.turn("o4")
    (why,) = await c.drain()
    assert "reactifact sync" in why
    assert c.outside.sent == []
    report = await c.branches.sync()  # `origin`, as git clone set it
    assert report.ok, report
    assert await c.drain() == []
    assert c.outside.sent == ["notify:o3", "notify:o4"]
    await alike(c, a)


@pytest.mark.parametrize("clone", [mirror, shallow_mirror])
async def test_a_mirror_is_a_store_that_syncs(
    tmp_path: Path, pair: tuple[Machine, Machine], clone: Callable[[Path, Path], None]
) -> None:
    a, _ = pair
    await a.turn("o2", sends=False)
    await a.sync()
    clone(a.hub, tmp_path / "c.git")
    c = Machine(tmp_path / "c.git", a.hub)
    assert (await c.branches.sync()).ok
    assert await c.drain() == []
    assert c.outside.sent == ["notify:o2"]
    await c.turn("o3")
    assert (await c.branches.sync()).ok
    await alike(a, c)


async def test_a_ledger_that_git_fetched_counts_before_anything_is_sent(
    pair: tuple[Machine, Machine],
) -> None:
    a, b = pair
    await a.turn("o2", sends=False)
    await a.sync()
    await b.sync()
    assert await a.drain() == []
    git(a.path, "push", "--quiet", str(a.hub), LEDGER)
    git(b.path, "fetch", "--quiet", str(b.hub), "+refs/heads/*:refs/remotes/origin/*")
    assert await b.drain() == []
    assert b.outside.sent == []
    # and where a branch was lost, the ledger too
    git(b.path, "update-ref", "-d", LEDGER)
    await b.turn("o3")
    assert b.outside.sent == ["notify:o3"]
    git(b.path, "update-ref", "-d", LEDGER)
    rebuilt = await b.store.rebuild_ledger("s")
    # not `o2`, which the fetched one has
    assert (rebuilt.lost, rebuilt.wait) == (0, ("action:notify:o3",))


# -- what cannot be, and what it says ---------------------------------------------------------------


async def test_what_is_asked_for_wrongly_is_refused_by_name(
    tmp_path: Path, pair: tuple[Machine, Machine]
) -> None:
    a, _ = pair
    with pytest.raises(RemoteError, match="knows no remote"):
        await a.branches.sync()
    with pytest.raises(RemoteError, match="ls-remote"):
        await a.branches.sync(str(tmp_path / "nowhere.git"))
    with pytest.raises(RemoteError, match="neither a remote"):
        await a.branches.sync("--upload-pack=touch x")
    with pytest.raises(UnknownRevision, match="nobody"):
        await a.sync(sessions=["nobody"])
    with pytest.raises(SyncUnsupported, match=r"state\.db.*reactifact export"):
        await BranchStore(tmp_path / "state.db").sync(str(a.hub))
    secret = "https://me:hunter2@localhost:1/x.git"
    with pytest.raises(RemoteError) as caught:
        await a.branches.sync(secret)
    assert "hunter2" not in str(caught.value)


async def test_a_tag_that_stands_elsewhere_is_named(pair: tuple[Machine, Machine]) -> None:
    a, b = pair
    await a.branches.tag("s/main", "done")
    await b.turn("o2")
    await b.branches.tag("s/main", "done")
    await a.sync()
    report = await b.sync()
    assert [(name, type(error)) for _, name, error in report.failed] == [("done", NameTaken)]
    assert "refs/heads/s/main" in report.pushed  # which holds no branch up


async def test_only_the_sessions_that_are_asked_for_travel(
    tmp_path: Path, pair: tuple[Machine, Machine]
) -> None:
    a, b = pair
    for name in ("x", "y"):
        session = await a.store.open(name)
        session.context.create(Order(item=name), id=name)
        await session.save()
    await a.sync(sessions=["x"])
    await b.sync()
    assert await b.store.list_sessions() == ["s", "x"]
    git(a.hub, "update-ref", "refs/heads/master", git(a.hub, "rev-parse", "refs/heads/x/main").strip())
    await alike(a, b)  # a branch that is no session's is nobody's business
    assert await b.store.list_sessions() == ["s", "x", "y"]


async def test_long_ids_travel_too(tmp_path: Path, hub: Path) -> None:
    a, b = Machine(tmp_path / "a.git", hub), Machine(tmp_path / "b.git", hub)
    name = "a long id / with everything: " * 20
    session = await a.store.open(name)
    session.context.create(Order(item="x"), id="x")
    await session.save()
    await alike(a, b)
    assert await b.store.list_sessions() == [name]


# -- leases -----------------------------------------------------------------------------------------


async def test_the_holder_of_a_lease_alone_delivers(pair: tuple[Machine, Machine]) -> None:
    a, b = pair
    clock = JumpingClock()
    timed = RuntimeResources(clock=clock)
    report = await a.sync(lease=60, name="laptop A", resources=timed)
    assert report.ok
    assert list(report.leases) == ["s"]
    await b.sync(resources=timed)

    async def drain(machine: Machine) -> list[str]:
        found = await machine.store.drain(machine.outside, resources=timed)
        return [error for _, _, error in found.failed]

    await b.turn("o2", sends=False)
    (why,) = await drain(b)
    assert "laptop A" in why
    report = await b.sync(lease=60, resources=timed)
    assert [type(error) for _, _, error in report.failed] == [LeaseHeld]
    await a.sync(resources=timed)
    assert await drain(a) == []
    assert (a.outside.sent, b.outside.sent) == (["notify:o1", "notify:o2"], [])
    await alike(a, b)

    clock.advance(200)  # it ran out
    await a.turn("o3", sends=False)
    (why,) = await drain(a)
    assert "ran out" in why
    assert (await b.sync(lease=60, name="laptop B", resources=timed)).ok
    assert (await a.sync(resources=timed)).ok
    await b.sync(resources=timed)
    (why,) = await drain(a)
    assert "laptop B" in why
    assert await drain(b) == []
    assert b.outside.sent == ["notify:o3"]

    await b.sync(lease=0, resources=timed)  # given back: as without a lease
    await a.turn("o4", sends=False)
    await a.sync(resources=timed)
    assert await drain(a) == []
    assert a.outside.sent == ["notify:o1", "notify:o2", "notify:o4"]


async def test_a_lease_that_runs_out_during_a_drain_ends_it(pair: tuple[Machine, Machine]) -> None:
    a, _ = pair
    clock = JumpingClock()
    timed = RuntimeResources(clock=clock)
    for name in ("o2", "o3"):
        await a.turn(name, sends=False)
    await a.sync(lease=60, resources=timed)

    def send(context: Any, action: Any) -> None:
        a.outside.sent.append(action.data.idempotency_key)
        clock.advance(61)

    report = await a.store.drain(send, resources=timed)
    assert a.outside.sent == ["notify:o1", "notify:o2"]
    assert "ran out" in report.failed[0][2]


async def test_a_copy_of_a_store_does_not_have_its_lease(
    tmp_path: Path, pair: tuple[Machine, Machine]
) -> None:
    a, _ = pair
    await a.turn("o2", sends=False)
    await a.sync(lease=3600)
    subprocess.run(["cp", "-r", a.path, tmp_path / "copy.git"], check=True)
    mirror(a.hub, tmp_path / "mirror.git")
    for name in ("copy.git", "mirror.git"):
        (why,) = await Machine(tmp_path / name, a.hub).drain()
        assert "has its lease" in why
    assert await a.drain() == []


# -- what somebody made with git at the hub --------------------------------------------------------


def edit_by_hand(hub: Path, folder: Path, text: str) -> None:
    """Change the payload of `o1` in a clone of the hub, and push it."""
    git(folder.parent, "clone", "--quiet", "--branch", "s/main", str(hub), str(folder))
    (path,) = folder.glob("artifacts/*/**/o1.json")
    path.write_text(text)
    git(folder, "-c", "user.name=Ann", "-c", "user.email=ann@example.com", "commit", "-qam", "by hand")
    git(folder, "push", "--quiet", "origin", "s/main")


async def test_a_commit_made_at_the_hub_meets_what_was_done_here(
    tmp_path: Path, pair: tuple[Machine, Machine]
) -> None:
    a, b = pair
    edit_by_hand(a.hub, tmp_path / "work", '{"item": "o1", "status": "seen", "price": 9, "carrier": ""}')
    await b.turn("o2")
    await alike(b, a)
    for machine in pair:
        state = await machine.state()
        assert state["o1"]["price"] == 9
        assert "receipt:o2" in state
    fsck(a.hub)


async def test_a_commit_that_is_no_state_is_named_and_ours_stays(
    tmp_path: Path, pair: tuple[Machine, Machine]
) -> None:
    a, b = pair
    edit_by_hand(a.hub, tmp_path / "work", '{"item": "o1", "price": "many"}')
    await b.turn("o2")
    before = b.refs()
    report = await b.sync()
    ((_, branch, error),) = report.failed
    assert branch == "main"
    assert "price" in str(error)
    assert b.refs() == before
