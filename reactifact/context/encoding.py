"""How a model is stored: type id, payload bytes, schema revision; and what texts may be stored.

Owns `Encoded` and the special case of actions, whose delivery fields are not part of the payload.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

from pydantic import BaseModel

from ..errors import InvalidName, ReactifactError
from ..store import canonical
from ..store.layout import Meta
from .codec import dump_payload, encode_payload
from .interrupts import DELIVERY_FIELDS, PendingAction
from .types import TypeNotFoundError, resolve, revision_of, type_id_of

ACTION_TYPE = type_id_of(PendingAction)


class Encoded(NamedTuple):
    """A model as it will be stored."""

    type_id: str
    payload: bytes
    revision: str
    model: type[BaseModel]


def encode(data: BaseModel) -> Encoded:
    """Return a model as it will be stored. Raises `PayloadError` when it would not come back."""
    if not isinstance(data, BaseModel):
        raise TypeError(
            f"the data of an artifact is a pydantic model, not {type(data).__name__}: "
            f"define a class that derives from pydantic.BaseModel"
        )
    model = type(data)
    return Encoded(type_id_of(model), _payload(data, encode_payload), revision_of(model), model)


def is_unchanged(data: BaseModel, payload: bytes) -> bool:
    """Whether a model that was read from `payload` still says the same."""
    try:
        return dumped_payload(data) == payload
    except (ReactifactError, ValueError):
        return False  # it holds now what could not be stored


def dumped_payload(data: BaseModel) -> bytes:
    """Return the payload bytes of a model that was read. Raises `PayloadError` when it has none."""
    return _payload(data, dump_payload)


def _payload(data: BaseModel, write: Callable[[BaseModel], bytes]) -> bytes:
    if not isinstance(data, PendingAction):
        return write(data)
    record: Any = canonical.decode(write(data.intent()))
    return canonical.encode({k: v for k, v in record.items() if k not in DELIVERY_FIELDS})


def same_content(encoded: Encoded, meta: Meta) -> bool:
    """Whether a model is, byte for byte, what a version already holds."""
    return encoded.type_id == meta.type_id and canonical.content_hash(encoded.payload) == meta.content_hash


def action_note(encoded: Encoded) -> dict[str, Any]:
    """Return what the record of an operation says beyond its type, for an action: its key."""
    if encoded.type_id != ACTION_TYPE:
        return {}
    record = cast("dict[str, Any]", canonical.decode(encoded.payload))
    return {"action": record["idempotency_key"]}


def other_payload(action_id: str) -> str:
    """Return the error of an action whose key was delivered with another payload."""
    return (
        f"{action_id} was delivered with another payload before; it is not sent again under the "
        f"same key: plan the new intent under a key of its own"
    )


def is_subtype(type_id: str, model: type[BaseModel]) -> bool:
    """Whether a stored type is a model or derives from it; one that does not resolve is not."""
    try:
        return issubclass(resolve(type_id), model)
    except TypeNotFoundError:
        return False


def check_text(text: str, what: str) -> None:
    """Refuse a text that UTF-8 cannot hold. Raises `InvalidName`, or `TypeError` for no text."""
    if not isinstance(text, str):
        raise TypeError(f"a {what} is a text, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidName(
            f"{what} {text!r} holds a lone surrogate and cannot be stored as UTF-8: remove it"
        ) from error
