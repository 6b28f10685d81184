"""Operations and patches (API §6, §33): their dictionary forms, the builder, migration on the way back."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, RootModel
from support import Note

from reactifact import Artifact, Create, Delete, Link, Patch, Unlink, Update, register_type
from reactifact.operations import operation_from_dict
from reactifact.types import TypeNotFoundError, type_id_of

NOTE = type_id_of(Note)


class Ticket(BaseModel):
    title: str


def _title(payload: dict[str, Any]) -> dict[str, Any]:
    if "subject" in payload:
        payload["title"] = payload.pop("subject")
    return payload


register_type(Ticket, type_id="tests.ticket", aliases=["tests.issue"], migrate=_title)

OPERATIONS = [
    (Create(Note(text="a"), id="n"), {"type", "data", "data_type", "artifact_id", "id"}),
    (Update("n", Note(text="b")), {"type", "artifact_id", "data", "data_type"}),
    (Delete("n"), {"type", "artifact_id"}),
    (Link("n", "cites", "m"), {"type", "artifact_id", "relation", "target_id"}),
    (Unlink("n"), {"type", "artifact_id", "relation", "target_id"}),
    (Unlink("n", "cites", "m"), {"type", "artifact_id", "relation", "target_id"}),
]


@pytest.mark.parametrize(("operation", "keys"), OPERATIONS, ids=lambda value: type(value).__name__)
def test_an_operation_comes_back_from_its_dictionary(operation: Any, keys: set[str]) -> None:
    data = operation.to_dict()
    assert set(data) == keys
    assert data["type"] == type(operation).__name__.lower()
    assert operation_from_dict(data) == operation


def test_the_type_fills_itself_from_the_model() -> None:
    assert Create(Note()).data_type == NOTE
    assert Update("n", Note()).data_type == NOTE


def test_an_unknown_operation_or_type_is_refused() -> None:
    with pytest.raises(ValueError, match="rename"):
        operation_from_dict({"type": "rename", "artifact_id": "n"})
    with pytest.raises(ValueError, match="None"):
        operation_from_dict({"artifact_id": "n"})
    with pytest.raises(TypeNotFoundError, match="unknown artifact type"):
        operation_from_dict({"type": "create", "data": {}, "data_type": "gone.away.Model"})


def test_the_migrate_hook_reaches_operations() -> None:
    created = {"type": "create", "data": {"subject": "t"}, "data_type": "tests.issue", "artifact_id": "t"}
    operation = operation_from_dict(created)
    assert isinstance(operation, Create)
    assert operation.data == Ticket(title="t")
    assert operation.data_type == "tests.ticket"
    updated = operation_from_dict(
        {"type": "update", "artifact_id": "t", "data": {"subject": "u"}, "data_type": "tests.ticket"}
    )
    assert isinstance(updated, Update)
    assert updated.new_data == Ticket(title="u")


def test_the_builders_return_the_patch_itself() -> None:
    patch = Patch()
    artifact = Artifact(Note(text="a", count=3), id="n")
    assert patch.is_empty()
    assert patch.create(Note(), id="x") is patch
    assert patch.update("n", Note(text="b")) is patch
    assert patch.update_fields(artifact, text="c") is patch
    assert patch.delete(artifact) is patch
    assert patch.link("x", "cites", artifact) is patch
    assert patch.unlink(artifact) is patch
    assert patch.add(Delete("y")) is patch
    assert patch.operations == [
        Create(Note(), id="x"),
        Update("n", Note(text="b")),
        Update("n", Note(text="c", count=3)),
        Delete("n"),
        Link("x", "cites", "n"),
        Unlink("n"),
        Delete("y"),
    ]
    assert not patch.is_empty()


def test_merge_appends_and_skips_none() -> None:
    first, second = Patch([Delete("a")]), Patch([Delete("b")])
    assert first.merge(None, second, None) is first
    assert first.operations == [Delete("a"), Delete("b")]
    assert second.operations == [Delete("b")]


def test_a_patch_does_not_share_the_list_it_was_made_of() -> None:
    operations: list[Any] = [Delete("a")]
    patch = Patch(operations)
    patch.delete("b")
    assert operations == [Delete("a")]


def test_update_fields_refuses_a_misspelt_field() -> None:
    with pytest.raises(ValueError, match="txet"):
        Patch().update_fields(Artifact(Note(), id="n"), txet="b")


def test_what_names_no_artifact_is_refused() -> None:
    with pytest.raises(TypeError, match="int names no artifact"):
        Patch().delete(7)  # type: ignore[arg-type]


class Settings(RootModel[dict[str, Any]]):
    pass


class Numbers(RootModel[list[int]]):
    pass


def test_update_fields_replaces_the_root_of_a_root_model() -> None:
    patch = Patch().update_fields(Artifact(Settings({"a": 1}), id="s"), root={"b": 2})
    patch.update_fields(Artifact(Numbers([1]), id="n"), root=[2])
    assert [update.new_data for update in patch.operations if isinstance(update, Update)] == [
        Settings({"b": 2}),
        Numbers([2]),
    ]
