"""What `git-setup` gives a clone: git merges our files by field, and shows a changed word as one line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
from support import Note, git

from reactifact import Context
from reactifact._sessions.clones import as_lines, merge_files, set_up_clone
from reactifact._store import canonical
from reactifact.branching import BranchStore
from reactifact.cli import main
from reactifact.errors import NotAStore

PATH = "artifacts/shop.Order/a/b/c/o.json"


def merged(base: Any, ours: Any, theirs: Any, path: str = PATH) -> tuple[Any, list[str]]:
    files = [b"" if value is None else canonical.encode(value) for value in (base, ours, theirs)]
    data, conflicts = merge_files(*files, path)
    return (data if conflicts else json.loads(data)), conflicts


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "result"),
    [
        ({"a": 1, "b": 2}, {"a": 3, "b": 2}, {"a": 1, "b": 4}, {"a": 3, "b": 4}),
        ({"a": 1, "b": 2}, {"a": 1}, {"a": 5, "b": 2}, {"a": 5}),
        ({"a": {"x": 1, "y": 1}}, {"a": {"x": 2, "y": 1}}, {"a": {"x": 1, "y": 3}}, {"a": {"x": 2, "y": 3}}),
        ({"a": 1}, {"a": 1, "n": 2}, {"a": 1, "n": 2}, {"a": 1, "n": 2}),
        (None, {"a": 1}, {"a": 1}, {"a": 1}),
    ],
)
def test_a_field_that_one_side_changed_is_taken_from_there(
    base: Any, ours: Any, theirs: Any, result: Any
) -> None:
    assert merged(base, ours, theirs) == (result, [])
    assert merged(base, theirs, ours) == (result, [])


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "field"),
    [
        ({"a": 1}, {"a": 2}, {"a": 3}, "a"),
        ({"a": {"x": 1}}, {"a": {"x": 2}}, {"a": {"x": 3}}, "a.x"),
        ({"a": 1}, {}, {"a": 3}, "a"),
        ({"a": [1]}, {"a": [1, 2]}, {"a": [1, 3]}, "a"),
        ({"a": 1}, {"a": True}, {"a": 2}, "a"),  # `True == 1`, and is another value
        (None, {"a": 1}, {"a": 2}, "a"),
    ],
)
def test_a_field_that_both_changed_is_a_conflict_with_marks(
    base: Any, ours: Any, theirs: Any, field: str
) -> None:
    data, conflicts = merged(base, ours, theirs)
    assert conflicts == [field]
    assert b"<<<<<<< ours" in data
    assert b">>>>>>> theirs" in data


def test_links_of_both_sides_are_joined_and_what_one_took_away_is_gone() -> None:
    def links(*targets: str) -> dict[str, Any]:
        return {
            "source": "a",
            "links": [{"relation": "r", "sequence": i, "target": t} for i, t in enumerate(targets)],
        }

    found, conflicts = merged(
        links("x", "y"), links("x", "y", "mine"), links("x", "theirs"), "relations/a.json"
    )
    assert conflicts == []
    assert {link["target"] for link in found["links"]} == {"x", "mine", "theirs"}


def test_a_changed_word_of_a_long_text_is_one_line() -> None:
    text = (
        "The first clause is long enough, the second one is not short either. And there is a third sentence."
    )
    before = as_lines(canonical.encode({"id": 1, "text": text})).splitlines()
    after = as_lines(canonical.encode({"id": 1, "text": text.replace("second", "other")})).splitlines()
    assert len(before) == len(after) > 3
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 1
    assert as_lines(b"no JSON") == "no JSON"


class Clone:
    """A store with two branches that differ in the fields of one note, and a clone that is set up."""

    def __init__(self, folder: Path, ours: Note, theirs: Note) -> None:
        self.path, self.work = folder / "state.git", folder / "clone"
        anyio.run(self._make, ours, theirs)
        git(folder, "clone", "-q", "-b", "s/main", str(self.path), str(self.work))
        assert main(["git-setup", str(self.work)]) == 0

    async def _make(self, ours: Note, theirs: Note) -> None:
        branches = BranchStore(self.path, durability="os")
        async with branches.edit("s") as context:
            context.create(Note(text="start", count=1), id="n")
        await branches.fork("s", "s/try")
        for branch, note in (("main", ours), ("try", theirs)):
            async with branches.edit("s", branch) as context:
                context.update("n", note)
        await branches.aclose()

    def load(self) -> Context:
        async def opened() -> Context | None:
            branches = BranchStore(self.path, durability="os")
            context = await branches.load_branch("s", "main")
            await branches.aclose()
            return context

        context = anyio.run(opened)
        assert context is not None
        return context


def test_git_merges_by_field_in_a_clone_that_is_set_up(tmp_path: Path) -> None:
    clone = Clone(tmp_path, Note(text="ours", count=1), Note(text="start", count=2))
    git(clone.work, "merge", "-q", "-m", "both", "origin/s/try")
    git(clone.work, "push", "-q", "origin", "HEAD:s/main")
    note = clone.load().get("n")
    assert note is not None
    assert note.data == Note(text="ours", count=2)
    assert note.version == 2


def test_a_conflict_of_one_field_is_told_by_its_name(tmp_path: Path) -> None:
    clone = Clone(tmp_path, Note(text="ours", count=5), Note(text="theirs", count=1))
    done = subprocess.run(
        ["git", "-C", str(clone.work), "merge", "origin/s/try"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "n.json: text was changed on both sides" in done.stderr
    (note,) = clone.work.glob("artifacts/*/*/*/*/n.json")
    text = note.read_text()
    assert text.count("<<<<<<<") == 1
    assert '"count": 5' in text


def test_set_up_twice_changes_nothing_and_elsewhere_says_so(tmp_path: Path) -> None:
    clone = Clone(tmp_path, Note(text="a"), Note(text="b"))
    attributes = clone.work / ".git" / "info" / "attributes"
    before = attributes.read_text()
    assert main(["git-setup", str(clone.work)]) == 0
    assert attributes.read_text() == before
    assert main(["git-setup", str(tmp_path)]) == 2
    with pytest.raises(NotAStore, match="not a clone"):
        set_up_clone(str(tmp_path))
