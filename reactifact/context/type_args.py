"""Type ids of parametrised generics: `shop.Box[int]`, `shop.Pair[str, list[shop.Order]]`.

Owns the text form of type arguments and its way back. Which model stands behind an id is the
registry's knowledge (`types`), handed in as a function.
"""

from __future__ import annotations

import ast
import builtins
import re
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, Literal, Union, get_args, get_origin
from urllib.parse import unquote

_TOKEN = re.compile(r"\s*([\[\],|]|[^\[\],|]+)")
_LITERAL = re.compile(r"Literal\[")
_RESERVED = re.compile(r"[\[\],|%'\"\s]")


class NotExpressibleError(Exception):
    """The argument has no text form that leads back to it."""


def text_of(argument: Any, id_of: Callable[[type], str | None]) -> str:
    """Return the text form of one type argument.

    `id_of` gives the id of a model and `None` for other classes. Raises `NotExpressibleError` for type
    variables, `Annotated` and other forms that no text stands for.
    """
    if argument is None or argument is type(None):
        return "None"
    if argument is Ellipsis:
        return "..."
    if argument is Any:
        return "typing.Any"
    origin = get_origin(argument)
    if origin is None:
        return _class_text(argument, id_of)
    arguments = get_args(argument)
    if origin is types.UnionType:
        return " | ".join(text_of(one, id_of) for one in arguments)
    if origin is Union:  # `Box[Union[int, str]]` and `Box[int | str]` are two classes to pydantic
        return f"typing.Union[{', '.join(text_of(one, id_of) for one in arguments)}]"
    if origin is Literal:
        if not all(type(one) in (str, int, bool, bytes, type(None)) for one in arguments):
            raise NotExpressibleError(argument)
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if not isinstance(origin, type):
        raise NotExpressibleError(argument)
    alias = getattr(argument, "_name", None) if isinstance(argument, typing._GenericAlias) else None  # type: ignore[attr-defined]
    base = f"typing.{alias}" if alias else _class_text(origin, id_of)
    return f"{base}[{', '.join(text_of(one, id_of) for one in arguments)}]"


def _class_text(cls: Any, id_of: Callable[[type], str | None]) -> str:
    if not isinstance(cls, type):
        raise NotExpressibleError(cls)
    identity = id_of(cls)
    if identity is not None:
        return identity if identity.endswith("]") else _RESERVED.sub(_percent, identity)
    name: str = cls.__name__
    if getattr(builtins, name, None) is cls:
        return name
    return f"{cls.__module__}.{cls.__qualname__}"


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode())


def parse(text: str, find: Callable[[str], Any]) -> Any:
    """Return the type that a text form stands for.

    `find` gives what a name stands for; only classes and the forms of `typing` are taken. Raises
    `ValueError` for a text that is no such form, whatever `find` raises, and whatever the generic
    raises when it does not take the arguments.
    """
    reader = _Reader(text, find)
    result = reader.union()
    if reader.peek():
        raise ValueError(f"{text!r} goes on after its end")
    return result


def _is_typing_form(name: str, found: Any) -> bool:
    module, _, form = name.rpartition(".")
    return module == "typing" and type(found).__module__ == "typing" and getattr(typing, form, None) is found


class _Reader:
    """A reader of one text form by recursive descent."""

    def __init__(self, text: str, find: Callable[[str], Any]) -> None:
        self._text = text
        self._at = 0
        self._find = find

    def peek(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        return match[1].strip() if match else ""

    def _take(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise ValueError(f"{self._text!r} ends too early")
        self._at = match.end()
        return match[1].strip()

    def union(self) -> Any:
        result = self._term()
        while self.peek() == "|":
            self._take()
            result = result | self._term()
        return result

    def _term(self) -> Any:
        rest = self._text[self._at :].lstrip()
        if _LITERAL.match(rest):
            return self._literal(len(self._text) - len(rest))
        name = self._take()
        if name == "None":
            return None
        if name == "...":
            return Ellipsis
        base: Any = getattr(builtins, name, None) if "." not in name else None
        if not isinstance(base, type):
            base = self._find(unquote(name))
        if not isinstance(base, type) and not _is_typing_form(name, base):
            # An object with a `[]` or `|` of its own would run code that has nothing to do with types.
            raise ValueError(f"{name!r} in {self._text!r} stands for no type")
        if self.peek() != "[":
            return base
        return base[tuple(self._arguments())]

    def _arguments(self) -> Iterator[Any]:
        closing = self._take()
        while closing != "]":
            yield self.union()
            closing = self._take()
            if closing not in (",", "]"):
                raise ValueError(f"{self._text!r} has {closing!r} where a comma or a bracket belongs")

    def _literal(self, start: int) -> Any:
        # Strings may hold brackets: the shortest reading that is a Python literal is the right one.
        opening = start + len("Literal[")
        end = self._text.find("]", opening)
        while end >= 0:
            try:
                values = ast.literal_eval(f"({self._text[opening:end]},)")
            except SyntaxError:
                end = self._text.find("]", end + 1)
                continue
            self._at = end + 1
            return Literal[values]
        raise ValueError(f"{self._text!r} has a Literal without its end")
