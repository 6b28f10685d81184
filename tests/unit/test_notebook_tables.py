"""What a notebook shows of artifacts, contexts, commits, differences and previews: tables, and no script."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
from support import Note, Place, Question, answering_agents, commit, live

from reactifact import Context, Runtime, RuntimeResources
from reactifact._context import view
from reactifact.branching import BranchStore
from reactifact.commit import Commit, Write

pytestmark = pytest.mark.anyio

HOSTILE = "<script>alert(1)</script>\u202e"
SHOWN = "<script>alert(1)</script>\\u202e"
ALLOWED = {"caption", "code", "pre", "table", "tbody", "td", "th", "thead", "tr"}


class Shown(HTMLParser):
    """The tables of an object. Raises `AssertionError` for anything that is not one."""

    def __init__(self, thing: Any) -> None:
        super().__init__(convert_charrefs=True)
        self.cells: list[str] = []
        text = thing._repr_html_()
        self.feed(text)
        self.close()
        assert all(char.isprintable() or char == "\n" for char in text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED
        assert {name for name, _ in attrs} <= {"class", "data-label", "scope"}
        if tag in ("td", "th", "caption"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        self.cells[-1] += data


def a_context() -> Context:
    context = Context(RuntimeResources(principal="ann"))
    context.create(Note(text=HOSTILE, tags=["a"], count=1), id=HOSTILE)
    return context


async def test_an_artifact_with_its_data() -> None:
    found = Shown(live(a_context(), HOSTILE))
    assert found.cells.count(SHOWN) == 2  # its id and its text
    assert '["a"]' in found.cells


async def test_a_context_with_its_newest_artifacts(monkeypatch: pytest.MonkeyPatch) -> None:
    context = a_context()
    assert SHOWN in Shown(context).cells  # not committed yet
    for number in range(30):
        context.create(Note(text="x"), id=f"note:{number:02}")
    context.branch()  # commits
    cells = Shown(context).cells
    assert "the newest 20 of 31 artifacts" in cells
    assert "note:29" in cells
    assert "note:10" in cells
    assert "note:09" not in cells
    monkeypatch.setattr(view, "_COUNTED", 30)
    assert "more than 30 artifacts" in Shown(context).cells


async def test_looking_at_a_context_is_not_a_read() -> None:
    context = a_context()
    seen: list[Any] = []

    async def work(call: Any) -> None:
        Shown(call.context)
        seen.append(dict(call.context._view().reads))

    await commit(context, work)
    assert HOSTILE not in seen[0]


async def test_commits_and_a_history() -> None:
    context = a_context()
    context.create(Note(), id="q")
    context.create(Question(text="why?"), id="question")
    await Runtime(context, answering_agents()).arun()
    history = context.history()
    assert isinstance(history, list)
    assert history == context.commit_log()
    cells = Shown(history).cells
    assert [cells[place] for place in (0, 2, 5, 7)] == ["Version", "Author", "1", "answerer"]
    assert "answerer" in Shown(history[0]).cells
    assert "create" in Shown(history[0]).cells
    many = type(history)([*history] * 40)
    assert "the last 50 of 80 commits" in Shown(many).cells
    made = Commit(HOSTILE, HOSTILE, [], writes=[Write(HOSTILE, 1, "update")])
    assert Shown(made).cells.count(SHOWN) == 3


async def test_differences_of_versions(place: Place) -> None:
    store = place.store()
    async with store.edit("s", author="ann") as context:
        context.create(Note(text="one", count=1), id="a")
        context.create(Note(text=HOSTILE), id="gone")
    async with store.edit("s", author="ann") as context:
        context.update("a", Note(text="two", count=1))
        context.delete("gone")
        context.create(Note(text="new"), id="b")
        context.link("b", HOSTILE, "a")
    context = await place.load("s")
    found = context.diff(1, 2)
    assert found == {
        "added": {"b": context.snapshot()["b"]},
        "removed": {"gone": {**found["removed"]["gone"]}},
        "changed": {"a": {"old": found["changed"]["a"]["old"], "new": context.snapshot()["a"]}},
    }
    cells = Shown(found).cells
    place_of = cells.index("changed")
    assert cells[place_of : place_of + 5] == ["changed", "a", "text", "one", "two"]
    assert SHOWN in cells

    branches = BranchStore(store.database)
    points = await branches.diff("s/main@v1", "s/main")
    cells = Shown(points).cells
    place_of = cells.index("changed")
    assert cells[place_of : place_of + 5] == ["changed", "a", "text", "one", "two"]
    assert f"b {SHOWN} a" in cells
    log = await branches.log("s/main")
    assert isinstance(log, list)
    assert Shown(log).cells[:4] == ["Commit", "Time", "Author", "Subject"]
    assert "ann" in Shown(log).cells


async def test_a_preview_with_its_conflicts() -> None:
    context = a_context()
    other = context.branch(name="other")
    other.update(HOSTILE, Note(text="theirs"))
    other.create(Note(), id="new")
    context.update(HOSTILE, Note(text="ours"))
    found = context.merge(other, dry_run=True)
    assert found is not None
    cells = Shown(found).cells
    assert cells[2:4] == ["adopt", "new"]
    assert cells[-5:] == [SHOWN, "text", SHOWN, "ours", "theirs"]
    empty = context.merge(context.branch(), dry_run=True)
    assert "nothing to take over" in Shown(empty).cells


async def test_a_view() -> None:
    context = a_context()
    assert SHOWN in Shown(context.view(Note)).cells
