"""`BranchStore.race`: strategies side by side on forks, a judge, the winner merged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from support import Answer, Note, Order, Outside, Place, Question, action, answering_agents, live, notifier

from reactifact import MergeConflict, Runtime, Session
from reactifact.branching import BranchStore, Fork
from reactifact.errors import NameTaken, ProtectedBranch

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]


async def started(place: Place) -> BranchStore:
    async with await place.store().open("s") as session:
        session.context.create(Note(text="start"), id="n")
        session.context.create(Question(text="why"), id="q")
        session.context.create(Order(item="tea"), id="o")
    return place.branches()


def writing(text: str) -> Any:
    async def strategy(session: Session) -> str:
        session.context.update("n", Note(text=text, count=len(text)))
        return text

    return strategy


def longest(forks: Mapping[str, Fork]) -> str:
    return max(forks, key=lambda name: live(forks[name].context, "n").data.count)


async def test_the_winner_is_merged_and_the_forks_are_gone(place: Place) -> None:
    branches = await started(place)
    found = await branches.race(
        "s", {"short": writing("a"), "long": writing("aaa"), "none": writing("")}, judge=longest
    )
    assert found.winner == "long"
    assert found.merged is not None
    assert found.merged.subject == "Merge long, the winner of a race"
    assert [fork.result for fork in found.forks.values()] == ["a", "aaa", ""]
    (changed,) = found.forks["short"].diff.state.changed
    assert {field.path for field in changed.fields} == {"text", "count"}
    assert live(await branches.at("s"), "n").data.text == "aaa"
    assert await branches.list_branches("s") == []


async def test_agents_run_on_each_fork_and_send_nothing_until_the_winner_is_merged(place: Place) -> None:
    branches = await started(place)

    async def judge(forks: Mapping[str, Fork]) -> str:
        await anyio.sleep(0)
        assert action(forks["mail"].context, "notify:o").status == "simulated"
        report = await place.store().drain(outside)  # as a relay beside the race would
        assert report.tried == 0
        return "mail"

    outside = Outside()
    found = await branches.race(
        "s", {"mail": [notifier()], "answer": answering_agents()}, judge=judge, keep=True
    )
    assert (found.forks["mail"].result, found.forks["answer"].result) == (1, 2)
    assert await branches.list_branches("s") == ["answer", "mail"]
    assert outside.sent == []
    await place.store().drain(outside)
    assert outside.sent == ["notify:o"]  # that of the winner, once
    main = await branches.at("s")
    assert main.list_artifacts(Answer) == []


async def test_without_a_winner_nothing_is_merged(place: Place) -> None:
    branches = await started(place)
    before = (await branches.at("s")).head_id
    found = await branches.race("s", {"a": writing("a")}, judge=lambda forks: None)
    assert (found.winner, found.merged) == (None, None)
    assert (await branches.at("s")).head_id == before


async def test_a_strategy_that_fails_is_out_and_where_all_fail_the_first_error_counts(
    place: Place,
) -> None:
    branches = await started(place)

    async def fails(session: Session) -> None:
        raise ConnectionError(f"no route for {session.branch}")

    found = await branches.race("s", {"bad": fails, "good": writing("g")}, judge=longest)
    assert found.winner == "good"
    assert isinstance(found.forks["bad"].error, ConnectionError)
    with pytest.raises(ConnectionError, match="no route for one") as raised:
        await branches.race("s", {"one": fails, "two": fails}, judge=longest)
    notes = raised.value.__notes__
    assert any("strategy 'one'" in note for note in notes)
    assert any("no route for two" in note for note in notes)
    assert await branches.list_branches("s") == ["one", "two"]  # to see what became of them


async def test_a_conflict_of_the_winner_merges_nothing_and_keeps_the_forks(place: Place) -> None:
    branches = await started(place)

    async def judge(forks: Mapping[str, Fork]) -> str:
        async with branches.edit("s") as context:  # somebody works on main meanwhile
            context.update("n", Note(text="main"))
        return "a"

    with pytest.raises(MergeConflict):
        await branches.race("s", {"a": writing("a")}, judge=judge)
    assert live(await branches.at("s"), "n").data.text == "main"
    assert await branches.list_branches("s") == ["a"]
    found = await branches.race("s", {"a": writing("b")}, judge=longest, resume=True, policy="theirs")
    assert found.merged is not None
    assert live(await branches.at("s"), "n").data.text == "b"


async def test_a_race_that_was_cut_is_resumed_with_what_its_forks_hold(place: Place) -> None:
    branches = await started(place)
    calls: list[str] = []

    def counting(session: Session) -> Any:
        agents = answering_agents()
        calls.append(session.branch)
        return Runtime(session.context, agents, session=session).arun()

    async def is_cut(session: Session) -> None:
        await counting(session)
        scope.cancel()
        await anyio.sleep_forever()

    with anyio.CancelScope() as scope:
        await branches.race("s", {"a": is_cut}, judge=lambda forks: "a")
    with pytest.raises(NameTaken):
        await branches.race("s", {"a": counting}, judge=lambda forks: "a")
    found = await branches.race("s", {"a": counting}, judge=lambda forks: "a", resume=True)
    assert found.forks["a"].result == 0  # all of it was done, and saved, before the cut
    assert len((await branches.at("s")).list_artifacts(Answer)) == 1


async def test_strategies_are_limited_to_so_many_at_once(place: Place) -> None:
    branches, running, most = await started(place), 0, 0

    async def strategy(session: Session) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(0)
        running -= 1

    entrants = {str(number): strategy for number in range(4)}
    await branches.race("s", entrants, judge=lambda forks: None, max_concurrency=2)
    assert most <= 2


async def test_what_a_race_refuses(place: Place) -> None:
    branches = await started(place)
    with pytest.raises(ValueError, match="needs strategies"):
        await branches.race("s", {}, judge=longest)
    with pytest.raises(ValueError, match="named 'nobody'"):
        await branches.race("s", {"a": writing("a")}, judge=lambda forks: "nobody")
    guarded = BranchStore(branches.database, protected=["s/b"])
    with pytest.raises(ProtectedBranch):
        await guarded.race("s", {"b": writing("a")}, judge=longest)
