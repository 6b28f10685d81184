"""`reactifact branch`: list, save, rename, merge, revert."""

from __future__ import annotations

import anyio
import pytest
from shop import Order

from reactifact import SessionStore
from reactifact.branching import BranchStore
from reactifact.cli.common import open_store


def customers(path, session="s", branch="main"):
    """Return what a branch holds, read anew."""

    async def read():
        store = BranchStore(open_store(path))
        context = await store.load_branch(session, branch)
        await store.aclose()
        return {a.id: a.data.customer for a in context.list_artifacts(Order)}

    return anyio.run(read)


def edit(path, changes, session="s", branch="main"):
    """Write orders of a branch."""

    async def write():
        store = SessionStore(open_store(path))
        async with store.edit(session, branch) as context:
            for artifact_id, customer in changes.items():
                if context.update(artifact_id, Order(customer=customer)) is None:
                    context.create(Order(customer=customer), id=artifact_id)
        await store.aclose()

    anyio.run(write)


@pytest.fixture(params=["s.git", "s.db"])
def path(request, tmp_path):
    found = tmp_path / request.param
    edit(found, {"o1": "ann"})
    return found


def test_branches_are_saved_and_listed(run, path):
    found = run("branch", path, "s", "list")
    assert (found.code, found.out) == (0, "no branches\n")
    found = run("branch", path, "s", "save", "plan b")
    assert (found.code, found.err) == (0, "")
    assert found.out == "saved branch plan b of session s at version 1\n"
    assert run("branch", path, "s", "save", "a").code == 0
    assert run("branch", path, "s", "list").lines == ["a", "plan b"]
    assert customers(path, branch="plan b") == {"o1": "ann"}


def test_saving_again_goes_on_and_never_loses_commits(run, path):
    run("branch", path, "s", "save", "b")
    edit(path, {"o2": "bob"})
    assert run("branch", path, "s", "save", "b").code == 0
    assert customers(path, branch="b") == {"o1": "ann", "o2": "bob"}
    edit(path, {"o3": "eve"}, branch="b")
    found = run("branch", path, "s", "save", "b")
    assert (found.code, found.out) == (1, "")
    assert "would lose them" in found.err
    assert customers(path, branch="b") == {"o1": "ann", "o2": "bob", "o3": "eve"}


def test_a_merge_into_a_branch(run, path):
    run("branch", path, "s", "save", "a")
    run("branch", path, "s", "save", "b")
    edit(path, {"o2": "bob"}, branch="a")
    edit(path, {"o1": "eve"}, branch="b")
    found = run("branch", path, "s", "merge", "--into", "a", "--source", "b")
    assert (found.code, found.err) == (0, "")
    assert found.out == "merged b into a, saved as a (v3)\n"
    assert customers(path, branch="a") == {"o1": "eve", "o2": "bob"}
    assert customers(path, branch="b") == {"o1": "eve"}
    again = run("branch", path, "s", "merge", "b", "--into", "a")
    assert (again.code, again.out) == (0, "b holds nothing that a does not: nothing was merged\n")


def test_a_merge_into_the_own_line_and_under_another_name(run, path):
    run("branch", path, "s", "save", "b")
    edit(path, {"o2": "bob"}, branch="b")
    found = run("branch", path, "s", "merge", "b", "--as", "both")
    assert (found.code, found.out) == (0, "merged b into main, saved as both (v2)\n")
    assert customers(path) == {"o1": "ann"}
    assert customers(path, branch="both") == {"o1": "ann", "o2": "bob"}
    assert run("branch", path, "s", "merge", "b").code == 0
    assert customers(path) == {"o1": "ann", "o2": "bob"}
    assert run("branch", path, "s", "list").lines == ["b", "both"]


def test_a_conflict_is_said_and_nothing_is_written(run, path):
    run("branch", path, "s", "save", "b")
    edit(path, {"o1": "bob", "o9": "new"}, branch="b")
    edit(path, {"o1": "eve"})
    found = run("branch", path, "s", "merge", "b", "--into", "main")
    assert (found.code, found.out) == (1, "")
    assert "o1" in found.err
    assert customers(path) == {"o1": "eve"}


def test_what_is_missing_is_1(run, path, tmp_path):
    for arguments in (["--source", "nope"], ["--source", "main", "--into", "nope"]):
        found = run("branch", path, "s", "merge", *arguments)
        assert (found.code, found.out) == (1, "")
        assert found.err.startswith("reactifact: missing branch 'nope' of session 's'")
    for verb in (["list"], ["save", "b"]):
        found = run("branch", path, "nobody", *verb)
        assert (found.code, found.out) == (1, "")
        assert "no session 'nobody'" in found.err
    found = run("branch", tmp_path / "missing.git", "s", "list")
    assert (found.code, found.out) == (1, "")
    assert "no session store at" in found.err
    assert not (tmp_path / "missing.git").exists()


def test_a_session_of_branches_alone(run, store):
    assert run("branch", store, "team", "list").lines == ["a", "x/y"]


def test_listing_changes_nothing(run, store):
    assert run("branch", store, "user-1", "list").lines == ["plan b"]
    before = sorted(p.stat().st_mtime_ns for p in store.rglob("*"))
    run("branch", store, "user-1", "list")
    assert sorted(p.stat().st_mtime_ns for p in store.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["save"], "save needs the name"),
        (["save", "main"], "own line"),
        (["merge"], "--source NAME"),
        (["merge", "a", "--source", "b"], "once"),
        (["list", "a"], "list takes no name"),
        (["save", "a", "--into", "b"], "--into: not an option of save"),
        (["drop", "a"], "drop"),
    ],
)
def test_arguments_that_do_not_go_together(run, path, arguments, said):
    found = run("branch", path, "s", *arguments)
    assert (found.code, found.out) == (2, "")
    assert said in found.err
    assert run("branch", path, "s", "list").out == "no branches\n"


def test_undo_and_redo(run, path):
    edit(path, {"o1": "bob"})
    found = run("branch", path, "s", "undo")
    assert (found.code, found.out) == (0, "undone: the edit that made version 2\n")
    assert customers(path) == {"o1": "ann"}
    found = run("branch", path, "s", "redo")
    assert (found.code, found.out) == (0, "done again: the edit that made version 2\n")
    assert customers(path) == {"o1": "bob"}
    found = run("branch", path, "s", "redo")
    assert (found.code, found.out) == (1, "")
    assert "has nothing to redo" in found.err


def test_a_branch_is_renamed(run, path):
    run("branch", path, "s", "save", "a")
    found = run("branch", path, "s", "rename", "a", "--as", "plan b")
    assert (found.code, found.out) == (0, "renamed branch a of session s to plan b\n")
    assert run("branch", path, "s", "list").lines == ["plan b"]
    assert run("branch", path, "s", "rename", "a", "--as", "c").code == 1
    assert run("branch", path, "s", "rename", "plan b").code == 2


def test_a_commit_is_reverted(run, path):
    edit(path, {"o1": "bob", "o2": "eve"})
    edit(path, {"o3": "dan"})
    found = run("branch", path, "s", "revert", "s@v2")
    assert found.code == 0
    assert found.out.startswith("Revert edit ")
    assert customers(path) == {"o1": "ann", "o3": "dan"}
    assert "nothing is left of s@v2 on main" in run("branch", path, "s", "revert", "s@v2").out
    edit(path, {"o3": "eve"})
    found = run("branch", path, "s", "revert", "s@v3")
    assert (found.code, found.out) == (1, "")
    assert "o3" in found.err
