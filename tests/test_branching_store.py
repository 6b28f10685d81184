"""`BranchStore` (API §9): save, load, list, delete; merging after a reload, in all directions."""

from __future__ import annotations

import pytest
from support import Answer, Echo, Note, Place, Question, answering_agents, commit, fsck, git, live

from reactifact import Context, MergeConflict, Runtime
from reactifact._store.names import encode_name
from reactifact.commit import Read
from reactifact.errors import StaleSession

pytestmark = pytest.mark.anyio


def contents(context: Context) -> dict[str, str]:
    return {found.id: found.data.text for found in context.list_artifacts(Note)}


async def started(place: Place) -> Context:
    """Return the context of a saved session with two notes."""
    session = await place.store().open("s")
    session.context.create(Note(text="old"), id="a")
    session.context.create(Note(text="same"), id="z")
    await session.save()
    return session.context


async def save(place: Place, context: Context, name: str) -> None:
    await place.branches().save_branch(context, session_id="s", name=name)


async def test_save_load_list_and_delete(place: Place) -> None:
    context = await started(place)
    branches = place.branches()
    assert await branches.list_branches("s") == []
    assert await branches.load_branch("s", "b") is None
    for name in ("b", "a", "c/d"):
        fork = context.branch(name=name)
        fork.create(Note(text=name), id="mine")
        await save(place, fork, name)
    assert await place.branches().list_branches("s") == ["a", "b", "c/d"]
    assert await place.branches().list_branches("other") == []
    assert live(await place.load("s", "c/d"), "mine").data.text == "c/d"
    await branches.delete_branch("s", "b")
    await branches.delete_branch("s", "b")  # absent is fine
    assert await place.branches().list_branches("s") == ["a", "c/d"]
    assert await place.branches().load_branch("s", "b") is None
    assert await place.store().list_sessions() == ["s"]


async def test_a_branch_comes_back_as_it_was(place: Place) -> None:
    context = await started(place)
    fork = context.branch(name="b")
    fork.create(Question(text="why"), id="q")
    fork.link("a", "cites", "z")
    await Runtime(fork, answering_agents()).arun()
    fork.create(Question(text="later"), id="later")
    await save(place, fork, "b")
    loaded = await place.load("s", "b")
    assert (loaded.version, loaded.head_id) == (fork.version, fork.head_id)
    assert loaded.history() == fork.history()
    assert loaded.snapshot() == fork.snapshot()
    assert loaded.relations() == fork.relations()
    assert [event.artifact_id for event in loaded.pending_events()] == ["later"]
    assert (await place.load("s")).version == 0


async def test_saved_branches_are_independent(place: Place) -> None:
    context = await started(place)
    await save(place, context.branch(), "one")
    await save(place, context.branch(), "two")
    one, two = await place.load("s", "one"), await place.load("s", "two")
    one.update("a", Note(text="one"))
    two.delete("a")
    await save(place, one, "one")
    await save(place, two, "two")
    assert contents(await place.load("s", "one")) == {"a": "one", "z": "same"}
    assert contents(await place.load("s", "two")) == {"z": "same"}
    assert contents(await place.load("s")) == {"a": "old", "z": "same"}


async def test_a_branch_is_saved_again_and_again(place: Place) -> None:
    fork = (await started(place)).branch()
    for text in ("one", "two", "three"):
        fork.update("a", Note(text=text))
        await save(place, fork, "b")
        assert contents(await place.load("s", "b"))["a"] == text
    assert live(await place.load("s", "b"), "a").version == 3


async def test_saving_over_a_branch_that_has_more_is_refused(place: Place) -> None:
    context = await started(place)
    first, second = context.branch(), context.branch()
    first.update("a", Note(text="first"))
    second.update("a", Note(text="second"))
    await save(place, first, "b")
    with pytest.raises(StaleSession, match="'b'"):
        await save(place, second, "b")
    assert contents(await place.load("s", "b"))["a"] == "first"


@pytest.mark.parametrize("into_the_branch", [False, True], ids=["into-main", "into-branch"])
async def test_a_merge_after_a_reload_is_still_three_way(into_the_branch: bool, place: Place) -> None:
    context = await started(place)
    await save(place, context.branch(), "b")
    branch, main = await place.load("s", "b"), await place.load("s")
    branch.update("a", Note(text="theirs"))
    branch.create(Note(text="new"), id="n")
    main.update("z", Note(text="ours"))
    await save(place, branch, "b")
    await place.store().save_session("s", main)

    branch, main = await place.load("s", "b"), await place.load("s")
    target, other = (branch, main) if into_the_branch else (main, branch)
    target.merge(other)
    assert contents(target) == {"a": "theirs", "z": "ours", "n": "new"}
    if into_the_branch:
        await save(place, target, "b")
        stored = await place.load("s", "b")
    else:
        await place.store().save_session("s", target)
        stored = await place.load("s")
    assert contents(stored) == contents(target)
    assert (stored.version, stored.head_id) == (1, target.head_id)
    assert stored.history()[-1].author == "merge"


async def test_a_conflict_after_a_reload(place: Place) -> None:
    context = await started(place)
    await save(place, context.branch(), "b")
    branch, main = await place.load("s", "b"), await place.load("s")
    branch.update("a", Note(text="theirs"))
    main.update("a", Note(text="ours"))
    with pytest.raises(MergeConflict, match="a: changed"):
        main.merge(branch)
    assert contents(main)["a"] == "ours"


async def test_better_17_second_merge_after_reloads(place: Place) -> None:
    context = await started(place)
    await save(place, context.branch(), "b")
    for number in range(3):
        branch = await place.load("s", "b")
        branch.update("a", Note(text=f"theirs {number}"))
        await save(place, branch, "b")
        main = await place.load("s")
        main.merge(await place.load("s", "b"))
        main.update("z", Note(text=f"ours {number}"))
        await place.store().save_session("s", main)
    assert contents(await place.load("s")) == {"a": "theirs 2", "z": "ours 2"}


async def test_better_18_a_fork_of_a_fork_after_reloads(place: Place) -> None:
    middle = (await started(place)).branch(name="middle")
    middle.create(Note(text="of the middle"), id="m")
    await save(place, middle, "middle")
    leaf = (await place.load("s", "middle")).branch(name="leaf")
    leaf.create(Note(text="of the leaf"), id="l")
    await save(place, leaf, "leaf")
    main = await place.load("s")
    main.update("z", Note(text="ours"))
    main.merge(await place.load("s", "leaf"))
    assert contents(main) == {"a": "old", "z": "ours", "m": "of the middle", "l": "of the leaf"}


async def test_better_20_a_merge_commit_has_two_parents_and_keeps_everything(git_place: Place) -> None:
    main = await started(git_place)
    branch = main.branch(name="b")
    branch.create(Question(text="why"), id="q")
    await Runtime(branch, answering_agents()).arun()
    await save(git_place, branch, "b")
    main.update("z", Note(text="ours"))
    main.merge(branch)
    await git_place.store().save_session("s", main)
    assert git_place.path is not None
    parents = git(git_place.path, "log", "-1", "--format=%P", "s/main").split()
    assert len(parents) == 2
    assert git(git_place.path, "rev-parse", "s/b").strip() == parents[1]
    assert "answerer: create Answer" in git(git_place.path, "log", "--format=%s", "s/main")
    stored = await git_place.load("s")
    (answer,), (echo,) = stored.list_artifacts(Answer), stored.list_artifacts(Echo)
    reads = branch.history()[0].reads
    assert reads == [Read("q", 0)]
    assert answer.created_by_commit == branch.history()[0].id
    assert echo.created_by_commit == branch.history()[1].id
    fsck(git_place.path)


async def test_better_21_a_saved_branch_takes_the_queue_along(place: Place) -> None:
    session = await place.store().open("s")
    session.context.create(Question(text="why"), id="q")
    await session.save()
    await save(place, session.context.branch(), "b")
    branch = await place.load("s", "b")
    assert [event.artifact_id for event in branch.pending_events()] == ["q"]
    assert await Runtime(branch, answering_agents()).arun() == 2
    main = await place.load("s")
    assert [event.artifact_id for event in main.pending_events()] == ["q"]


async def test_better_22_a_branch_saved_without_a_fork_still_has_a_base(place: Place) -> None:
    context = await started(place)
    await save(place, context, "copy")  # the session's own context, saved under another name
    copy, main = await place.load("s", "copy"), await place.load("s")
    copy.update("a", Note(text="theirs"))
    main.update("z", Note(text="ours"))
    main.merge(copy)
    assert contents(main) == {"a": "theirs", "z": "ours"}
    # and the session goes on as the session
    context.update("z", Note(text="later"))
    await place.store().save_session("s", context)
    assert contents(await place.load("s"))["z"] == "later"
    assert contents(await place.load("s", "copy"))["z"] == "same"


async def test_branches_of_separate_stores_merge(place: Place) -> None:
    other_place = Place(None)
    main, other = await started(place), await started(other_place)
    main.update("z", Note(text="ours"))
    fork = other.branch()
    await commit(fork, lambda call: call.effects.update("a", text="theirs"))
    main.merge(fork)
    assert contents(main) == {"a": "theirs", "z": "ours"}
    await place.store().save_session("s", main)
    stored = await place.load("s")
    assert contents(stored) == {"a": "theirs", "z": "ours"}
    assert [note.text for note in live(stored, "a").history] == ["old"]
    if place.path is not None:
        fsck(place.path)


async def test_a_context_over_memory_is_saved_with_its_history(place: Place) -> None:
    context = Context()
    context.create(Question(text="why"), id="q")
    await Runtime(context, answering_agents()).arun()
    await save(place, context, "from-memory")
    loaded = await place.load("s", "from-memory")
    assert loaded.history() == context.history()
    assert loaded.snapshot() == context.snapshot()
    if place.path is not None:
        fsck(place.path)


async def test_a_fork_of_a_fork_that_was_never_saved(place: Place) -> None:
    middle = (await started(place)).branch()
    middle.create(Note(text="of the middle"), id="m")
    leaf = middle.branch()
    leaf.create(Note(text="of the leaf"), id="l")
    middle.update("m", Note(text="later"))
    await save(place, leaf, "leaf")
    assert contents(await place.load("s", "leaf")) == {
        "a": "old",
        "z": "same",
        "m": "of the middle",
        "l": "of the leaf",
    }
    await save(place, middle, "middle")
    merged = await place.load("s", "leaf")
    merged.merge(await place.load("s", "middle"))
    assert contents(merged)["m"] == "later"
    if place.path is not None:
        fsck(place.path)


async def test_relations_merge_after_a_reload(place: Place) -> None:
    context = await started(place)
    for relation in ("cites", "uses"):
        context.link("a", relation, "z")
    await place.store().save_session("s", context)
    await save(place, context.branch(), "b")
    branch, main = await place.load("s", "b"), await place.load("s")
    branch.unlink("a", "cites")
    branch.link("z", "cites", "a")
    main.unlink("a", "uses")
    await save(place, branch, "b")
    main.merge(await place.load("s", "b"))
    await place.store().save_session("s", main)
    found = [(r.source_id, r.relation, r.target_id) for r in (await place.load("s")).relations()]
    assert found == [("z", "cites", "a")]


LONG_SESSION = "客户询问订单延迟原因以及退款的可能性和补偿方案"
LONG_BRANCH = "方案二退还一半货款并赠送优惠券和积分"


async def test_a_ref_is_short_enough_for_git_hosts_and_windows(git_place: Place) -> None:
    session = await git_place.store().open(LONG_SESSION)
    session.context.create(Note(text="x"), id="a")
    await session.save()
    branches = git_place.branches()
    for branch in (LONG_BRANCH, LONG_BRANCH + "!", "x" * 4096):
        await branches.fork(f"{LONG_SESSION}/main", f"{LONG_SESSION}/{branch}")
    refs = git(git_place.path, "for-each-ref", "--format=%(refname)").split()
    assert max(len(ref) for ref in refs) <= 255
    assert len(refs) == 4
    assert await branches.list_branches(LONG_SESSION) == sorted([LONG_BRANCH, LONG_BRANCH + "!", "x" * 4096])


async def test_a_longer_ref_of_an_earlier_version_is_the_same_branch(git_place: Place) -> None:
    session = await git_place.store().open(LONG_SESSION)
    session.context.create(Note(text="old"), id="a")
    await session.save()
    longer = f"refs/heads/{encode_name(LONG_SESSION)}/{encode_name(LONG_BRANCH)}"
    assert len(longer) > 255
    branches = git_place.branches()
    fork = await branches.fork(f"{LONG_SESSION}/main", f"{LONG_SESSION}/{LONG_BRANCH}")
    async with branches.edit(LONG_SESSION, LONG_BRANCH) as context:
        context.create(Note(text="on the branch"), id="b")
    refs = git(git_place.path, "for-each-ref", "--format=%(refname)").split()
    (short,) = [ref for ref in refs if "%-" in ref.rpartition("/")[2]]
    git(git_place.path, "update-ref", longer, short)
    git(git_place.path, "update-ref", "-d", short)

    again = git_place.branches()
    loaded = await again.load_branch(LONG_SESSION, LONG_BRANCH)
    assert loaded is not None
    assert contents(loaded) == {"a": "old", "b": "on the branch"}
    loaded.create(Note(text="later"), id="c")
    await again.save_branch(loaded, session_id=LONG_SESSION, name=LONG_BRANCH)
    refs = git(git_place.path, "for-each-ref", "--format=%(refname)").split()
    assert longer in refs
    assert short not in refs
    assert fork.branch == LONG_BRANCH
    await again.delete_branch(LONG_SESSION, LONG_BRANCH)
    assert await again.list_branches(LONG_SESSION) == []
