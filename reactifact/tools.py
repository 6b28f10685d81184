"""A tool: a function that a model may call, with the JSON schema of its arguments.

Owns the schema, the check of what a model passes, and the call, which counts for `Budget.max_tool_calls`.
Which tools a model is shown, and the loop of calls and answers, are the application's.
"""

from __future__ import annotations

import functools
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, get_type_hints, overload

from pydantic import PydanticUserError, ValidationError
from pydantic_core import to_json

from .errors import ReactifactError, text_of
from .resources import take_tool_call

_REFUSED = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of values",
    inspect.Parameter.VAR_KEYWORD: "takes any names",
}


class InvalidToolArguments(ReactifactError, ValueError):
    """The arguments of a tool call do not fit the tool's schema; the function was not called."""


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool answered. `is_error` tells the model that the call failed."""

    content: Any
    is_error: bool = False

    @property
    def text(self) -> str:
        """The content for a message to the model: a text as it is, anything else as JSON."""
        if isinstance(self.content, str):
            return self.content
        return to_json(self.content, fallback=str).decode()


class Tool(ABC):
    """Something that a model may call by name. Subclass it, or decorate a function with `tool`.

    `parameters` is the JSON schema of the arguments.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "run" in cls.__dict__:
            cls.run = _counted(cls.run)  # type: ignore[method-assign, assignment]

    name: str = ""
    description: str = ""
    parameters: Mapping[str, Any] = {"type": "object", "properties": {}}

    @property
    def schema(self) -> dict[str, Any]:
        """The tool as model services are told of it: name, description, parameters."""
        return {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
        }

    @abstractmethod
    async def run(self, arguments: Mapping[str, Any] | str) -> ToolOutput:
        """Call the tool with arguments by name, as a mapping or as JSON text."""


Run = Callable[[Any, Mapping[str, Any] | str], Awaitable[ToolOutput]]

_inside: ContextVar[tuple[int, ...]] = ContextVar("reactifact_tools", default=())
"""The tools whose calls the present code runs in: one that hands on to its base class is counted once."""


def _counted(run: Run) -> Run:
    """Count the calls of a tool for the turns around them; one too many raises `BudgetExceeded`."""

    @functools.wraps(run)
    async def counted(self: Tool, arguments: Mapping[str, Any] | str) -> ToolOutput:
        if id(self) in _inside.get():
            return await run(self, arguments)
        take_tool_call(self.name)
        token = _inside.set((*_inside.get(), id(self)))
        try:
            return await run(self, arguments)
        finally:
            _inside.reset(token)

    return counted


class FunctionTool(Tool):
    """A function as a tool; name, description and schema come from the function.

    Calling the tool itself calls the function as it is. Raises `TypeError` for a function whose
    parameters cannot be passed by name, or whose annotations cannot be resolved.
    """

    def __init__(
        self, function: Callable[..., Any], *, name: str | None = None, description: str | None = None
    ) -> None:
        from pydantic import TypeAdapter

        if not callable(function):
            raise TypeError(f"a tool is made of a function, not of {type(function).__name__}")
        self.function = function
        self.name = name or str(getattr(function, "__name__", type(function).__name__))
        self.description = (inspect.getdoc(function) or "") if description is None else description
        signature = _described(function, self.name)
        self._bind = _binder(signature, self.name)
        shape: Any = self._bind  # a function is a type to pydantic: its arguments
        try:
            self.parameters = TypeAdapter(shape).json_schema()
        except PydanticUserError as error:
            raise TypeError(
                f"tool {self.name!r} has an argument that JSON cannot hold: {text_of(error)}"
            ) from error

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, without any check."""
        return self.function(*args, **kwargs)

    async def run(self, arguments: Mapping[str, Any] | str) -> ToolOutput:
        """Check the arguments, call the function and wrap what it returns.

        Raises `InvalidToolArguments` when they do not fit, and whatever the function raises.
        """
        given = self.validate(arguments)
        result = self.function(**given)
        if inspect.isawaitable(result):
            result = await result
        return result if isinstance(result, ToolOutput) else ToolOutput(result)

    def validate(self, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        """Return the arguments as the function's types, defaults filled in.

        Raises `InvalidToolArguments`.
        """
        named = _parsed(arguments, self.name)
        try:
            bound: dict[str, Any] = self._bind(**named)
        except ValidationError as error:
            faults = "; ".join(
                f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {fault['msg']}"
                for fault in error.errors(include_url=False, include_context=False, include_input=False)
            )
            known = ", ".join(self.parameters.get("properties", {})) or "none"
            raise InvalidToolArguments(
                f"the arguments of tool {self.name!r} do not fit: {faults}; it takes: {known}"
            ) from error
        return bound

    def __repr__(self) -> str:
        return f"FunctionTool({self.name!r})"


def _parsed(arguments: Mapping[str, Any] | str, name: str) -> dict[str, Any]:
    """Return arguments by name."""
    given: Any = arguments
    if isinstance(arguments, str):
        try:
            given = json.loads(arguments or "{}")
        except json.JSONDecodeError as error:
            raise InvalidToolArguments(f"the arguments of tool {name!r} are no JSON: {error}") from error
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise InvalidToolArguments(
            f"the arguments of tool {name!r} are {type(given).__name__}: pass an object of values by name"
        )
    return dict(given)


def _described(function: Callable[..., Any], name: str) -> inspect.Signature:
    """Return the signature with resolved annotations. Raises `TypeError`."""
    signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        if parameter.kind in _REFUSED:
            raise TypeError(
                f"parameter {parameter.name!r} of tool {name!r} {_REFUSED[parameter.kind]}, but a model "
                f"passes arguments by name: give each a name of its own"
            )
    annotated = function if inspect.isroutine(function) else type(function).__call__
    try:
        hints = get_type_hints(annotated, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"an annotation of tool {name!r} cannot be resolved ({text_of(error)}): define the types at "
            f"the top level of the module, above the tool"
        ) from error
    parameters = [
        parameter.replace(annotation=hints.get(parameter.name, Any))
        for parameter in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters, return_annotation=Any)


def _binder(signature: inspect.Signature, name: str) -> Callable[..., Any]:
    """Return a function of this signature that checks its arguments and returns them by name."""
    from pydantic import validate_call

    def bound(**arguments: Any) -> dict[str, Any]:
        return arguments

    bound.__name__ = bound.__qualname__ = name
    bound.__signature__ = signature  # type: ignore[attr-defined]  # what inspect and pydantic look at
    bound.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    try:
        return validate_call(bound)
    except PydanticUserError as error:
        raise TypeError(f"tool {name!r} has an argument that cannot be checked: {text_of(error)}") from error


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...


@overload
def tool(
    *, name: str | None = None, description: str | None = None
) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool of a sync or async function: `@tool`, or `@tool(name=..., description=...)`."""

    def decorate(decorated: Callable[..., Any]) -> FunctionTool:
        return FunctionTool(decorated, name=name, description=description)

    return decorate if function is None else decorate(function)
