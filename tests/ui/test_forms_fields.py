"""From a model's JSON schema to a form, and from what a browser sends back to the data of an answer."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs, urlencode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, RootModel
from reading import Reader

from reactifact.ui.forms import Sent, answer_of, faults_by_field, form_of, shown


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(Enum):
    LOW = 1
    HIGH = 2


class Address(BaseModel):
    street: str
    town: str = "Riga"


class Everything(BaseModel):
    text: str
    short: Annotated[str, Field(max_length=20)] = "as usual"
    whole: int = Field(ge=0, le=9)
    number: float = 1.5
    decimal: Decimal
    agreed: bool
    perhaps: bool | None = None
    colour: Colour
    level: Level = Level.HIGH
    way: Literal["card", "voucher"] | None = None
    several: list[Colour] = [Colour.RED]
    day: date | None = None
    when: datetime | None = None
    address: Address
    other: Address = Address(street="Main St", town="Oslo")
    maybe: Address | None = None
    many: list[Address] = []
    table: dict[str, int] = {}
    union: int | str = "x"


FORM = form_of(Everything.model_json_schema())


def elements(sent: Sent | None = None, faults: dict[str, list[str]] | None = None) -> Reader:
    found = Reader()
    found.feed(shown(FORM, "a", sent, faults or {}))
    found.close()
    return found


def as_sent(page: Reader, **typed: str | list[str]) -> Sent:
    """Return what a browser sends for a form in which some fields were filled in."""
    pairs: list[tuple[str, str]] = []
    for one in page.all("input"):
        is_box = one["type"] in ("checkbox", "radio")
        if not is_box or "checked" in one:
            pairs.append((one["name"] or "", one.get("value") or ""))
    sent = parse_qs(urlencode(pairs), keep_blank_values=True)
    sent.update({"field/" + name: [v] if isinstance(v, str) else v for name, v in typed.items()})
    return sent


FILLED = {
    "text": "one\r\ntwo",
    "whole": "3",
    "decimal": "4.20",
    "agreed": "1",
    "colour": "1",
    "level": "1",
    "several": ["0", "1"],
    "address/street": "Elm St",
    "address/town": "Riga",
    "other/street": "Main St",
    "union": '"y"',
    "many": '[{"street": "Oak St"}]',
    "table": "{}",
}


def test_each_kind_of_field_has_its_element() -> None:
    found = elements()
    kinds = {str(one["name"]).removeprefix("field/"): one["type"] for one in found.all("input")}
    assert kinds == {
        "short": "text",
        "whole": "number",
        "number": "number",
        "decimal": "text",
        "agreed": "checkbox",
        "several": "checkbox",
        "day": "date",
    }
    selects = [str(one["name"]).removeprefix("field/") for one in found.all("select")]
    assert selects == ["perhaps", "colour", "level", "way"]
    texts = [str(one["name"]).removeprefix("field/") for one in found.all("textarea")]
    groups = ["address/street", "address/town", "other/street", "other/town"]
    assert texts == ["text", "when", *groups, "maybe", "many", "table", "union"]
    (whole,) = [one for one in found.all("input") if one["name"] == "field/whole"]
    assert (whole["min"], whole["max"], whole["step"]) == ("0", "9", "1")
    chosen = [option for option in found.all("option") if "selected" in option]
    assert [option["value"] for option in chosen] == ["", "", "1", ""]  # the level alone has a default


def test_what_was_filled_in_is_the_data_of_the_model() -> None:
    answer = Everything.model_validate(answer_of(FORM, as_sent(elements(), **FILLED)))
    assert answer == Everything(
        text="one\ntwo",
        whole=3,
        decimal=Decimal("4.20"),
        agreed=True,
        colour=Colour.BLUE,
        several=[Colour.RED, Colour.BLUE],
        address=Address(street="Elm St"),
        other=Address(street="Main St", town=""),
        many=[Address(street="Oak St")],
        union="y",
    )


def test_what_is_left_empty_is_absent_null_or_an_empty_text() -> None:
    found = answer_of(FORM, {})
    assert found == {
        "text": "",
        "short": "",  # its default was taken away
        "number": "",
        "decimal": "",
        "agreed": False,
        "perhaps": None,
        "level": "",
        "way": None,
        "several": [],
        "day": None,
        "when": None,
        "address": {"street": "", "town": ""},
        "other": {"street": "", "town": ""},
        "maybe": None,
        "many": "",
        "table": "",
        "union": "",
    }


@pytest.mark.parametrize(
    ("name", "typed", "value"),
    [
        ("whole", "three", "three"),
        ("whole", "3.5", "3.5"),
        ("number", "12", 12),
        ("number", "1e3", 1000.0),
        ("number", "much", "much"),
        ("colour", "7", "7"),
        ("colour", "²", "²"),
        ("colour", "red", "red"),
        ("table", "{no", "{no"),
        ("perhaps", "1", True),
        ("perhaps", "0", False),
    ],
)
def test_what_does_not_fit_is_passed_on_as_it_was_typed(name: str, typed: str, value: Any) -> None:
    found = answer_of(FORM, {f"field/{name}": [typed]})[name]
    assert (type(found), found) == (type(value), value)


def test_what_is_wrong_stands_at_its_field_with_what_was_typed() -> None:
    faults = [
        (("whole",), "too large"),
        (("address", "town"), "no such town"),
        (("many", 0, "street"), "is missing"),
        (("address",), "is not whole"),
        ((), "does not fit together"),
    ]
    by_field = faults_by_field(FORM, faults)
    assert by_field == {
        "field/whole": ["too large"],
        "field/address/town": ["no such town"],
        "field/many": ["0.street: is missing"],
        "field": ["address: is not whole", "does not fit together"],
    }
    found = elements({"field/whole": ["12"], "field/agreed": ["1"]}, by_field)
    (whole,) = [one for one in found.all("input") if one["name"] == "field/whole"]
    assert (whole["value"], whole["aria-invalid"]) == ("12", "true")
    ids = {attributes.get("id") for _, attributes in found.elements}
    assert set((whole["aria-describedby"] or "").split()) <= ids
    (agreed,) = [one for one in found.all("input") if one["name"] == "field/agreed"]
    assert "checked" in agreed
    assert "too large" in found.text


def test_a_model_that_is_one_value_is_one_field() -> None:
    form = form_of(RootModel[int].model_json_schema())
    assert shown(form, "a", None, {}).count("<input") == 1
    assert answer_of(form, {"field": ["4"]}) == 4
    assert answer_of(form, {}) is None
    assert faults_by_field(form, [((), "is not a number")]) == {"field": ["is not a number"]}


class Node(BaseModel):
    name: str
    child: Node | None = None
    sure: Node


def test_a_model_inside_itself_ends_in_json() -> None:
    form = form_of(Node.model_json_schema())
    names = [field.name for field in form.leaves()]
    assert "field/sure/sure/sure/name" in names
    assert len(names) < 20


def test_names_with_every_character_are_told_apart() -> None:
    schema = {"type": "object", "properties": {"a/b": {"type": "string"}, "a~1b": {"type": "string"}}}
    form = form_of({**schema, "required": ["a/b", "a~1b"]})
    sent = dict(zip([field.name for field in form.leaves()], [["1"], ["2"]], strict=True))
    assert answer_of(form, sent) == {"a/b": "1", "a~1b": "2"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = [
    "type",
    "properties",
    "$ref",
    "anyOf",
    "enum",
    "const",
    "items",
    "title",
    "default",
    "required",
    "format",
]
WORDS = st.sampled_from(["object", "array", "string", "boolean", "#/$defs/x", "date", "null"])
SCHEMAS = st.recursive(
    WORDS | JSON,
    lambda inner: st.dictionaries(st.sampled_from(KEYS), inner, max_size=5) | st.lists(inner, max_size=2),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from([*KEYS, "$defs"]), SCHEMAS, max_size=6))
@example({"type": {}, "anyOf": [{"type": []}]})
@example({"$ref": "#/$defs/x", "$defs": "object"})
@example({"type": "string", "format": []})
@example({"type": "object", "properties": {"x": {}}, "required": 1})
def test_no_schema_breaks_a_page(schema: dict[str, Any]) -> None:
    form = form_of(schema)
    found = Reader()
    found.feed(shown(form, "a", None, {}))
    found.close()
    assert found.open == []
    answer_of(form, {field.name: ["1"] for field in form.leaves()})
