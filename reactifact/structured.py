"""`structured_llm`: an answer of a language model as a validated pydantic model, or `None`.

Owns the prompt, the reading of JSON out of an answer, and the asking again. It depends on the
arguments alone: equal ones make equal requests, so a recording answers them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ._context.context import Context
from .errors import text_of, told
from .logging import get_logger
from .providers import LLMRequest, Message

__all__ = ["structured_llm"]


M = TypeVar("M", bound=BaseModel)
OnError = Callable[[Exception], None]

DEFAULT_SYSTEM = "You answer with data for a program: one JSON value and nothing else."

log = get_logger("reactifact.structured")

_FENCE = re.compile(r"```[ \t]*[\w+-]*[ \t]*\r?\n(.*?)```", re.DOTALL)
_OPENING = re.compile(r"[{\[]")
_DECODER = json.JSONDecoder()
_LONGEST_FAULT = 2000


async def structured_llm(
    context: Context,
    *,
    schema: type[M],
    user: str,
    system: str = DEFAULT_SYSTEM,
    attempts: int = 2,
    temperature: float | None = None,
    max_tokens: int | None = None,
    on_error: OnError | None = None,
) -> M | None:
    """Ask `context.resources.llm` for JSON and return it as a `schema`, or `None`.

    The JSON may stand in a code fence or between other text. An answer that does not fit is sent
    back with what is wrong, until the model was asked `attempts` times. `None` is the end of that,
    of any error of the provider, and of a context without a model; `on_error` hears of each. Raises
    `ValueError` for fewer attempts than 1, `TypeError` for a schema that is not a model class.
    """
    if attempts < 1:
        raise ValueError(f"a model that is asked {attempts} times never answers: pass attempts=1 or more")
    given: Any = schema  # callers without a type checker pass anything
    if not (isinstance(given, type) and issubclass(given, BaseModel)):
        raise TypeError(f"schema is {schema!r}: pass a class that derives from BaseModel")
    llm = context.resources.llm
    if llm is None:
        return None
    messages = _prompt(schema, system, user)
    for _ in range(attempts):
        request = LLMRequest(
            list(messages),
            temperature=temperature,
            max_tokens=max_tokens,
            response_format={"type": "json_object"},
            prompt_hash=prompt_hash(messages),
        )
        try:
            text: str = (await llm.complete(request)).text
            if not isinstance(text, str):
                raise TypeError(f"the model answered with {type(text).__name__} instead of a text")
        except Exception as error:  # a provider may raise anything, and all of it means: no answer
            _report(error, schema, on_error)
            return None
        try:
            return parse_answer(text, schema)
        except ValueError as error:
            _report(error, schema, on_error)
            messages += [Message.assistant(text), Message.user(_again(error))]
    return None


def _report(error: Exception, schema: type[BaseModel], on_error: OnError | None) -> None:
    details = {"schema": schema.__name__, "error": told(error)}
    log.warning("no structured answer", extra=details)
    if on_error is not None:
        on_error(error)


def _prompt(schema: type[BaseModel], system: str, user: str) -> list[Message]:
    shape = json.dumps(schema.model_json_schema(), ensure_ascii=False, sort_keys=True)
    return [Message.system(f"{system}\n\nThe JSON must fit this JSON schema:\n{shape}"), Message.user(user)]


def _again(error: Exception) -> str:
    return f"That cannot be used: {text_of(error)[:_LONGEST_FAULT]}\nAnswer again, with the JSON alone."


def prompt_hash(messages: Sequence[Message]) -> str:
    """Return a sha256 of roles and texts, in order, as hex."""
    pairs = [[message.role, message.content] for message in messages]
    return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()


def parse_answer(text: str, schema: type[M]) -> M:
    """Return the first JSON value in an answer that fits the schema.

    Raises `ValueError` saying why the first one does not fit, or that there is none.
    """
    fault: ValueError | None = None
    for value in _json_values(text):
        try:
            # Through JSON, because strict models take a date or a tuple from nowhere else.
            return schema.model_validate_json(json.dumps(value))
        except ValidationError as error:
            fault = fault or ValueError(_faults(error))
        except RecursionError:
            fault = fault or ValueError("it is nested too deeply")
    raise fault or ValueError("there is no JSON in it, or it is cut off")


def _faults(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'the value'}: {one['msg']}" for one in found)


def _json_values(text: str) -> Iterator[Any]:
    """Yield the JSON values of an answer: the whole of it, what stands in fences, what stands in text."""
    parts = [text.strip(), *(block.strip() for block in _FENCE.findall(text))]
    for part in parts:
        try:
            yield json.loads(part)
        except (ValueError, RecursionError):
            continue
    yield from _embedded(text)


def _embedded(text: str) -> Iterator[Any]:
    """Yield the objects and arrays that stand in a text, outermost only."""
    at = 0
    while (found := _OPENING.search(text, at)) is not None:
        try:
            value, at = _DECODER.raw_decode(text, found.start())
        except json.JSONDecodeError as error:
            if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
                return  # cut off: what stands inside of it is not what was asked for
            at = found.start() + 1
            continue
        except RecursionError:
            return
        yield value
