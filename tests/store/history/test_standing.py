"""Who made a commit, and which is the nearest one of ours below those of somebody else."""

from __future__ import annotations

import json

from hand_commits import amended, commit_on, payload, payload_path, session

from reactifact._store import canonical
from reactifact._store._history.adoption.standing import (
    Encoded,
    Written,
    as_written,
    is_by_hand,
    last_good,
    ours_at,
    person,
)
from reactifact._store.commits import down_from, nearest_record, own_record


def test_the_nearest_commit_of_ours_is_found_below_any_number_of_others() -> None:
    objects, ours = session(n="one")
    path = payload_path(objects, ours, "n")
    first = commit_on(objects, [ours], {path: b'{"text": "two"}'})
    second = commit_on(objects, [first], {path: b'{"text": "three"}'})
    assert [is_by_hand(objects, oid) for oid in (second, first, ours)] == [True, True, False]
    assert last_good(objects, second) == last_good(objects, ours) == ours
    assert list(down_from(objects, second))[:3] == [second, first, ours]
    assert nearest_record(objects, second) == own_record(objects, ours)


def test_a_history_without_a_commit_of_ours_has_none() -> None:
    objects, ours = session(n="one")
    foreign = commit_on(objects, [], {}, tree_of=ours)
    assert last_good(objects, foreign) is None
    assert nearest_record(objects, foreign) is None
    assert list(down_from(objects, None)) == []


def test_an_amended_message_leaves_a_commit_ours() -> None:
    objects, ours = session(n="one")
    said = amended(objects, ours, "said better\n", {})
    assert said != ours
    assert not is_by_hand(objects, said)
    assert last_good(objects, said) == said


def test_an_amended_payload_is_somebody_elses_above_what_the_commit_was() -> None:
    objects, ours = session(n="one")
    path = payload_path(objects, ours, "n")
    changed = amended(objects, ours, objects.commit(ours).message, {path: b'{"text": "two"}'})
    assert is_by_hand(objects, changed)
    assert ours_at(objects, changed) == last_good(objects, changed) == ours


def test_a_payload_is_taken_as_written_in_canonical_bytes() -> None:
    objects, ours = session(n="one")
    before = Encoded("support.Note", payload(objects, ours, "n"), "r1")
    value = {"text": "two", "count": 1}
    same = as_written(Written("n", "support.Note", value, before, None, True))
    assert same.data == canonical.encode(value)
    assert json.loads(same.data) == value
    assert same.revision == "r1"  # a person wrote it: the shape is the one that was there
    assert as_written(Written("n", "support.Other", value, before, None, True)).revision == ""
    assert as_written(Written("n", "support.Note", value, before, "r2", True)).revision == "r2"


def test_a_person_is_named_with_the_address() -> None:
    objects, ours = session(n="one")
    made = objects.commit(commit_on(objects, [ours], {}))
    assert person(made) == "Ann <ann@example.com>"
