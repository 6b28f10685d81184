"""DBOS on SQLite: `dbos_steps.py sqlite PLACE`; one workflow of two steps an order."""

from __future__ import annotations

import asyncio
import sys

from common import serve
from dbos import DBOS, SetWorkflowID

delivered = 0


@DBOS.step()
async def process(order: dict) -> dict:
    return {
        "receipt": {"order_id": order["id"], "text": "confirmed"},
        "action": {"kind": "notify", "key": f"notify:{order['id']}", "payload": {"to": order["customer"]}},
    }


@DBOS.step()
async def deliver(action: dict) -> str:
    global delivered
    delivered += 1
    return "dispatched"


@DBOS.workflow()
async def handle(order: dict) -> str:
    decided = await process(order)
    return await deliver(decided["action"])


async def main(place: str) -> None:
    DBOS(
        config={
            "name": "orders",
            "system_database_url": f"sqlite:///{place}",
            "log_level": "ERROR",
            "run_admin_server": False,
        }
    )
    DBOS.launch()

    async def turn(number: int) -> None:
        with SetWorkflowID(f"order-{number}"):
            await handle({"id": str(number), "customer": "a@example.com"})

    await serve(turn, lambda: delivered)
    DBOS.destroy()


asyncio.run(main(sys.argv[2]))
