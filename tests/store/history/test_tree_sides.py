"""The state that a commit made with git stands for: its files against the states below, side by side."""

from __future__ import annotations

import pytest
from hand_commits import BEN, REF, commit_on, payload_path, session

from reactifact._store._history.adoption.standing import Standing
from reactifact._store._history.adoption.tree import roots_at, stand_on
from reactifact._store.commits import read_roots
from reactifact._store.object_db import Staging
from reactifact._store.objects import Oid
from reactifact.errors import CommitRefused


def kinds(found: Standing) -> dict[str, str]:
    return {change.artifact_id: change.kind for change in found.changes}


def test_a_commit_of_ours_stands_for_its_own_state() -> None:
    objects, ours = session(n="one")
    found = stand_on(objects, ours, REF)
    assert (found.base, found.changes, found.commits) == (ours, [], [])
    assert found.roots == read_roots(objects, ours) == roots_at(objects, ours)


def test_each_kind_of_change_is_told_with_who_made_it() -> None:
    objects, ours = session(changed="one", gone="one", same="one")
    changed, gone = (payload_path(objects, ours, name) for name in ("changed", "gone"))
    made = (*changed[:-1], "new.json")
    first = commit_on(objects, [ours], {changed: b'{"text": "two"}', gone: None})
    tip = commit_on(objects, [first], {made: b'{"text": "three"}'}, who=BEN)
    found = stand_on(objects, tip, REF)
    assert kinds(found) == {"changed": "update", "gone": "delete", "new": "create"}
    assert {change.artifact_id: change.author for change in found.changes} == {
        "changed": "Ann <ann@example.com>",
        "gone": "Ann <ann@example.com>",
        "new": "Ben <ben@example.com>",
    }
    assert found.base == ours
    assert found.commits == [tip, first]
    assert found.state.stored("gone") is None
    assert found.state.stored("same") is not None


def test_formatting_alone_changes_nothing() -> None:
    objects, ours = session(n="one")
    path = payload_path(objects, ours, "n")
    spaced = commit_on(objects, [ours], {path: b'{"tags": [],\n"text":"one", "count":0,   "extra":{}}\n\n'})
    found = stand_on(objects, spaced, REF)
    assert found.changes == []
    assert found.roots.artifacts == read_roots(objects, ours).artifacts


def both(objects: Staging, ours: Oid, left: bytes, right: bytes) -> tuple[Oid, Oid]:
    a, b = (payload_path(objects, ours, name) for name in ("a", "b"))
    return commit_on(objects, [ours], {a: left}), commit_on(objects, [ours], {b: right}, who=BEN)


def test_a_merge_takes_each_side_for_what_it_changed() -> None:
    objects, ours = session(a="one", b="one")
    mine, theirs = both(objects, ours, b'{"text": "left"}', b'{"text": "right"}')
    merged = commit_on(objects, [mine, theirs], {payload_path(objects, ours, "b"): b'{"text": "right"}'})
    found = stand_on(objects, merged, REF)
    assert {change.artifact_id for change in found.changes} == {"a", "b"}
    assert {change.author for change in found.changes} == {"Ann <ann@example.com>", "Ben <ben@example.com>"}
    assert set(found.commits) == {merged, mine, theirs}


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        (("notes.txt",), b"x", "is not part of a state"),
        (("artifacts", "loose.json"), b"{}", "stands in no folder of a type"),
        (("artifacts", "support.Note", "readme.md"), b"x", "is called <id>.json"),
        (("artifacts", "support.Note", "n.json"), b"{", "it is not JSON"),
    ],
)
def test_what_cannot_be_taken_is_refused_by_name(name: tuple[str, ...], data: bytes, reason: str) -> None:
    objects, ours = session(n="one")
    path = payload_path(objects, ours, "n") if name[-1] == "n.json" else name
    tip = commit_on(objects, [ours], {path: data})
    with pytest.raises(CommitRefused, match=reason) as refused:
        stand_on(objects, tip, REF)
    assert refused.value.last_good == ours
    assert [problem.commit for problem in refused.value.problems] == [tip]


def test_all_that_is_wrong_is_told_at_once_with_the_commit_that_did_it() -> None:
    objects, ours = session(n="one")
    first = commit_on(objects, [ours], {("artifacts", "support.Note", "a.txt"): b"x"})
    tip = commit_on(objects, [first], {("artifacts", "support.Note", "b.txt"): b"x"})
    with pytest.raises(CommitRefused) as refused:
        stand_on(objects, tip, REF)
    told = {problem.path: problem.commit for problem in refused.value.problems}
    assert told == {"artifacts/support.Note/a.txt": first, "artifacts/support.Note/b.txt": tip}
