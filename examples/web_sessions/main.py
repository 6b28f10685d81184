"""Send two orders from each of fifty customers at once: `python -m examples.web_sessions.main`.

The requests go to the application in this process. To serve it: `uvicorn` on what `app.build` returns.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import httpx

from reactifact import Context

from .app import build

CUSTOMERS = 50


async def run(store: Path) -> tuple[dict[str, list[str]], Counter[str]]:
    """Send the orders; return the receipts of each customer, and how often each mail went out."""
    mails: Counter[str] = Counter()
    receipts: dict[str, list[str]] = {}

    async def dispatch(context: Context, action: Any) -> None:
        mails[action.data.idempotency_key] += 1

    app = build(store, dispatch)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://shop", timeout=60) as client,
    ):

        async def customer(name: str) -> None:
            for item in ("tea", "samovar"):
                answer = await client.post(f"/sessions/{name}/orders", json={"item": item})
                answer.raise_for_status()
                receipts.setdefault(name, []).append(answer.json()["receipt"])

        async with anyio.create_task_group() as tasks:
            for number in range(CUSTOMERS):
                tasks.start_soon(customer, f"customer-{number}")
    return receipts, mails


def main() -> int:
    """Run the example and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", help="where the store is kept; default: a folder that is removed again")
    store = parser.parse_args().store
    with tempfile.TemporaryDirectory(prefix="web-") as folder:
        receipts, mails = anyio.run(run, Path(store or f"{folder}/shop.git"))
    print(f"{len(receipts)} sessions, {sum(map(len, receipts.values()))} receipts")
    print(f"{len(mails)} mails, each sent {max(mails.values())} time")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
