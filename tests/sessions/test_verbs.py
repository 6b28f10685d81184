"""The verbs of `BranchStore`: branches, fork, log, diff, merge, tag, edit; names in all their forms."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support import (
    Note,
    Order,
    Outside,
    Place,
    Question,
    action,
    answering_agents,
    commit,
    fsck,
    git,
    notifier,
)

from reactifact import MergeConflict, Runtime, SessionStore
from reactifact._sessions import verbs
from reactifact._sessions.service import context_at
from reactifact.branching import BranchStore
from reactifact.errors import (
    NameTaken,
    ProtectedBranch,
    StaleSession,
    StoreError,
    UnknownRevision,
)

pytestmark = pytest.mark.anyio


async def started(place: Place, session_id: str = "s", **notes: str) -> BranchStore:
    """Save a session with some notes, each made by a commit of its own, and return its branches."""
    session = await place.store().open(session_id)
    for number, (name, text) in enumerate(notes.items(), start=1):
        await commit(
            session.context,
            lambda call, name=name, text=text: call.effects.create(Note(text=text), id=name),
            author=f"agent-{number}",
        )
    await session.save()
    return place.branches()


async def texts(branches: BranchStore, session: str, branch: str) -> dict[str, str]:
    context = await branches.load_branch(session, branch)
    assert context is not None
    return {note.id: note.data.text for note in context.list_artifacts(Note)}


# -- branches and forks ------------------------------------------------------------------------------


async def test_a_fork_is_one_ref_and_is_listed(place: Place) -> None:
    branches = await started(place, a="one")
    head = await branches.fork("s/main", "s/try")
    assert (head.session, head.branch, head.name) == ("s", "try", "s/try")
    await branches.fork("s", "s/odd/name")
    assert [found.name for found in await branches.branches()] == ["s/main", "s/odd/name", "s/try"]
    assert [found.name for found in await branches.branches("other")] == []
    assert {found.commit for found in await branches.branches("s")} == {head.commit}
    async with branches.edit("s", "try", author="ann", message="change a") as context:
        context.update("a", Note(text="tried"))
    assert await texts(branches, "s", "try") == {"a": "tried"}
    assert await texts(branches, "s", "main") == {"a": "one"}


async def test_a_fork_takes_the_queue_along(place: Place) -> None:
    session = await place.store().open("s")
    session.context.create(Question(text="why"), id="q")
    await session.save()
    branches = place.branches()
    await branches.fork("s", "s/try")
    fork = await place.load("s", "try")
    assert await Runtime(fork, answering_agents()).arun() == 2
    assert [event.artifact_id for event in (await place.load("s")).pending_events()] == ["q"]


async def test_a_fork_of_an_older_commit_and_of_a_tag(place: Place) -> None:
    branches = await started(place, a="one", b="two")
    await branches.tag("s", "release")
    await branches.fork("s/main@v1", "s/early")
    await branches.fork("s/release", "s/late")
    assert await texts(branches, "s", "early") == {"a": "one"}
    assert await texts(branches, "s", "late") == {"a": "one", "b": "two"}
    early = await place.load("s", "early")
    assert early.version == 1
    early.merge(await place.load("s", "late"))
    assert (early.version, len(early.list_artifacts(Note))) == (2, 2)


async def test_a_fork_goes_where_nothing_is(place: Place) -> None:
    branches = await started(place, a="one")
    await branches.fork("s", "s/try")
    await branches.tag("s", "label")
    for taken in ("s/try", "s/main", "s/label"):
        with pytest.raises(NameTaken, match="choose another name"):
            await branches.fork("s", taken)
    for elsewhere in ("t/try", "try", "s/", "s"):
        with pytest.raises(ValueError, match="session="):
            await branches.fork("s", elsewhere)
    with pytest.raises(UnknownRevision, match="'nowhere'"):
        await branches.fork("nowhere", "nowhere/b")


@pytest.mark.parametrize(
    ("session", "branch"), [("a/b", "c"), ("a", "b/c"), ("@v1", "x@v2"), ("é" * 80, "b" * 300)]
)
async def test_odd_names_are_given_apart(session: str, branch: str, place: Place) -> None:
    branches = await started(place, session, a="one")
    head = await branches.fork("main", branch, session=session)
    assert (head.session, head.branch) == (session, branch)
    async with branches.edit(session, branch, author="ann") as context:
        context.update("a", Note(text="two"))
    assert (await branches.log(branch, session=session))[0].author == "ann"
    (changed,) = (await branches.diff("main", branch, session=session)).state.changed
    assert changed.id == "a"
    assert (await branches.blame(branch, "a", session=session))[3].agent == "ann"
    assert await branches.merge("main", branch, session=session) is not None
    assert await texts(branches, session, "main") == {"a": "two"}


async def test_a_name_that_can_be_read_in_two_ways_is_refused(place: Place) -> None:
    await started(place, "a/b", x="one")
    branches = await started(place, "a", x="two")
    await branches.fork("main", "b/main", session="a")
    with pytest.raises(UnknownRevision, match="can be read as"):
        await branches.log("a/b/main")
    assert (await branches.log("b/main", session="a"))[0].record is not None


# -- log -----------------------------------------------------------------------------------------


async def test_log_filters(place: Place) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    branches = await started(place, a="one", b="two", c="three")
    everything = await branches.log("s")
    assert [one.author for one in everything if one.record is not None and one.record.context_version] == [
        "agent-3",
        "agent-2",
        "agent-1",
    ]

    async def found(**wanted: Any) -> list[str]:
        return [entry.subject for entry in await branches.log("s", **wanted)]

    assert await found(agent="agent-2") == ["agent-2: create Note b"]
    assert await found(artifact_id="c") == ["agent-3: create Note c"]
    assert await found(agent="agent-2", artifact_id="c") == []
    assert await found(limit=2) == [entry.subject for entry in everything[:2]]
    assert await found(generation=1) == [
        f"agent-{n}: create Note {name}" for n, name in ((3, "c"), (2, "b"), (1, "a"))
    ]
    assert await found(generation=2) == []
    assert await found(since=before) == [entry.subject for entry in everything]
    assert await found(until=before) == []
    second = next(entry for entry in everything if entry.author == "agent-2")
    inside = await branches.log("s", since=second.time, until=second.time)
    assert second in inside
    assert await branches.log("s/main@v2") == everything[everything.index(second) :]
    assert json.loads(json.dumps(second.to_dict()))["author"] == "agent-2"
    with pytest.raises(ValueError, match="time zone"):
        await branches.log("s", since=datetime(2026, 1, 1))


async def test_log_of_what_a_merge_brought_in(place: Place) -> None:
    branches = await started(place, a="one")
    await branches.fork("s", "s/try")
    async with branches.edit("s", "try", author="ann", message="from the fork") as context:
        context.create(Note(), id="b")
    async with branches.edit("s", author="bob") as context:
        context.create(Note(), id="c")
    merged = await branches.merge(into="s", source="s/try", message="take it")
    assert merged is not None
    assert (merged.subject, len(merged.object.parents)) == ("take it", 2)
    assert "ann" not in [entry.author for entry in await branches.log("s")]
    assert "ann" in [entry.author for entry in await branches.log("s", merged=True)]
    assert [entry.author for entry in await branches.log("s", merged=True, artifact_id="b")] == [
        "merge",
        "ann",
    ]


# -- diff ----------------------------------------------------------------------------------------


async def test_diff_gives_fields_relations_and_deliveries(place: Place) -> None:
    session = await place.store().open("s")
    session.context.create(Note(text="one", tags=["x"]), id="kept")
    session.context.create(Note(text="gone"), id="gone")
    await session.save()
    branches = place.branches()
    await branches.fork("s", "s/try")
    fork = await place.load("s", "try")
    fork.update("kept", Note(text="two", tags=["x", "y"]))
    fork.delete("gone")
    fork.create(Order(item="tea"), id="o")
    fork.link("kept", "cites", "o")
    await Runtime(fork, [notifier()], dispatcher=Outside()).arun()
    await branches.save_branch(fork, session_id="s", name="try")

    found = await branches.diff("s", "s/try")
    assert found.artifact_ids == ("action:notify:o", "gone", "kept", "o", "receipt:o")
    assert [(field.path, field.old, field.new) for field in found.state.changed[0].fields] == [
        ("tags[1]", None, "y"),
        ("text", "one", "two"),
    ]
    assert [tuple(relation) for relation in found.state.relations_added] == [("kept", "cites", "o")]
    text = str(found).splitlines()
    for line in (
        "- gone  support.Note  v0",
        '    text: "one" -> "two"',
        '    + tags[1]: "y"',
        "+ kept -[cites]-> o",
    ):
        assert line in text
    document = json.loads(json.dumps(found.to_dict()))
    assert document.keys() == {"old", "new", "artifacts", "relations", "deliveries"}
    assert document["artifacts"]["changed"][0]["id"] == "kept"
    # the ledger is one for all branches, so that two branches never differ in it ...
    assert found.deliveries == ()
    # ... a commit and what became of it do
    since = await branches.diff("s/try@v1", "s/try")
    (delivery,) = since.deliveries
    assert (delivery.action_id, delivery.old_status, delivery.new_status) == (
        "action:notify:o",
        None,
        "dispatched",
    )
    assert "> action:notify:o  not sent -> dispatched  from branch try" in since.text()
    back = (await branches.diff("s/try", "s/try@v1")).deliveries
    assert [(one.old_status, one.new_status) for one in back] == [("dispatched", None)]


async def test_diff_names_what_git_diff_stat_names(git_place: Place) -> None:
    branches = await started(git_place, a="one", b="two", c="three")
    await branches.fork("s/main@v2", "s/try")
    async with branches.edit("s", "try") as context:
        context.update("a", Note(text="other"))
        context.delete("b")
        context.create(Note(text="new"), id="new:1/2")
    found = await branches.diff("s/main", "s/try")
    assert git_place.path is not None
    shown = git(git_place.path, "diff", "--numstat", "--no-renames", "s/main", "s/try", "--", "artifacts")
    names = {line.rpartition("/")[2].removesuffix(".json") for line in shown.splitlines()}
    assert names == {"a", "b", "c", "new%3A1%2F2", "kick"}
    assert found.artifact_ids == ("a", "b", "c", "kick", "new:1/2")


async def test_equal_states_and_what_is_no_state(place: Place) -> None:
    session = await place.store().open("s")
    session.context.create(Order(item="tea"), id="o")
    await Runtime(session.context, [notifier()], session=session, dispatcher=Outside()).arun()
    branches = place.branches()
    await branches.fork("s", "s/try")
    equal = await branches.diff("s/main", "s/try")
    assert equal.is_empty
    assert str(equal).endswith("the states are equal")
    with pytest.raises(UnknownRevision, match="ledger"):
        await branches.diff("s/main", "s/%outbox")
    with pytest.raises(UnknownRevision, match="session/branch"):
        await branches.diff("s/main", "nothing-of-that-name")
    assert (await branches.log("s/%outbox"))[0].subject == "delivered notify:o"


# -- merge ---------------------------------------------------------------------------------------


async def test_merge_writes_all_or_nothing(place: Place) -> None:
    branches = await started(place, a="one", b="two")
    await branches.fork("s", "s/try")
    async with branches.edit("s", "try") as context:
        context.update("a", Note(text="theirs"))
    assert (await branches.merge("s", "s/try")) is not None
    assert await texts(branches, "s", "main") == {"a": "theirs", "b": "two"}
    assert await branches.merge("s", "s/try") is None  # nothing new
    async with branches.edit("s", "try") as context:
        context.update("b", Note(text="theirs"))
        context.create(Note(), id="c")
    async with branches.edit("s") as context:
        context.update("b", Note(text="ours"))
    before = await branches.branches("s")
    with pytest.raises(MergeConflict) as raised:
        await branches.merge(into="s", source="s/try")
    assert len(raised.value.conflicts) == 1
    assert raised.value.conflicts[0].startswith("b")
    assert await branches.branches("s") == before
    assert await texts(branches, "s", "main") == {"a": "theirs", "b": "ours"}


async def test_a_merge_that_lost_a_race_writes_nothing(place: Place) -> None:
    branches = await started(place, a="one")
    await branches.fork("s", "s/try")
    async with branches.edit("s", "try") as context:
        context.create(Note(), id="b")
    target, other = await verbs.sides(branches.database, "s/main", "s/try")
    async with branches.edit("s", author="faster") as context:
        context.create(Note(), id="c")
    with pytest.raises(StaleSession, match="'main'"):
        await verbs.merge(target, other, message="late", policy=None, emit_events=False)
    assert sorted(await texts(branches, "s", "main")) == ["a", "c"]
    assert await branches.merge("s/main", "s/try") is not None
    assert sorted(await texts(branches, "s", "main")) == ["a", "b", "c"]


async def test_merge_of_a_tag_and_of_a_version(place: Place) -> None:
    branches = await started(place, a="one")
    await branches.fork("s", "s/try")
    for name in ("b", "c"):
        async with branches.edit("s", "try") as context:
            context.create(Note(text=name), id=name)
    await branches.tag("s/try@v2", "half")
    await branches.merge("s", "s/half")
    assert sorted(await texts(branches, "s", "main")) == ["a", "b"]
    await branches.merge("s", "s/try@v3")
    assert sorted(await texts(branches, "s", "main")) == ["a", "b", "c"]


async def test_a_merge_into_something_else_than_a_branch_is_refused(place: Place) -> None:
    branches = await started(place, a="one")
    await branches.tag("s", "label")
    with pytest.raises(UnknownRevision):
        await branches.merge("s/label", "s")
    with pytest.raises(UnknownRevision):
        await branches.merge("s/%outbox", "s")


# -- tags ----------------------------------------------------------------------------------------


async def test_a_tag_never_moves(place: Place) -> None:
    branches = await started(place, a="one", b="two")
    made = await branches.tag("s/main@v1", "release/1")
    assert (made.session, made.name) == ("s", "release/1")
    assert await branches.tag("s/main@v1", "release/1") == made  # the same again changes nothing
    with pytest.raises(NameTaken, match="do not move"):
        await branches.tag("s/main", "release/1")
    await branches.fork("s", "s/try")
    with pytest.raises(NameTaken, match="branch 'try'"):
        await branches.tag("s", "try")
    with pytest.raises(ValueError, match="too long"):
        await branches.tag("s", "x" * 300)
    assert await branches.tags() == await branches.tags("s") == [made]
    assert await branches.tags("other") == []
    async with branches.edit("s") as context:
        context.delete("a")
    assert (await branches.diff("s/release/1", "s")).artifact_ids == ("a", "b", "kick")
    assert [entry.commit for entry in await branches.log("s/release/1", limit=1)] == [made.commit]
    assert [entry.commit for entry in await branches.log("release/1", session="s", limit=1)] == [made.commit]
    assert (await branches.blame("s/release/1", "a"))[-1].agent == "agent-1"
    assert (await branches.diff(made.ref, made.commit[:10])).is_empty


async def test_tags_go_with_their_session(place: Place) -> None:
    branches = await started(place, a="one")
    await branches.tag("s", "label")
    await place.store().delete_session("s")
    assert await branches.tags() == []


async def test_git_sees_tags_and_forks(git_place: Place) -> None:
    branches = await started(git_place, a="one")
    await branches.tag("s", "release 1")
    await branches.fork("s", "s/try")
    assert git_place.path is not None
    assert git(git_place.path, "tag").split() == ["s/release%201"]
    assert git(git_place.path, "branch", "--format=%(refname:short)").split() == ["s/main", "s/try"]
    assert git(git_place.path, "rev-parse", "s/release%201") == git(git_place.path, "rev-parse", "s/try")
    fsck(git_place.path)
    # tags of others are no trouble; below a session's name they are tags of it, annotated or not
    git(git_place.path, "tag", "v1.0", "s/main")
    git(git_place.path, "tag", "-a", "s/annotated", "-m", "by hand", "s/main")
    assert [tag.name for tag in await branches.tags()] == ["annotated", "release 1"]
    assert branches.repository.references.get("refs/heads/s/try") is not None


async def test_only_a_store_at_a_path_has_a_repository() -> None:
    with pytest.raises(StoreError, match="no git repository"):
        _ = Place(None).branches().repository


# -- looking at a commit -------------------------------------------------------------------------


async def test_a_commit_that_is_looked_at_is_never_saved(place: Place) -> None:
    session = await place.store().open("s")
    session.context.create(Order(item="tea"), id="o")
    await Runtime(session.context, [notifier()], session=session, dispatcher=Outside()).arun()
    branches = place.branches()
    database = branches.database
    (first,) = [entry for entry in await branches.log("s") if entry.author == "notifier"]
    past = context_at(database, first.commit)
    assert (past.version, action(past, "notify:o").status) == (1, "pending")  # as that commit knew it
    past.create(Note(), id="n")
    for name in ("main", "other"):
        with pytest.raises(StoreError, match="to be looked at"):
            await branches.save_branch(past, session_id="s", name=name)
    outside = Outside()
    with pytest.raises(StoreError, match="looked at"):
        await Runtime(past, [], dispatcher=outside).arun()
    assert outside.sent == []
    assert [head.name for head in await branches.branches()] == ["s/main"]
    # a branch of it is an ordinary fork: the world has moved on, and it knows
    fork = context_at(database, first.commit).branch(name="try")
    await branches.save_branch(fork, session_id="s", name="try")
    assert action(await place.load("s", "try"), "notify:o").status == "dispatched"
    with pytest.raises(StoreError, match="ledger"):
        context_at(database, (await branches.log("s/%outbox"))[0].commit)


# -- commits made by hand --------------------------------------------------------------------------


async def test_a_branch_moved_with_git_is_adopted_by_whoever_writes(git_place: Place) -> None:
    branches = await started(git_place, a="one")
    await branches.fork("s", "s/try")
    path = git_place.path
    assert path is not None
    plain = git(path, "commit-tree", "s/main^{tree}", "-p", "s/main", "-m", "an edit").strip()
    git(path, "update-ref", "refs/heads/s/main", plain)
    await branches.fork("s", "s/more")  # it stands on the commit that adopts the edit
    git(path, "merge-base", "--is-ancestor", "s/main", "s/more")
    assert git(path, "rev-parse", "s/main~1").strip() == plain
    async with branches.edit("s") as context:
        context.create(Note(text="two"), id="b")
    assert await texts(branches, "s", "main") == {"a": "one", "b": "two"}


# -- undo, protection, compaction ------------------------------------------------------------------


async def test_undo_of_a_merge_and_of_an_edit(place: Place) -> None:
    branches = await started(place, a="one")
    await branches.fork("s", "s/try")
    async with branches.edit("s", "try") as context:
        context.create(Note(text="theirs"), id="b")
    async with branches.edit("s") as context:
        context.update("a", Note(text="ours"))
    await branches.merge("s", "s/try")
    assert await texts(branches, "s", "main") == {"a": "ours", "b": "theirs"}
    assert "merge" in await branches.undo("s")
    assert await texts(branches, "s", "main") == {"a": "ours"}
    assert await texts(branches, "s", "try") == {"a": "one", "b": "theirs"}
    await branches.undo("s", "try")
    assert await texts(branches, "s", "try") == {"a": "one"}
    with pytest.raises(UnknownRevision, match="'absent'"):
        await branches.undo("s", "absent")


async def test_a_protected_branch_keeps_its_history_and_still_grows(place: Place) -> None:
    await started(place, a="one")
    database = place.store().database
    branches = BranchStore(database, protected=["s/ma*"])
    await branches.fork("s", "s/try")
    async with branches.edit("s", "try") as context:
        context.create(Note(text="b"), id="b")
    assert await branches.merge("s", "s/try") is not None
    with pytest.raises(ProtectedBranch, match="s/main"):
        await branches.delete_branch("s", "main")
    with pytest.raises(ProtectedBranch, match="s/main"):
        await branches.undo("s")
    with pytest.raises(ProtectedBranch, match="cannot delete s/main"):
        await SessionStore(database).delete_session("s")
    await branches.delete_branch("s", "try")
    assert [head.name for head in await branches.branches()] == ["s/main"]


async def test_names_and_verbs_after_a_compaction(place: Place) -> None:
    branches = await started(place, a="one", b="two", c="three", d="four")
    await branches.tag("s/main@v3", "release")
    await branches.fork("s/main@v2", "s/try")
    async with branches.edit("s", "try", author="ann") as context:
        context.update("a", Note(text="tried"))
    session = await place.store().open("s")
    assert session.context.compact(keep_commits=1) > 0
    await session.save()

    assert [tag.name for tag in await branches.tags()] == ["release"]
    assert (await branches.diff("s/release", "s")).artifact_ids == ("d", "kick")
    found = {field.path: field for field in await branches.blame("s", "a")}
    assert (found["text"].agent, found["text"].change is not None) == ("agent-1", True)
    assert await branches.bisect("s", lambda context: context.get("d") is None) is not None
    assert await branches.merge("s", "s/try") is not None
    assert await texts(branches, "s", "main") == {"a": "tried", "b": "two", "c": "three", "d": "four"}
    with pytest.raises(UnknownRevision, match="compacted"):
        await branches.fork("s/main@v1", "s/too-early")


async def test_a_preview_changes_nothing(place: Place) -> None:
    branches = await started(place, a="one")
    await branches.fork("s", "s/try")
    async with branches.edit("s", "try") as context:
        context.create(Note(text="b"), id="b")
        context.update("a", Note(text="theirs"))
    async with branches.edit("s") as context:
        context.update("a", Note(text="ours"))
    before = await branches.branches()
    found = await branches.preview("s", "s/try")
    assert (found.adopted, [detail.artifact_id for detail in found.details]) == (("b",), ["a"])
    assert (await branches.preview("s", "s/try", policy="theirs")).conflicts == ()
    assert await branches.branches() == before
    assert await branches.merge("s", "s/try", policy="theirs") is not None
    assert await texts(branches, "s", "main") == {"a": "theirs", "b": "b"}
