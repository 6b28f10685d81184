"""`Artifact` standing alone (API §2, §33): versions, history, diff, dictionary shape, migration."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, RootModel
from support import Note

from reactifact import Artifact, register_type
from reactifact.types import type_id_of


class Trip(BaseModel):
    stops: int = 0
    plan: dict[str, Any] = {}


class Person(BaseModel):
    full_name: str


def _rename(payload: dict[str, Any]) -> dict[str, Any]:
    if "name" in payload:
        payload["full_name"] = payload.pop("name")
    return payload


register_type(Person, type_id="tests.person", aliases=["tests.old-person"], migrate=_rename)


def test_a_new_artifact_has_version_0_and_equal_aware_times() -> None:
    artifact = Artifact(Note(text="a"))
    UUID(artifact.id)
    assert artifact.version == 0
    assert artifact.data_type == type_id_of(Note)
    assert artifact.created_at == artifact.updated_at
    assert artifact.created_at.utcoffset() == timedelta(0)
    assert artifact.created_at.tzinfo is UTC
    assert artifact.created_by_commit is None
    assert Artifact(Note(), id="n", created_by_commit="c1").created_by_commit == "c1"


def test_update_keeps_the_old_data_and_counts_one_version() -> None:
    artifact = Artifact(Note(text="a"), id="n")
    artifact.update(Note(text="b"))
    artifact.update(Note(text="b"))  # it does not compare: the context does
    assert artifact.version == 2
    assert artifact.data == Note(text="b")
    assert [data.text for data in artifact.history] == ["a", "b"]
    assert [data.text for data in artifact.get_all_versions()] == ["a", "b", "b"]
    assert artifact.updated_at >= artifact.created_at


def test_the_history_is_a_fresh_list() -> None:
    artifact = Artifact(Note(text="a"))
    artifact.update(Note(text="b"))
    artifact.history.clear()
    artifact.history.append(Note(text="forged"))
    assert [data.text for data in artifact.history] == ["a"]


def test_diff_tells_changed_added_and_removed_fields_also_nested() -> None:
    artifact = Artifact(Trip(stops=1, plan={"by": "train", "seat": {"row": 1, "side": "left"}}))
    artifact.update(Trip(stops=2, plan={"by": "train", "seat": {"row": 2, "side": "left"}, "meal": True}))
    found = artifact.diff(0, 1)
    assert found["added"] == {}
    assert found["removed"] == {}
    assert found["changed"]["stops"] == {"old": 1, "new": 2}
    plan = found["changed"]["plan"]
    assert plan["added"] == {"meal": True}
    assert plan["removed"] == {}
    assert plan["changed"]["seat"]["changed"] == {"row": {"old": 1, "new": 2}}
    assert artifact.diff(1, 0)["changed"]["plan"]["removed"] == {"meal": True}


@pytest.mark.parametrize(("old", "new"), [(0, 2), (-1, 0), (5, 6)])
def test_diff_refuses_versions_that_do_not_exist(old: int, new: int) -> None:
    artifact = Artifact(Note(text="a"))
    artifact.update(Note(text="b"))
    with pytest.raises(ValueError, match="has no version"):
        artifact.diff(old, new)


def test_trimming_the_history_leaves_the_version_alone() -> None:
    artifact = Artifact(Note(count=0))
    for number in range(1, 5):
        artifact.update(Note(count=number))
    artifact.trim_history(2)
    assert artifact.version == 4
    assert [data.count for data in artifact.history] == [2, 3]
    artifact.update(Note(count=5))
    assert artifact.version == 5
    artifact.trim_history(0)
    assert (artifact.version, artifact.history) == (5, [])
    with pytest.raises(ValueError, match="-1"):
        artifact.trim_history(-1)


def test_version_numbers_mean_the_same_after_trimming() -> None:
    artifact = Artifact(Note(count=0), id="n")
    for number in range(1, 5):
        artifact.update(Note(count=number))
    artifact.trim_history(1)
    assert artifact.diff(3, 4)["changed"] == {"count": {"old": 3, "new": 4}}
    with pytest.raises(ValueError, match="trimmed"):
        artifact.diff(0, 4)


def test_the_dictionary_has_the_published_keys_and_comes_back() -> None:
    artifact = Artifact(Note(text="a"), id="n", created_by_commit="c1")
    artifact.update(Note(text="b"))
    data = artifact.to_dict()
    assert set(data) == {
        "id",
        "data_type",
        "data",
        "version",
        "created_at",
        "updated_at",
        "history",
        "created_by_commit",
    }
    back = Artifact.from_dict(data)
    assert back.to_dict() == data
    assert (back.data, back.history, back.version) == (artifact.data, artifact.history, 1)
    assert (back.created_at, back.updated_at) == (artifact.created_at, artifact.updated_at)


def test_a_dictionary_without_a_version_counts_its_history() -> None:
    artifact = Artifact(Note(text="a"))
    artifact.update(Note(text="b"))
    data = artifact.to_dict()
    del data["version"]
    assert Artifact.from_dict(data).version == 1


def test_aliases_and_the_migrate_hook_reach_data_and_history() -> None:
    data = Artifact(Person(full_name="Ada"), id="p").to_dict()
    assert data["data_type"] == "tests.person"
    old = {**data, "data_type": "tests.old-person", "data": {"name": "Ada"}, "history": [{"name": "A."}]}
    back = Artifact.from_dict(old)
    assert back.data == Person(full_name="Ada")
    assert back.history == [Person(full_name="A.")]


class Numbers(RootModel[list[int]]):
    pass


def test_diff_shows_a_model_that_is_no_dictionary_as_its_root() -> None:
    artifact = Artifact(Numbers([1]))
    artifact.update(Numbers([1, 2]))
    assert artifact.diff(0, 1) == {
        "changed": {"root": {"old": [1], "new": [1, 2]}},
        "added": {},
        "removed": {},
    }
