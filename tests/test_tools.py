"""Tools: a function, its JSON schema, and arguments that are checked before it runs."""

from __future__ import annotations

import functools
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from reactifact import FunctionTool, Tool, ToolOutput, tool
from reactifact.errors import ReactifactError
from reactifact.tools import InvalidToolArguments


class Place(BaseModel):
    city: str
    country: str = "NL"


@tool
def weather(
    place: Place,
    day: Annotated[date, Field(description="The day asked for.")],
    unit: Literal["c", "f"] = "c",
    *,
    hours: list[int] | None = None,
) -> str:
    """Tell the weather.

    At a place, on a day.
    """
    return f"{place.city}/{place.country} {day:%d.%m.} {unit} {hours}"


@tool(name="double", description="Twice a number.")
async def twice(number: int) -> dict[str, int]:
    return {"result": number * 2}


def test_the_schema_comes_from_the_signature() -> None:
    assert isinstance(weather, FunctionTool)
    assert isinstance(weather, Tool)
    schema = weather.schema
    assert (schema["name"], schema["description"]) == (
        "weather",
        "Tell the weather.\n\nAt a place, on a day.",
    )
    parameters = schema["parameters"]
    assert parameters["type"] == "object"
    assert parameters["required"] == ["place", "day"]
    assert parameters["additionalProperties"] is False
    day, unit = parameters["properties"]["day"], parameters["properties"]["unit"]
    assert (day["type"], day["format"], day["description"]) == ("string", "date", "The day asked for.")
    assert (unit["enum"], unit["default"]) == (["c", "f"], "c")
    assert parameters["$defs"]["Place"]["required"] == ["city"]


def test_name_and_description_can_be_given() -> None:
    assert (twice.name, twice.description) == ("double", "Twice a number.")
    assert FunctionTool(lambda: 1, name="one").description == ""


def test_the_tool_is_still_the_function() -> None:
    assert weather(Place(city="Delft"), date(2026, 1, 2)) == "Delft/NL 02.01. c None"


@pytest.mark.anyio
async def test_arguments_come_as_a_mapping_or_as_json() -> None:
    given = {"place": {"city": "Delft"}, "day": "2026-01-02", "hours": ["3", 4]}
    expected = ToolOutput("Delft/NL 02.01. c [3, 4]")
    assert await weather.run(given) == expected
    text = '{"place": {"city": "Delft"}, "day": "2026-01-02", "hours": [3, 4]}'
    assert await weather.run(text) == expected


@pytest.mark.anyio
async def test_an_async_function_is_awaited() -> None:
    assert (await twice.run({"number": 4})).text == '{"result":8}'


@pytest.mark.anyio
async def test_an_output_passes_through() -> None:
    failed = ToolOutput("no such city", is_error=True)
    assert await FunctionTool(lambda: failed, name="fail").run("") is failed


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "number: Missing required argument"),
        ({"number": "many"}, "number: Input should be a valid integer"),
        ({"number": 1, "times": 2}, "times: Unexpected keyword argument"),
        ("{", "are no JSON"),
        ("[1]", "are list: pass an object"),
        ({1: 2}, "pass an object of values by name"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_before_the_call(arguments: Any, message: str) -> None:
    called: list[int] = []

    @tool
    def count(number: int) -> None:
        called.append(number)

    with pytest.raises(InvalidToolArguments, match="tool 'count'") as caught:
        await count.run(arguments)
    assert message in str(caught.value)
    assert isinstance(caught.value, ReactifactError)
    assert isinstance(caught.value, ValueError)
    assert called == []


@pytest.mark.anyio
async def test_every_wrong_argument_is_named_together_with_what_there_is() -> None:
    with pytest.raises(InvalidToolArguments) as caught:
        await weather.run({"place": {"country": "NL"}, "day": "today"})
    text = str(caught.value)
    assert "place.city: Field required" in text
    assert "day: " in text
    assert text.endswith("it takes: place, day, unit, hours")


@pytest.mark.anyio
async def test_an_error_of_the_function_is_raised_as_it_is() -> None:
    @tool
    def broken(text: str) -> None:
        Place.model_validate({})  # a validation error, but none of the arguments

    with pytest.raises(ValueError, match="1 validation error for Place") as caught:
        await broken.run({"text": "x"})
    assert not isinstance(caught.value, InvalidToolArguments)


@pytest.mark.anyio
async def test_methods_callable_objects_and_partials_are_functions_too() -> None:
    class Shop:
        def price(self, item: str, count: int = 1) -> str:
            """Tell a price."""
            return f"{count} {item}"

        def __call__(self, item: str) -> str:
            return item

    shop = Shop()
    method = tool(shop.price)
    assert (method.name, list(method.parameters["properties"])) == ("price", ["item", "count"])
    assert (await method.run({"item": "tea", "count": "2"})).content == "2 tea"
    assert (await FunctionTool(shop).run({"item": "tea"})).content == "tea"
    dozen = functools.partial(shop.price, count=12)
    assert (await FunctionTool(dozen, name="dozen").run({"item": "tea"})).content == "12 tea"


@pytest.mark.anyio
async def test_unannotated_arguments_are_passed_as_they_come() -> None:
    @tool
    def echo(value):  # type: ignore[no-untyped-def]  # no annotation is the case
        return value

    assert (await echo.run({"value": [1, {"a": None}]})).content == [1, {"a": None}]


def test_what_no_model_can_call_is_refused() -> None:
    def star(*values: int) -> None: ...
    def named(**values: int) -> None: ...
    def bare(value: int, /) -> None: ...

    cases: list[tuple[Any, str]] = [
        (star, "takes any number of values"),
        (named, "takes any names"),
        (bare, "is positional-only"),
    ]
    for function, message in cases:
        with pytest.raises(TypeError, match=message):
            tool(function)
    with pytest.raises(TypeError, match="not of int"):
        FunctionTool(3)  # type: ignore[arg-type]  # the mistake that is tested


def test_a_type_that_json_cannot_hold_is_refused() -> None:
    class Opaque:
        pass

    def use(thing: Any) -> None: ...

    use.__annotations__["thing"] = Opaque
    with pytest.raises(TypeError, match="tool 'use' has an argument"):
        tool(use)


def test_an_annotation_that_cannot_be_resolved_is_named() -> None:
    class Local(BaseModel):
        text: str

    def use(thing: Local) -> None: ...

    with pytest.raises(TypeError, match=r"tool 'use' cannot be resolved.*Local.*top level"):
        tool(use)


@pytest.mark.anyio
async def test_a_tool_of_ones_own() -> None:
    class Clock(Tool):
        name = "clock"
        description = "Tell the time."

        async def run(self, arguments: Any) -> ToolOutput:
            return ToolOutput({"time": date(2026, 1, 2)})

    assert Clock().schema == {
        "name": "clock",
        "description": "Tell the time.",
        "parameters": {"type": "object", "properties": {}},
    }
    assert (await Clock().run({})).text == '{"time":"2026-01-02"}'
    with pytest.raises(TypeError, match="abstract"):
        Tool()  # type: ignore[abstract]  # the mistake that is tested
