"""Deletions and renames that travel between two stores and a hub, and what is not deleted by them."""

from __future__ import annotations

import subprocess

import pytest
from support import Order, git
from test_sync import Machine, alike, removed

from reactifact._store._history.deleted import DELETED, deleted_ref
from reactifact._store._history.oplog import operations
from reactifact.branching import protect

pytestmark = pytest.mark.anyio

IDEA = "refs/heads/s/idea"


async def shared(a: Machine, b: Machine) -> None:
    """Let both machines hold a branch `idea` with a turn of its own."""
    await a.branches.fork("s/main", "s/idea")
    await work(a, "o-idea")
    await a.branches.tag("s/idea", "good")
    await alike(a, b)
    assert IDEA in b.refs()


async def work(machine: Machine, name: str, branch: str = "idea") -> None:
    context = await machine.branches.load_branch("s", branch)
    assert context is not None
    context.create(Order(item=name), id=name)
    await machine.branches.save_branch(context, session_id="s", name=branch)


async def test_a_branch_that_is_deleted_goes_everywhere(pair: tuple[Machine, Machine]) -> None:
    a, b = pair
    await shared(a, b)
    left = b.refs()[IDEA]
    await a.branches.delete_branch("s", "idea")
    assert IDEA in (await a.sync()).pushed
    report = await b.sync()
    assert report.deleted == [("s", "idea")]
    assert report.to_dict()["deleted"] == [["s", "idea"]]
    await alike(a, b)
    assert IDEA not in a.refs() | b.refs()
    assert IDEA not in git(a.hub, "for-each-ref", "--format=%(refname)").split()
    assert await b.state() == await a.state() != {}
    # the tag that somebody put there stays, and what was dropped is held until a prune
    (last,) = (one for one in operations(b.store.database, "s") if one.kind == "delete")
    assert (last.before, last.after) == ({IDEA: left}, {})
    assert git(b.path, "merge-base", "--is-ancestor", left, "refs/reactifact/kept/s/commits") == ""


async def test_what_was_deleted_is_not_held_by_what_tells_of_it(pair: tuple[Machine, Machine]) -> None:
    a, b = pair
    await a.branches.fork("s/main", "s/idea")
    await work(a, "o-idea")
    await alike(a, b)
    left = a.refs()[IDEA]
    await a.branches.delete_branch("s", "idea")
    await alike(a, b)
    for machine in pair:
        await removed(machine)
    git(a.hub, "gc", "--quiet", "--prune=now")
    for path in (a.path, b.path, a.hub):
        assert subprocess.run(["git", "-C", path, "cat-file", "-e", left], capture_output=True).returncode
    await alike(a, b)
    assert IDEA not in a.refs() | b.refs()


async def test_a_session_that_is_deleted_goes_everywhere(pair: tuple[Machine, Machine]) -> None:
    a, b = pair
    git(a.hub, "config", "receive.denyDeleteCurrent", "ignore")
    await shared(a, b)
    await a.store.delete_session("s")
    assert (await a.sync()).ok
    report = await b.sync()
    assert report.deleted == [("s", "idea"), ("s", "main")]
    for machine in pair:
        report = await machine.sync()
        assert (report.ok, report.made, report.pushed, report.deleted) == (True, [], [], [])
        assert await machine.store.list_sessions() == []
        assert machine.refs() == machine.refs("refs/tags/") == {}
    assert git(a.hub, "for-each-ref", "--format=%(refname)").split() == [deleted_ref("s")]


async def test_a_session_of_the_same_id_is_a_new_one_afterwards(pair: tuple[Machine, Machine]) -> None:
    a, b = pair
    await a.store.delete_session("s")
    await a.turn("again")
    assert (await a.sync()).ok
    report = await b.sync()
    assert report.ok, report.failed
    await alike(a, b)
    assert "again" in await b.state()
    assert "o1" not in await b.state()
    assert a.outside.sent == ["notify:o1", "notify:again"]
    assert await b.drain() == []
    assert b.outside.sent == []


async def test_what_somebody_went_on_with_is_not_deleted(pair: tuple[Machine, Machine]) -> None:
    a, b = pair
    await shared(a, b)
    await a.branches.delete_branch("s", "idea")
    await work(b, "o-more")
    await a.sync()
    report = await b.sync()
    assert report.deleted == []
    assert IDEA in report.pushed
    assert (await a.sync()).made == [("s", "idea")]
    await alike(a, b)
    context = await a.branches.load_branch("s", "idea")
    assert context is not None
    assert context.get("o-more") is not None


async def test_what_somebody_pushed_before_it_is_not_deleted(pair: tuple[Machine, Machine]) -> None:
    a, b = pair
    await shared(a, b)
    await work(b, "o-more")
    await b.sync()
    await a.branches.delete_branch("s", "idea")
    assert (await a.sync()).made == [("s", "idea")]
    await alike(a, b)
    assert IDEA in b.refs()


async def test_a_branch_that_is_put_back_stays(pair: tuple[Machine, Machine]) -> None:
    a, b = pair
    await shared(a, b)
    left = a.refs()[IDEA]
    await a.branches.delete_branch("s", "idea")
    await alike(a, b)
    git(a.path, "update-ref", IDEA, left)
    await alike(a, b)
    assert b.refs()[IDEA] == left
    await b.branches.delete_branch("s", "idea")
    await b.sync()
    assert (await a.sync()).ok


async def test_a_renamed_branch_goes_under_its_old_name(pair: tuple[Machine, Machine]) -> None:
    a, b = pair
    await shared(a, b)
    await a.branches.rename("s/idea", "s/plan")
    await alike(a, b)
    for machine in pair:
        assert IDEA not in machine.refs()
        assert "refs/heads/s/plan" in machine.refs()


async def test_two_that_delete_apart_agree(pair: tuple[Machine, Machine]) -> None:
    a, b = pair
    await shared(a, b)
    await b.branches.fork("s/main", "s/other")
    await alike(a, b)
    await a.branches.delete_branch("s", "idea")
    await b.branches.delete_branch("s", "other")
    await b.branches.delete_branch("s", "idea")
    await alike(a, b)
    assert a.refs().keys() == {"refs/heads/s/main", "refs/heads/s/%outbox"}
    assert a.refs(DELETED) == b.refs(DELETED) != {}


async def test_a_protected_branch_stays_and_comes_back(pair: tuple[Machine, Machine]) -> None:
    a, b = pair
    await shared(a, b)
    protect(b.store.database, ["s/idea"])
    await a.branches.delete_branch("s", "idea")
    await a.sync()
    report = await b.sync()
    assert (report.ok, report.deleted) == (True, [])
    await alike(a, b)
    assert IDEA in a.refs()


async def test_a_branch_that_is_run_is_waited_for_and_then_named(pair: tuple[Machine, Machine]) -> None:
    a, b = pair
    await shared(a, b)
    await a.branches.delete_branch("s", "idea")
    await a.sync()
    with b.store.database.backend.lock("run s/idea"):
        report = await b.sync(wait=0)
        assert [(session, branch) for session, branch, _ in report.failed] == [("s", "")]
        assert IDEA in b.refs()
        assert IDEA not in git(a.hub, "for-each-ref", "--format=%(refname)").split()
    assert (await b.sync()).deleted == [("s", "idea")]
    await alike(a, b)


async def test_a_hub_that_refuses_deletions_is_named_and_its_ref_left_out(
    pair: tuple[Machine, Machine],
) -> None:
    a, b = pair
    await shared(a, b)
    git(a.hub, "config", "receive.denyDeletes", "true")
    await a.branches.delete_branch("s", "idea")
    await a.turn("o2")
    for machine in (a, b, a):
        report = await machine.sync()
        ((session, branch, error),) = report.failed
        assert (session, branch) == ("s", "idea")
        assert "git update-ref -d refs/heads/s/idea" in str(error)
        assert IDEA not in machine.refs()
    assert a.refs() == b.refs()
    assert await a.state() == await b.state()
    git(a.hub, "update-ref", "-d", IDEA)
    await alike(a, b)


async def test_a_hub_that_lost_its_refs_deletes_nothing(pair: tuple[Machine, Machine]) -> None:
    a, b = pair
    await shared(a, b)
    git(a.hub, "update-ref", "-d", IDEA)
    report = await b.sync()
    assert (report.deleted, report.pushed) == ([], [IDEA])
