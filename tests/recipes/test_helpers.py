"""The small helpers: inputs by type, stages, and that the package's face is whole."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from reactifact import Artifact, recipes
from reactifact.recipes import changed_fields, downstream_fields, earliest_stage, find, find_all


class Plan(BaseModel):
    city: str | None = None
    budget: int | None = None
    tags: list[str] | None = None


class Trip(Plan):
    days: int = 1


class Other(BaseModel):
    pass


STAGES = {"city": "search", "days": "search", "budget": "rank", "tags": "show"}
ORDER = ["search", "rank", "show"]


def test_every_public_name_resolves() -> None:
    assert recipes.__all__ == sorted(recipes.__all__)
    assert all(getattr(recipes, name) is not None for name in recipes.__all__)


def test_find_by_type() -> None:
    inputs = [Artifact(Other()), Artifact(Trip(), id="a"), Artifact(Plan(), id="b")]
    found = find(inputs, Plan)
    assert found is not None
    assert found.id == "a"
    assert [artifact.id for artifact in find_all(inputs, Plan)] == ["a", "b"]
    assert find(inputs[:1], Plan) is None
    assert find_all([], Plan) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (Plan(city="Rome"), Plan(city="Rome"), set()),
        (Plan(city="Rome"), Plan(city="Oslo", budget=3), {"city", "budget"}),
        (Plan(city="Rome", budget=3), Plan(city="Oslo"), {"city"}),  # None says nothing
        (Plan(), Plan(tags=[]), {"tags"}),
        ({"a": 1}, {"a": 2, "b": None}, {"a"}),
        (None, Plan(budget=0), {"budget"}),
    ],
)
def test_changed_fields(old: object, new: object, expected: set[str]) -> None:
    assert changed_fields(old, new) == expected  # type: ignore[arg-type]


def test_changed_fields_that_do_not_count() -> None:
    assert changed_fields(Plan(), Plan(city="Rome", budget=1), ignore=["city"]) == {"budget"}


def test_the_earliest_stage() -> None:
    assert earliest_stage(["tags", "budget"], field_stages=STAGES, order=ORDER) == "rank"
    assert earliest_stage({"city", "tags"}, field_stages=STAGES, order=ORDER) == "search"
    assert earliest_stage(["unknown"], field_stages=STAGES, order=ORDER) is None
    assert earliest_stage([], field_stages=STAGES, order=ORDER) is None


def test_the_fields_from_a_stage_on() -> None:
    assert downstream_fields("rank", field_stages=STAGES, order=ORDER) == frozenset({"budget", "tags"})
    assert downstream_fields("search", field_stages=STAGES, order=ORDER) == frozenset(STAGES)
    assert downstream_fields("nowhere", field_stages=STAGES, order=ORDER) == frozenset()
