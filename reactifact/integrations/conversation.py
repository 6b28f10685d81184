"""A conversation as artifacts of a session: one for each message, and one that says how many there are.

Owns where messages stand. What a message holds is the business of the library whose message it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from ..context import Context
from ..errors import ReactifactError

__all__ = ["Conversation", "ConversationDamaged", "ConversationLength", "ConversationMessage"]


class ConversationMessage(BaseModel):
    """One message, as the library that made it writes it in JSON."""

    conversation: str
    place: int
    message: dict[str, Any]


class ConversationLength(BaseModel):
    """How many messages a conversation has."""

    conversation: str
    length: int = 0


class ConversationDamaged(ReactifactError, LookupError):
    """A message of a conversation is not there, though its length says so."""


class Conversation:
    """The messages of one conversation in a context, the oldest first.

    Its changes are direct changes: inside a produce they are kept with the execution, elsewhere they are
    stored by the next save. A fork of the session takes the conversation along.
    """

    def __init__(self, context: Context, name: str = "main") -> None:
        self.context = context
        self.name = name

    def __len__(self) -> int:
        found = self.context.get(self._id())
        return 0 if found is None else int(found.data.length)

    def messages(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the messages, or the last `limit` of them. Raises `ConversationDamaged`."""
        length = len(self)
        start = 0 if limit is None else max(0, length - limit)
        return [self._message(place) for place in range(start, length)]

    def add(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Add messages behind the last."""
        length = len(self)
        for place, message in enumerate(messages, start=length):
            data = ConversationMessage(conversation=self.name, place=place, message=dict(message))
            self.context.create(data, id=self._id(place))
            length = place + 1
        self._set(length)

    def pop(self) -> dict[str, Any] | None:
        """Remove the last message and return it; `None` where there is none."""
        length = len(self)
        if not length:
            return None
        found = self._message(length - 1)
        self.context.delete(self._id(length - 1))
        self._set(length - 1)
        return found

    def clear(self) -> None:
        """Remove all messages."""
        for place in range(len(self)):
            self.context.delete(self._id(place))
        self._set(0)

    def _message(self, place: int) -> dict[str, Any]:
        found = self.context.get(self._id(place))
        if found is None:
            raise ConversationDamaged(
                f"conversation {self.name!r} says that it has {len(self)} messages, and lacks "
                f"{self._id(place)}: it was deleted by something else; restore it, or clear the conversation"
            )
        return dict(found.data.message)

    def _set(self, length: int) -> None:
        now = len(self)
        if self.context.get(self._id()) is None:
            self.context.create(ConversationLength(conversation=self.name, length=length), id=self._id())
        elif now != length:
            self.context.update(self._id(), ConversationLength(conversation=self.name, length=length))

    def _id(self, place: int | None = None) -> str:
        return f"conversation:{self.name}" if place is None else f"conversation:{self.name}:{place:06}"
