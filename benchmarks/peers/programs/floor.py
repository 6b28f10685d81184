"""The floor: `floor.py sqlite PLACE`; two SQLite transactions a turn of about the same bytes, each synced."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys

from common import serve

delivered = 0


async def main(place: str) -> None:
    database = sqlite3.connect(place, isolation_level=None)
    database.execute("pragma journal_mode=wal")
    database.execute("pragma synchronous=full")
    database.execute("create table state (id text primary key, data text)")

    async def turn(number: int) -> None:
        global delivered
        order = json.dumps({"id": str(number), "customer": "a@example.com"})
        receipt = json.dumps({"order_id": str(number), "text": "confirmed"})
        action = {"kind": "notify", "payload": {"to": "a@example.com"}, "status": "pending"}
        database.execute("begin immediate")
        for name, data in (("order", order), ("receipt", receipt), ("action", json.dumps(action))):
            database.execute("insert into state values (?, ?)", (f"{name}:{number}", data))
        database.execute("commit")
        delivered += 1
        done = json.dumps({**action, "status": "dispatched"})
        database.execute("begin immediate")
        database.execute("update state set data = ? where id = ?", (done, f"action:{number}"))
        database.execute("commit")

    await serve(turn, lambda: delivered)


asyncio.run(main(sys.argv[2]))
