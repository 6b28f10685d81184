"""The ids of generic models: a text made of origin and arguments, and the way back."""

from __future__ import annotations

from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, ClassVar, Generic, List, Literal, Optional, TypeVar  # noqa: UP035

import pytest
from pydantic import BaseModel, Field

from reactifact.types import registry as types
from reactifact.types.ids import parse

T = TypeVar("T")
U = TypeVar("U")


class Order(BaseModel):
    number: int = 0

    class Line(BaseModel):
        price: int = 0


class Invoice(BaseModel):
    TYPE_ID: ClassVar[str] = "types:bill"


class Box(BaseModel, Generic[T]):
    value: T


class Pair(BaseModel, Generic[T, U]):
    left: T
    right: U


@pytest.mark.parametrize(
    ("model", "arguments"),
    [
        (Box[int], "int"),
        (Box[Order], f"{__name__}.Order"),
        (Box[Order.Line], f"{__name__}.Order.Line"),
        (Box[Invoice], "types:bill"),
        (Box[list[Order]], f"list[{__name__}.Order]"),
        (Box[dict[str, list[int]]], "dict[str, list[int]]"),
        (Box[tuple[int, ...]], "tuple[int, ...]"),
        (Box[int | None], "int | None"),
        (Box[Optional[Order]], f"typing.Union[{__name__}.Order, None]"),  # noqa: UP045
        (Box[Decimal], "decimal.Decimal"),
        (Box[Any], "typing.Any"),
        (Box[List[int]], "typing.List[int]"),  # noqa: UP006
        (Box[Literal["a]", 1, None]], "Literal['a]', 1, None]"),
        (Box[Box[int]], f"{__name__}.Box[int]"),
        (Box[Box[Box[Order]]], f"{__name__}.Box[{__name__}.Box[{__name__}.Order]]"),
    ],
    ids=str,
)
def test_a_generic_is_found_through_origin_and_arguments(model: type[BaseModel], arguments: str) -> None:
    assert types.type_id_of(model) == f"{__name__}.Box[{arguments}]"
    assert types.resolve(types.type_id_of(model)) is model
    assert not types.is_process_local(model)


def test_generics_with_several_arguments_and_bare_names() -> None:
    name = types.type_id_of(Pair[int, Box[str]])
    assert name == f"{__name__}.Pair[int, {__name__}.Box[str]]"
    assert types.resolve(name) is Pair[int, Box[str]]
    assert types.resolve(f"{__name__}.Pair[int,Order]") is Pair[int, Order]


def test_a_generic_in_another_process_needs_no_write_first() -> None:
    name = f"{__name__}.Pair[{__name__}.Order.Line, frozenset[bytes]]"
    assert types.resolve(name) is Pair[Order.Line, frozenset[bytes]]


def test_registered_ids_of_arguments_are_kept_whatever_they_hold() -> None:
    class Odd(BaseModel):
        pass

    types.register(Odd, type_id="types: odd, [id]|%", aliases=["types:odd-alias"])
    name = types.type_id_of(Box[Odd])
    assert types.resolve(name) is Box[Odd]
    assert types.resolve(f"{__name__}.Box[types:odd-alias]") is Box[Odd]


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
