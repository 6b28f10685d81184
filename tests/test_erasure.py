"""Which fields of a model are personal, and what a payload without them is."""

from __future__ import annotations

import json
from datetime import date
from typing import Annotated

import pytest
from pydantic import BaseModel, Field, field_validator

from reactifact.erasure import ErasedArtifact, Erasure, Personal, cleared_payload, has_personal
from reactifact.errors import ErasureRefused
from reactifact.types.codec import encode_payload
from reactifact.types.registry import revision_of


class Address(BaseModel):
    street: Annotated[str, Personal("somewhere")]
    country: str


class Person(BaseModel):
    name: Annotated[str, Personal()]
    nick: Annotated[str, Personal()] | None = None
    born: Annotated[date | None, Personal(None)] = None
    home: Address
    earlier: list[Address] = Field(default_factory=list)
    by_city: dict[str, Address] = Field(default_factory=dict)
    score: int = 0


class Plain(BaseModel):
    text: str


class Tagged(BaseModel):
    """One that takes no placeholder."""

    code: Annotated[str, Personal()]

    @field_validator("code")
    @classmethod
    def is_code(cls, value: str) -> str:
        if not value.isdigit():
            raise ValueError("digits are expected")
        return value


def cleared(model: BaseModel, version: int = 0) -> tuple[dict[str, object], tuple[str, ...], tuple[str, ...]]:
    data = encode_payload(model)
    kind = type(model)
    found = cleared_payload(
        kind, data, type_id="t", revision=revision_of(kind), artifact="person:1", version=version
    )
    assert found.revision == revision_of(kind)
    return json.loads(found.payload), found.fields, found.values


def test_fields_are_cleared_at_any_depth_and_nothing_else_is() -> None:
    home = Address(street="Zyzx Road 1", country="US")
    person = Person(
        name="Ada",
        nick="Countess",
        born=date(1815, 12, 10),
        home=home,
        earlier=[home],
        by_city={"x": home},
        score=7,
    )
    data, fields, values = cleared(person)
    gone = {"street": "somewhere", "country": "US"}
    assert data == {
        "name": "[erased]",
        "nick": "[erased]",
        "born": None,
        "home": gone,
        "earlier": [gone],
        "by_city": {"x": gone},
        "score": 7,
    }
    assert fields == ("name", "nick", "born", "home.street", "earlier.street", "by_city.street")
    assert values == ("Ada", "Countess", "1815-12-10", "Zyzx Road 1")


def test_what_holds_its_placeholders_already_is_as_it_was() -> None:
    person = Person(name="[erased]", nick="[erased]", home=Address(street="somewhere", country="US"))
    data, fields, values = cleared(person)
    assert (fields, values) == ((), ())
    assert data["name"] == "[erased]"


def test_a_placeholder_that_the_model_does_not_take_is_refused_by_name() -> None:
    with pytest.raises(
        ErasureRefused, match=r"Tagged does not take the placeholder for code, in version 3"
    ) as caught:
        cleared(Tagged(code="4711"), 3)
    assert "4711" not in str(caught.value)


def test_a_payload_that_does_not_fit_any_more_is_refused_by_name() -> None:
    with pytest.raises(ErasureRefused, match="version 0 of 'person:1' cannot be erased alone"):
        cleared_payload(Person, b'{"other": 1}', type_id="t", revision="old", artifact="person:1", version=0)


def test_which_models_have_such_fields() -> None:
    class Holder(BaseModel):
        inner: dict[str, list[Address]]

    class Loop(BaseModel):
        next: Loop | None = None

    assert has_personal(Person)
    assert has_personal(Holder)
    assert not has_personal(Plain)
    assert not has_personal(Loop)


def test_the_mark_is_no_new_revision() -> None:
    class Before(BaseModel):
        name: str

    before = revision_of(Before)

    class After(BaseModel):
        name: Annotated[str, Personal()]

    After.__name__ = After.__qualname__ = "Before"
    assert revision_of(After) == before


def test_a_report_is_plain_json() -> None:
    one = ErasedArtifact("a", "erased-1", "t.A", 2, fields=("name",))
    report = Erasure((one,), ("s",), ("refs/heads/s/main",), (), 3, 0, 1, ("b",))
    found = json.loads(json.dumps(report.to_dict()))
    assert found["artifacts"] == [
        {"id": "a", "token": "erased-1", "type_id": "t.A", "versions": 2, "because": "", "fields": ["name"]}
    ]
    assert (found["commits"], found["rests"], found["is_dry_run"]) == (3, ["b"], False)
