"""`BranchStore.bisect` finds the generation that broke a state; `blame` the commit behind a field."""

from __future__ import annotations

import json
from math import ceil, log2
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Answer, Note, Order, Outside, Place, Question, answering_agents, commit, live, notifier

from reactifact import Consume, Context, ProduceCall, Runtime, RuntimeResources, create_agent, produce
from reactifact._store._history.blame import aligned, leaves
from reactifact.branching import BranchStore
from reactifact.errors import UnknownRevision
from reactifact.testing import JumpingClock

pytestmark = pytest.mark.anyio


async def counted(place: Place, values: list[int]) -> BranchStore:
    """Save a session in which one note takes these counts, each in a commit of its own."""
    session = await place.store().open("s")
    for number, value in enumerate(values):

        def work(call: ProduceCall, value: int = value) -> None:
            call.effects.upsert(Note(count=value), id="n")

        await commit(session.context, work, author=f"agent-{number}")
    await session.save()
    return place.branches()


def below_ten(context: Context) -> bool:
    note = context.get("n")
    return note is None or note.data.count < 10


@pytest.mark.parametrize("bad", [0, 1, 6, 12])
async def test_bisect_finds_the_first_failure(bad: int, place: Place) -> None:
    branches = await counted(place, [number + 10 * (number >= bad) for number in range(10)] + [100, 101, 102])
    looked: list[int] = []

    def predicate(context: Context) -> bool:
        looked.append(context.version)
        return below_ten(context)

    found = await branches.bisect("s", predicate)
    assert found is not None
    expected = min(bad, 10)
    assert (found.agent, found.generation, found.agents) == (f"agent-{expected}", 1, (f"agent-{expected}",))
    steps = len(await branches.log("s"))
    assert found.loads == len(looked) <= ceil(log2(steps + 1))
    assert found.commit == next(one.commit for one in await branches.log("s", agent=f"agent-{expected}"))
    assert found.before is not None
    assert json.loads(json.dumps(found.to_dict()))["loads"] == found.loads
    # nothing was written, nothing ran
    assert len(await branches.log("s")) == steps


async def test_bisect_of_what_holds_finds_nothing(place: Place) -> None:
    branches = await counted(place, [1, 2, 3])

    async def predicate(context: Context) -> bool:
        return below_ten(context)

    assert await branches.bisect("s", predicate) is None
    broken = await branches.bisect("s", lambda context: False)
    assert broken is not None
    assert broken.before is None


async def test_bisect_names_the_agent_within_a_generation(place: Place) -> None:
    """Three agents write in one generation; only its last state counts, and the culprit is named."""

    def writer(name: str, count: int) -> Any:
        @produce(Note)
        async def write(call: ProduceCall) -> None:
            call.effects.upsert(Note(count=count), id=f"n:{name}")

        return create_agent(name, consumes=[Consume(Question)], produces=[write])

    session = await place.store().open("s")
    for number in range(5):
        wrong = number >= 3
        agents = [writer("first", 1), writer("second", 50 if wrong else 2), writer("third", 3)]
        session.context.create(Question(text=str(number)), id=f"q{number}")
        await Runtime(session.context, agents, session=session).arun()

    def holds(context: Context) -> bool:
        return all(note.data.count < 10 for note in context.list_artifacts(Note))

    found = await place.branches().bisect("s", holds)
    assert found is not None
    assert (found.agent, found.generation) == ("second", 1)
    assert found.agents == ("first", "second", "third")
    assert found.entry.record is not None
    assert found.entry.record.trigger is not None
    assert found.entry.record.trigger["artifact_id"] == "q3"


async def test_what_bisect_found_is_printed_in_two_short_lines(place: Place) -> None:
    branches = await counted(place, [1, 2, 30])
    found = await branches.bisect("s", below_ten)
    assert found is not None
    assert found.before is not None
    first, second = str(found).splitlines()
    at = found.entry.time.strftime("%Y-%m-%d %H:%M:%SZ")
    assert first == f"{found.commit[:10]} {at} agent-2: update Note n" == str(found.entry)
    assert second == (
        f"  in generation 1 (agent-2); it held at {found.before[:10]}; {found.loads} states looked at"
    )
    never_held = await branches.bisect("s", lambda context: False)
    assert never_held is not None
    assert "outside of any generation; no commit is before it" in str(never_held)


async def test_an_entry_is_printed_in_one_line_without_control_characters(place: Place) -> None:
    name = "ann\x1b[31m\nred " + "x" * 300
    async with place.store().edit("s", author="ann", message=name) as context:
        context.create(Note(), id="n")
    (entry,) = await place.branches().log("s", artifact_id="n")
    assert str(entry).isprintable()
    assert str(entry).startswith(f"{entry.commit[:10]} ")
    assert len(str(entry)) < 300


async def test_bisect_of_a_direct_change(place: Place) -> None:
    branches = await counted(place, [1, 2])
    context = await place.load("s")
    context.resources.principal = "ann"
    context.update("n", Note(count=70))
    await place.store().save_session("s", context)
    found = await branches.bisect("s", below_ten)
    assert found is not None
    assert (found.agent, found.generation, found.run_id) == ("ann", None, None)


# -- blame ---------------------------------------------------------------------------------------


async def by_path(branches: BranchStore, artifact_id: str, branch: str = "s") -> dict[str, Any]:
    return {field.path: field for field in await branches.blame(branch, artifact_id)}


async def test_blame_names_commit_agent_trigger_and_time(place: Place) -> None:
    session = await place.store().open("s")
    context = session.context
    context.create(Question(text="why"), id="q")
    await Runtime(context, answering_agents(), session=session).arun()
    (answer,) = context.list_artifacts(Answer)
    await commit(context, lambda call: call.effects.create(Note(text="a", tags=["x"]), id="n"), author="ann")
    await commit(context, lambda call: call.effects.update("n", text="b"), author="bob")
    await commit(context, lambda call: call.effects.update("n", tags=["w", "x", "y"]), author="cy")
    context.resources.principal = "dora"
    context.update("n", Note(text="b", count=7, tags=["w", "x", "y"], extra={"k": {"deep": 1}}))
    await session.save()

    branches = place.branches()
    (field,) = await branches.blame("s", answer.id)
    assert (field.path, field.value, field.agent, field.version) == ("text", "re: why", "answerer", 0)
    assert field.trigger is not None
    assert (field.trigger["type"], field.trigger["artifact_id"]) == ("artifact_created", "q")
    (entry,) = [one for one in await branches.log("s") if one.author == "answerer"]
    assert (field.commit, field.change, field.time) == (
        entry.commit,
        entry.to_dict()["change"],
        live(context, answer.id).updated_at.isoformat(),
    )
    assert "answerer <- created q" in str(field)

    found = await by_path(branches, "n")
    assert {path: (one.agent, one.value, one.version) for path, one in found.items()} == {
        "count": ("dora", 7, 3),
        "extra.k.deep": ("dora", 1, 3),
        "tags[0]": ("cy", "w", 2),
        "tags[1]": ("cy", "x", 2),
        "tags[2]": ("cy", "y", 2),
        "text": ("bob", "b", 1),
    }
    for one in found.values():
        assert one.is_exact
        assert one.commit is not None
        (entry,) = [known for known in await branches.log("s") if known.commit == one.commit]
        assert (entry.author, entry.to_dict()["change"]) == (one.agent, one.change)
        assert entry.touches("n")
    json.dumps([one.to_dict() for one in found.values()])
    with pytest.raises(UnknownRevision, match="'absent'"):
        await branches.blame("s", "absent")


async def test_blame_follows_a_field_through_a_list_that_grows(place: Place) -> None:
    session = await place.store().open("s")
    for agent, tags in (("ann", ["x"]), ("bob", ["x", "y"]), ("cy", ["w", "x", "y"])):

        def work(call: ProduceCall, tags: list[str] = tags) -> None:
            call.effects.upsert(Note(tags=tags), id="n")

        await commit(session.context, work, author=agent)
    await session.save()
    found = await by_path(place.branches(), "n")
    assert [found[f"tags[{index}]"].agent for index in range(3)] == ["cy", "ann", "bob"]


async def test_blame_after_a_merge_names_the_other_sides_commit(place: Place) -> None:
    session = await place.store().open("s")
    await commit(session.context, lambda call: call.effects.create(Note(text="a"), id="n"), author="ann")
    await session.save()
    branches = place.branches()
    await branches.fork("s", "s/try")
    fork = await place.load("s", "try")
    await commit(fork, lambda call: call.effects.update("n", text="b"), author="bob")
    await branches.save_branch(fork, session_id="s", name="try")
    async with branches.edit("s", author="cy") as context:
        context.create(Note(), id="m")
    await branches.merge("s", "s/try", policy=None)
    found = await by_path(branches, "n")
    (entry,) = [one for one in await branches.log("s/try") if one.author == "bob"]
    assert (found["text"].agent, found["text"].commit) == ("bob", entry.commit)
    assert (found["count"].agent, found["count"].version) == ("ann", 0)


async def test_blame_after_a_merge_does_not_name_the_side_that_lost(place: Place) -> None:
    clock = JumpingClock()
    branches = place.branches()
    session = await place.store().open("s", RuntimeResources(clock=clock))
    session.context.create(Note(text="base"), id="n")
    await session.save()
    await branches.fork("s", "s/try")
    clock.advance(60)
    session.context.update("n", Note(text="ours"))
    await session.save()
    ours = (await branches.log("s"))[0].commit
    clock.advance(60)
    fork = await branches.load_branch("s", "try", RuntimeResources(clock=clock))
    assert fork is not None
    fork.update("n", Note(text="theirs"))
    await branches.save_branch(fork, session_id="s", name="try")
    await session.aclose()
    await branches.merge("s", "s/try", policy="ours")
    found = await by_path(branches, "n")
    assert (found["text"].value, found["text"].commit) == ("ours", ours)


async def test_blame_of_one_that_was_created_again_begins_there(place: Place) -> None:
    branches = await counted(place, [1, 2])
    async with branches.edit("s", author="ann") as context:
        context.delete("n")
    async with branches.edit("s", author="bob") as context:
        context.create(Note(count=2), id="n")
    found = await by_path(branches, "n")
    assert {one.agent for one in found.values()} == {"bob"}


async def test_blame_of_an_action_tells_its_delivery(place: Place) -> None:
    session = await place.store().open("s")
    for name in ("o", "p"):
        session.context.create(Order(item="tea"), id=name)
    outside = Outside("notify:o")
    options = {"dispatcher": outside, "session": session, "dispatch_errors": "record"}
    await Runtime(session.context, [notifier()], **options).arun()  # type: ignore[arg-type]
    branches = place.branches()
    failed = await by_path(branches, "action:notify:o")
    assert {failed[name].agent for name in ("kind", "payload.item")} == {"notifier"}
    assert (failed["status"].value, failed["attempts"].value) == ("failed", 1)
    assert "no route" in failed["error"].value

    outside.failing.clear()
    session.context.retry_action("action:notify:o")
    await Runtime(session.context, [notifier()], **options).arun()  # type: ignore[arg-type]
    found = await by_path(branches, "action:notify:o")
    ledger = {entry.commit: entry.subject for entry in await branches.log("s/%outbox")}
    said = {name: ledger[found[name].commit] for name in ("status", "dispatched_at", "error", "attempts")}
    assert said == {
        "status": "delivered notify:o",
        "dispatched_at": "delivered notify:o",
        "error": "retry notify:o",
        "attempts": "failed notify:o",  # a retry leaves the number as it is
    }
    assert (found["status"].value, found["status"].agent) == ("dispatched", "outbox")
    assert found["status"].version == live(session.context, "action:notify:o").version
    assert (await by_path(branches, "o"))["item"].agent == "application"


async def test_blame_reads_no_trees_of_the_history(place: Place) -> None:
    """The history is walked by commit objects alone, and only back to the oldest writer."""
    branches = await counted(place, [1])
    session = await place.store().open("s")
    for number in range(30):
        await commit(session.context, lambda call, n=number: call.effects.create(Note(), id=f"other{n}"))
    await commit(session.context, lambda call: call.effects.update("n", text="late"), author="late")
    await session.save()
    branches = place.branches()
    trees: list[str] = []
    read = branches.database.read

    def counting(oid: str) -> Any:
        found = read(oid)
        if found.kind == "tree":
            trees.append(oid)
        return found

    branches.database.read = counting  # type: ignore[method-assign]
    found = await by_path(branches, "n")
    assert (found["text"].agent, found["count"].agent) == ("late", "agent-0")
    assert len(set(trees)) < 30


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "b"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("ab."), inner, max_size=3),
    max_leaves=12,
)


@given(JSON, JSON)
def test_every_leaf_has_one_origin_of_the_same_value(old: Any, new: Any) -> None:
    before, after = dict(leaves(old)), dict(leaves(new))
    found = list(aligned(old, new))
    assert sorted(path for path, _ in found) == sorted(after)
    origins = [origin for _, origin in found if origin is not None]
    assert len(set(origins)) == len(origins)
    for path, origin in found:
        if origin is not None:
            assert json.dumps(before[origin]) == json.dumps(after[path])
    if json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True):
        assert all(path == origin for path, origin in found)
