"""Turns with deliveries in a process of its own, killed at random moments. Run by `test_turn_killed`.

turn_child.py STORE WORLD ORDERS   take the orders that are not taken yet, deliver, then end
"""

from __future__ import annotations

import sys

import anyio
from crash_support import World, take_orders

from reactifact import SessionStore


async def main(store: str, world: str, orders: int) -> None:
    session = await SessionStore(store).open("killed")
    async for _ in take_orders(session, World(world), range(orders)):
        pass


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))
