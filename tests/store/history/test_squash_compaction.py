"""Compaction (API §8, DESIGN §3): what stays as it is, what raises, what the store gives back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from stores import place_of
from support import (
    Answer,
    Echo,
    Note,
    Order,
    Outside,
    Place,
    Question,
    answering_agents,
    commit,
    fsck,
    git,
    live,
    notifier,
)

from reactifact import Context, MergeConflict, ProduceCall, Runtime, SessionStore
from reactifact._context.push import publish
from reactifact.audit import context_hash
from reactifact.branching import BranchStore
from reactifact.errors import StaleSession

pytestmark = pytest.mark.anyio

ME = ("-c", "user.name=t", "-c", "user.email=t@t.invalid")


async def write(context: Context, text: str, artifact: str = "a", side: str = "kick") -> None:
    """Make one versioned commit that sets the text of an artifact; `side` keeps sides apart."""

    def work(call: ProduceCall) -> None:
        found = call.context.get(artifact)
        if found is None:
            call.effects.create(Note(text=text), id=artifact)
        else:
            call.effects.update(found, text=text)

    await commit(context, work, kick=f"kick:{side}")


async def written(context: Context, count: int) -> Context:
    for number in range(1, count + 1):
        await write(context, str(number))
    return context


async def test_what_a_compaction_keeps() -> None:
    context = Context()
    context.create(Note(text="direct"), id="d")
    context.link("d", "about", "a")
    await written(context, 6)
    producers = [live(context, "a").created_by_commit, context.head_id]
    before = (context.snapshot(), context.version, context_hash(context), context.relations())
    differences = [context.diff(a, 6) for a in (4, 5, 6)]
    assert context.compact(keep_commits=2) == 4
    assert (context.snapshot(), context.version, context_hash(context), context.relations()) == before
    assert [live(context, "a").created_by_commit, context.head_id] == producers
    assert [context.diff(a, 6) for a in (4, 5, 6)] == differences
    assert (context.compacted_at, len(context.history())) == (4, 2)
    assert [old.text for old in live(context, "a").history] == ["1", "2", "3", "4", "5"]
    assert context.compact(keep_commits=2) == 0
    assert context.compact(keep_commits=1) == 1


async def test_below_the_baseline_is_an_error_that_names_it() -> None:
    context = await written(Context(), 5)
    context.compact(keep_commits=2)
    for ask in (lambda: context.diff(2, 5), lambda: context.checkout(2), lambda: context.diff(0, 5)):
        with pytest.raises(ValueError, match="compaction baseline 3"):
            ask()
    context.checkout(3)
    assert (live(context, "a").data.text, context.version) == ("3", 3)


@pytest.mark.parametrize("numbers", [{"keep_commits": -1}, {"keep_commits": 1, "keep_versions": -1}])
async def test_negative_numbers_are_refused(numbers: dict[str, int]) -> None:
    context = await written(Context(), 2)
    with pytest.raises(ValueError, match="-1"):
        context.compact(**numbers)  # type: ignore[arg-type]
    assert context.compacted_at == 0


async def test_nothing_to_fold() -> None:
    assert Context().compact(keep_commits=0) == 0
    context = await written(Context(), 2)
    assert context.compact(keep_commits=5) == 0
    assert (context.compacted_at, context.diff(0, 2)["added"].keys()) == (0, {"a"})


async def test_staleness_survives(place: Place) -> None:
    session = await place.store().open("s")
    session.context.create(Question(text="q"), id="q")
    await Runtime(session.context, answering_agents(), session=session).arun()
    question = session.context.list_artifacts(Question)[0]
    session.context.update(question.id, Question(text="changed"))
    stale = [found.id for found in session.context.stale_artifacts()]
    assert stale
    session.context.compact(keep_commits=0)
    assert [found.id for found in session.context.stale_artifacts()] == stale
    assert [found.id for found in (await place.load("s")).stale_artifacts()] == stale


async def test_a_queue_and_waiting_actions_survive(place: Place) -> None:
    world = Outside("notify:o")
    session = await place.store().open("s")
    session.context.create(Order(item="pen"), id="o")
    runtime = Runtime(session.context, [notifier()], session=session, dispatcher=world)
    with pytest.raises(ConnectionError):
        await runtime.arun()
    session.context.create(Question(text="waits"), id="q")
    session.context.compact(keep_commits=0)
    again = await place.store().open("s")
    assert [event.artifact_id for event in again.context.pending_events()][-1] == "q"
    again.context.retry_action("action:notify:o")
    world.failing.clear()
    await Runtime(again.context, [notifier(), *answering_agents()], session=again, dispatcher=world).arun()
    assert world.sent == ["notify:o"]
    assert len(again.context.list_artifacts(Answer)) == len(again.context.list_artifacts(Echo)) == 1


async def test_forks_from_before_merge_three_way(place: Place) -> None:
    session = await place.store().open("s")
    context = await written(session.context, 8)
    fork = context.branch(name="early")
    branches = BranchStore(session.store.database)
    await branches.save_branch(fork, session_id="s", name="early")
    unsaved = context.branch(name="unsaved")
    await write(fork, "fork", "f", side="f")
    await publish(fork)
    await write(unsaved, "unsaved", "u", side="u")
    await written(context, 9)
    assert context.compact(keep_commits=1) > 0
    loaded = await place.load("s", "early")
    assert loaded.version == 9
    assert loaded.compacted_at == 8
    for other, name in ((loaded, "f"), (fork, "f"), (unsaved, "u")):
        twin = context.branch()
        twin.merge(other)
        assert live(twin, name).data.text in ("fork", "unsaved")
        assert live(twin, "a").data.text == "9"
    await write(fork, "theirs", side="f")
    await write(context, "ours")
    with pytest.raises(MergeConflict):
        context.merge(fork)
    # what was open when somebody else compacted goes on, and so does a fork without a name
    await publish(fork)
    await branches.save_branch(unsaved, session_id="s", name="unsaved")
    assert live(await place.load("s", "early"), "a").data.text == "theirs"
    assert live(await place.load("s", "unsaved"), "u").data.text == "unsaved"
    if place.path is not None:
        git(place.path, "gc", "--prune=now", "--quiet")
        fsck(place.path)


async def test_what_was_trimmed_stays_trimmed_for_those_who_were_at_work(place: Place) -> None:
    session = await place.store().open("s")
    context = await written(session.context, 6)
    fork = context.branch(name="fork")
    branches = BranchStore(session.store.database)
    await branches.save_branch(fork, session_id="s", name="fork")
    fork.update("a", Note(text="7"))
    fork.update("a", Note(text="8"))
    context.compact(keep_commits=1, keep_versions=1)
    if place.path is not None:
        git(place.path, "gc", "--prune=now", "--quiet")
    await publish(fork)
    for shown in (fork, await place.load("s", "fork")):
        assert [old.text for old in live(shown, "a").history] == ["5", "6", "7"]
        assert (live(shown, "a").version, shown.compacted_at) == (7, 5)


async def test_a_clone_that_was_not_compacted_still_merges(tmp_path: Path) -> None:
    here, there = Place(tmp_path / "here.git"), Place(tmp_path / "there.git")
    session = await here.store().open("s")
    await written(session.context, 6)
    await session.save()
    git(tmp_path, "clone", "--quiet", "--bare", "here.git", "there.git")
    theirs = (await there.store().open("s")).context
    await write(theirs, "theirs", "t", side="t")
    await written(session.context, 9)
    session.context.compact(keep_commits=1)
    twin = theirs.branch()
    session.context.merge(theirs)
    twin.merge(session.context)
    for context in (session.context, twin):
        assert (live(context, "a").data.text, live(context, "t").data.text) == ("9", "theirs")
    await session.save()
    fsck(tmp_path / "here.git")


async def test_git_gets_its_space_back_and_loses_no_kept_version(git_place: Place) -> None:
    path = git_place.path
    assert path is not None
    session = await git_place.store().open("s")
    big = "".join(f"{i * 7919 % 100_003:x}" for i in range(2_000))
    for number in range(60):
        await write(session.context, f"{number} {big[number:] + big[:number]}")
        await write(session.context, f"{number}{big[::-1]}", f"n{number % 3}")
    await session.save()
    git(path, "gc", "--prune=now", "--quiet")
    git(path, "commit-graph", "write", "--reachable")
    before = stored_bytes(path)
    commits = int(git(path, "rev-list", "--count", "s/main"))
    session.context.compact(keep_commits=2, keep_versions=3)
    assert not (path / "objects/info/commit-graph").exists()
    fsck(path)
    await session.store.prune(grace=0)  # else the compaction can be undone, and nothing goes
    await session.store.aclose()
    git(path, "gc", "--prune=now", "--quiet")
    fsck(path)
    assert int(git(path, "rev-list", "--count", "s/main")) < commits / 10
    assert stored_bytes(path) < before / 4
    loaded = await git_place.load("s")
    assert [v.version for v in loaded.version_history("a")] == [56, 57, 58, 59]
    assert loaded.version_history("a")[0].data.text.startswith("56 ")
    git(path.parent, "clone", "--quiet", "--bare", "--depth=1", path.as_uri(), "shallow.git")
    shallow = await Place(path.parent / "shallow.git").load("s")
    assert [v.data.text[:2] for v in shallow.version_history("n0")] == ["48", "51", "54", "57"]


def stored_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in (path / "objects").rglob("*") if file.is_file())


async def test_tags_and_notes_follow(git_place: Place) -> None:
    path = git_place.path
    assert path is not None
    session = await git_place.store().open("s")
    await written(session.context, 3)
    await session.save()
    branches = git_place.branches()
    await branches.tag("s", "three")
    git(
        path,
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@t.invalid",
        "tag",
        "-a",
        "-m",
        "note",
        "s/four",
        "s/main",
    )
    git(path, *ME, "notes", "add", "-m", "well done", "s/main")
    await written(session.context, 6)
    session.context.compact(keep_commits=1)
    git(path, "gc", "--prune=now", "--quiet")
    fsck(path)
    assert git(path, "notes", "show", "refs/tags/s/three").strip() == "well done"
    assert git(path, "rev-parse", "s/four^{commit}") == git(path, "rev-parse", "refs/tags/s/three")
    assert git(path, "merge-base", "s/main", "refs/tags/s/three") == git(
        path, "rev-parse", "refs/tags/s/three"
    )
    assert int(git(path, "rev-list", "--count", "s/main")) < 8


async def test_a_fork_whose_history_was_collected_is_refused_or_whole(git_place: Place) -> None:
    """What the process still has in memory is written again; where something is gone, nothing is."""
    assert git_place.path is not None
    session = await git_place.store().open("s")
    await written(session.context, 3)
    await session.save()
    fork = session.context.branch(name="fork")
    await write(fork, "fork", "f", side="f")
    await written(session.context, 6)
    session.context.compact(keep_commits=0)
    await session.store.aclose()
    git(git_place.path, "gc", "--prune=now", "--quiet")
    try:
        await BranchStore(session.store.database).save_branch(fork, session_id="s", name="fork")
        loaded = await git_place.load("s", "fork")
        assert loaded.snapshot() == fork.snapshot()
        assert [old.text for old in live(loaded, "a").history] == ["1", "2"]
    except StaleSession as error:
        assert await git_place.branches().list_branches("s") == []
        assert "fork the branch again" in f"{error}"  # noqa: PT017 - either outcome is right
    fsck(git_place.path)


@pytest.mark.parametrize("kind", ["sqlite", "own"])
async def test_on_other_stores(kind: str, tmp_path: Path) -> None:
    where = place_of(kind, tmp_path, None)
    session = await SessionStore(where).open("s")
    await written(session.context, 6)
    await session.save()
    assert session.context.compact(keep_commits=2, keep_versions=3) == 4
    await session.save()
    again = (await SessionStore(where).open("s")).context
    assert (again.compacted_at, again.version, live(again, "a").data.text) == (4, 6, "6")
    assert [old.text for old in live(again, "a").history] == ["3", "4", "5"]
    again.checkout(5)
    assert live(again, "a").data.text == "5"


async def test_two_processes_compact_at_once(git_place: Place) -> None:
    """A second context of the same branch goes on after somebody else has compacted."""
    session = await git_place.store().open("s")
    await written(session.context, 5)
    await session.save()
    other = await git_place.store().open("s")
    await write(other.context, "other's")
    session.context.compact(keep_commits=1)
    await other.save()
    assert other.context.compacted_at == 4
    assert live(await git_place.load("s"), "a").data.text == "other's"
    assert subprocess.run(["git", "-C", str(git_place.path), "fsck"], check=False).returncode == 0
