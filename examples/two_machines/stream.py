"""What the store holds: the stream of orders, and one session for each order that was taken.

Owns the names of the sessions and the shapes stored in them, beside `Order` and `Receipt`. The stream
is a session that no agent runs on: the shop writes it, the machines only read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import BaseModel

from reactifact import Context, SessionStore

from ..orders.models import Order

STREAM = "orders"
DOOR = "door"
CLAIM = "claim"


class Door(BaseModel):
    """Stands in the stream: whether orders may still come in."""

    TYPE_ID: ClassVar[str] = "examples.two_machines.Door"

    is_open: bool


class Claim(BaseModel):
    """Stands in an order's session: the machine that took the order."""

    TYPE_ID: ClassVar[str] = "examples.two_machines.Claim"

    machine: str


def session_of(order: Order) -> str:
    """Return the id of an order's own session."""
    return f"order-{order.order_id}"


async def append(store: SessionStore, orders: Sequence[Order]) -> None:
    """Let orders come in, in one commit; one that is there already stays as it is."""
    async with store.edit(STREAM, author="shop", message=f"{len(orders)} orders come in") as stream:
        for order in orders:
            stream.create(order, id=f"order:{order.order_id}")


async def set_door(store: SessionStore, is_open: bool) -> None:
    """Make the stream where there is none, and say whether orders may still come in."""
    async with store.edit(STREAM, author="shop", message=f"The door is {_word(is_open)}") as stream:
        if stream.update(DOOR, Door(is_open=is_open)) is None:
            stream.create(Door(is_open=is_open), id=DOOR)


def orders_in(stream: Context) -> list[Order]:
    """Return the orders of a stream in the order they came in."""
    return [artifact.data for artifact in stream.list_artifacts(Order)]


def is_open(stream: Context) -> bool:
    """Tell whether orders may still come in."""
    door = stream.get(DOOR)
    return door is None or bool(door.data.is_open)


def _word(is_open: bool) -> str:
    return "open" if is_open else "closed"
