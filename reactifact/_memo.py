"""What an execution remembers over its tries: results of costly calls, under keys of its own.

Owns `Memos` behind `call.memo`, and the form in which a value is kept: JSON data, models, lists and
dictionaries of them. Where and for how long they are kept is the runtime's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from anyio import Lock
from pydantic import BaseModel

from ._store import canonical
from .artifacts import check_text, encode
from .errors import InvalidName, PayloadError
from .types.codec import decode_payload
from .types.registry import resolve

Keep = Callable[[str, Any], Awaitable[Any]]
"""Keeps the sealed value of a key, as safe as the runtime promises, and returns it as it is kept."""


class Memos:
    """The values that one execution keeps, by key.

    `known` holds those of an earlier try, sealed; `keep` is told each new one before it is handed out.
    """

    def __init__(self, known: Mapping[str, Any] | None = None, keep: Keep | None = None) -> None:
        self._values: dict[str, Any] = dict(known or {})
        self._keep = keep
        self._locks: dict[str, Lock] = {}

    async def recall(self, key: str, function: Callable[[], Any]) -> Any:
        """Return the value of a key; where there is none yet, that of `function`, which is then kept.

        Two tasks that ask for one key at once call it once. Raises `InvalidName` or `TypeError` for a key
        that is not one, `PayloadError`, and what the function raises.
        """
        check_text(key, "key of call.memo")
        if not key:
            raise InvalidName("call.memo was given an empty key: name what the value was made from")
        async with self._locks.setdefault(key, Lock()):
            if key not in self._values:
                found = function()
                if isinstance(found, Awaitable):
                    found = await found
                value = sealed(found, f"the value of call.memo({key!r}, ...)")
                if self._keep is not None:
                    value = await self._keep(key, value)
                self._values[key] = value
            return opened(self._values[key])


def sealed(value: Any, what: str) -> Any:
    """Return a value as JSON data that says which models stand in it.

    Raises `PayloadError`, naming the place, for what would not come back equal.
    """
    if isinstance(value, BaseModel):
        encoded = encode(value)
        payload = canonical.decode(encoded.payload)
        return {"model": encoded.type_id, "revision": encoded.revision, "payload": payload}
    if isinstance(value, list):
        return {"list": [sealed(item, f"{what}[{place}]") for place, item in enumerate(value)]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: sealed(item, f"{what}[{key!r}]") for key, item in value.items()}}
    if value is None or type(value) in (str, int, float, bool):
        try:
            canonical.encode(value)
        except ValueError as error:
            raise PayloadError(f"{what} cannot be kept: {error}") from error
        return {"json": value}
    raise PayloadError(
        f"{what} is a {type(value).__name__}, which would not come back as it is: return a pydantic model, a "
        f"list, a dictionary with text as its keys, a text, a number, a bool or None"
    )


def opened(record: Any) -> Any:
    """Return the value that was sealed, made anew: whoever gets it may change it in place.

    Raises `TypeNotFoundError` and `UnreadablePayload` for a model that is missing or has changed.
    """
    if "model" in record:
        type_id, payload = record["model"], canonical.encode(record["payload"])
        return decode_payload(resolve(type_id), payload, type_id=type_id, revision=record["revision"])
    if "list" in record:
        return [opened(item) for item in record["list"]]
    if "dict" in record:
        return {key: opened(item) for key, item in record["dict"].items()}
    return record["json"]
