"""LangGraph with its SQLite or its PostgreSQL saver: `langgraph_saver.py sqlite|postgres PLACE`.

Two nodes on one thread: `process` adds the receipt and the intent to the state, `deliver` sends and marks it.
`durability="sync"`: a checkpoint is stored before the next step begins, which is what an outbox needs.
"""

from __future__ import annotations

import asyncio
import operator
import sys
from typing import Annotated, TypedDict

from common import serve
from langgraph.graph import END, START, StateGraph

delivered = 0


def merged(old: dict, new: dict) -> dict:
    return {**old, **new}


class State(TypedDict):
    orders: Annotated[list[dict], operator.add]
    receipts: Annotated[dict, merged]
    actions: Annotated[dict, merged]


async def process(state: State) -> dict:
    order = state["orders"][-1]
    key = f"notify:{order['id']}"
    action = {"kind": "notify", "payload": {"to": order["customer"]}, "status": "pending"}
    return {
        "receipts": {f"receipt:{order['id']}": {"order_id": order["id"], "text": "confirmed"}},
        "actions": {key: action},
    }


async def deliver(state: State) -> dict:
    global delivered
    key, action = next(reversed(state["actions"].items()))
    if action["status"] == "pending":
        delivered += 1
    return {"actions": {key: {**action, "status": "dispatched"}}}


async def main(kind: str, place: str) -> None:
    if kind == "postgres":
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver as Saver
    else:
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver as Saver
    graph = StateGraph(State)
    graph.add_node("process", process)
    graph.add_node("deliver", deliver)
    graph.add_edge(START, "process")
    graph.add_edge("process", "deliver")
    graph.add_edge("deliver", END)
    async with Saver.from_conn_string(place) as saver:
        await saver.setup()
        compiled = graph.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": "orders"}}

        async def turn(number: int) -> None:
            order = {"id": str(number), "customer": "a@example.com"}
            await compiled.ainvoke({"orders": [order]}, config, durability="sync")

        await serve(turn, lambda: delivered)


asyncio.run(main(sys.argv[1], sys.argv[2]))
