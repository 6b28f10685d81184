"""The ids of generic models: a text made of origin and arguments, and the way back."""

from __future__ import annotations

from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, List, Literal, Optional  # noqa: UP035

import pytest
from pydantic import BaseModel, Field
from test_registry import Box, Invoice, Order, Pair

from reactifact.types import registry as types
from reactifact.types.ids import parse

HOME = Box.__module__


@pytest.mark.parametrize(
    ("model", "arguments"),
    [
        (Box[int], "int"),
        (Box[Order], f"{HOME}.Order"),
        (Box[Order.Line], f"{HOME}.Order.Line"),
        (Box[Invoice], "types:invoice"),
        (Box[list[Order]], f"list[{HOME}.Order]"),
        (Box[dict[str, list[int]]], "dict[str, list[int]]"),
        (Box[tuple[int, ...]], "tuple[int, ...]"),
        (Box[int | None], "int | None"),
        (Box[Optional[Order]], f"typing.Union[{HOME}.Order, None]"),  # noqa: UP045
        (Box[Decimal], "decimal.Decimal"),
        (Box[Any], "typing.Any"),
        (Box[List[int]], "typing.List[int]"),  # noqa: UP006
        (Box[Literal["a]", 1, None]], "Literal['a]', 1, None]"),
        (Box[Box[int]], f"{HOME}.Box[int]"),
        (Box[Box[Box[Order]]], f"{HOME}.Box[{HOME}.Box[{HOME}.Order]]"),
    ],
    ids=str,
)
def test_a_generic_is_found_through_origin_and_arguments(model: type[BaseModel], arguments: str) -> None:
    assert types.type_id_of(model) == f"{HOME}.Box[{arguments}]"
    assert types.resolve(types.type_id_of(model)) is model
    assert not types.is_process_local(model)


def test_generics_with_several_arguments_and_bare_names() -> None:
    name = types.type_id_of(Pair[int, Box[str]])
    assert name == f"{HOME}.Pair[int, {HOME}.Box[str]]"
    assert types.resolve(name) is Pair[int, Box[str]]
    assert types.resolve(f"{HOME}.Pair[int,Order]") is Pair[int, Order]


def test_a_generic_in_another_process_needs_no_write_first() -> None:
    name = f"{HOME}.Pair[{HOME}.Order.Line, frozenset[bytes]]"
    assert types.resolve(name) is Pair[Order.Line, frozenset[bytes]]


def test_registered_ids_of_arguments_are_kept_whatever_they_hold() -> None:
    class Odd(BaseModel):
        pass

    types.register(Odd, type_id="types: odd, [id]|%", aliases=["types:odd-alias"])
    name = types.type_id_of(Box[Odd])
    assert types.resolve(name) is Box[Odd]
    assert types.resolve(f"{HOME}.Box[types:odd-alias]") is Box[Odd]


def test_a_generic_of_a_local_class_or_of_a_form_without_text_is_found_in_this_process() -> None:
    class Local(BaseModel):
        pass

    assert types.resolve(types.type_id_of(Box[Local])) is Box[Local]
    assert types.is_process_local(Box[Local])
    assert types.is_process_local(Box[list[Local]])
    model = Box[Annotated[int, Field(gt=1)]]
    assert types.resolve(types.type_id_of(model)) is model
    assert types.is_process_local(model)

    class LocalColor(Enum):
        RED = 1

    assert types.resolve(types.type_id_of(Box[LocalColor])) is Box[LocalColor]
    assert types.is_process_local(Box[LocalColor])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("list[int", "ends too early"),
        ("list[int]]", "goes on after its end"),
        ("list[int;str]", "stands for no type"),
        ("Literal['a", "without its end"),
        ("list[int [str", "stands for no type|where a comma|ends too early"),
        ("os.sep[int]", "stands for no type"),
        ("", "ends too early"),
    ],
)
def test_a_text_that_is_no_type_is_refused_and_runs_nothing(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse(text, lambda name: name)
