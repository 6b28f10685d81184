"""The command: `python -m examples.two_laptops.main [FOLDER]`.

Two laptops work on one session while apart, each in its own store, and meet through a hub, a bare
repository. One mail is decided on; both hold it, and both try to deliver it. It is sent once: before they
part one of them takes the lease of the session, and afterwards the ledgers are joined. FOLDER (default: one
that is removed again) keeps the stores, to be looked at with git.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import click

from reactifact import Runtime, SessionStore
from reactifact.branching import BranchStore
from reactifact.errors import ReactifactError

from ..orders.agents import new_agents
from ..orders.mail import Mailbox, Mailer, mail_server
from ..orders.models import Order

SESSION = "orders"
LEASE = 3600.0
"""Seconds."""


class Laptop:
    """A store of its own, the hub it knows, and its way to the mail server."""

    def __init__(self, name: str, folder: Path, server: tuple[str, int]) -> None:
        self.name = name
        self.store = SessionStore(folder / f"{name}.git")
        self.branches = BranchStore(self.store.database)
        self._hub = str(folder / "hub.git")
        self._server = server

    async def order(self, order: Order) -> None:
        """Take an order and decide what follows; nothing is sent."""
        session = await self.store.open(SESSION)
        async with session:
            session.context.create(order, id=f"order:{order.order_id}")
            await Runtime(session.context, new_agents(), session=session).arun()
        self._say(f"takes order {order.order_id}, and decides on a mail")

    async def remark(self, order_id: str, note: str) -> None:
        """Correct an order by hand."""
        async with self.store.edit(SESSION, author=f"Ann on {self.name}") as context:
            order = context.get(f"order:{order_id}")
            assert order is not None
            context.update(order.id, order.data.model_copy(update={"note": note}))
        self._say(f"corrects order {order_id}: {note}")

    async def sync(self, lease: float | None = None) -> None:
        """Meet the other one at the hub."""
        report = await self.branches.sync(self._hub, lease=lease, name=self.name)
        for _, _, error in report.failed:
            raise error
        came = {
            "new": report.made,
            "moved forward": report.forwarded,
            "merged": report.merged,
            "deliveries heard of": report.heard,
        }
        done = [text for text, found in came.items() if found]
        done += [f"{len(report.pushed)} refs pushed"] if report.pushed else []
        done += [f"has the lease of {', '.join(report.leases)}"] if report.leases else []
        self._say(f"syncs: {', '.join(done)}")

    async def deliver(self) -> None:
        """Send what waits, as far as this laptop may."""
        mailer = Mailer(*self._server)
        try:
            report = await self.store.drain(mailer)
        finally:
            mailer.close()
        refused = "".join(f"; {error.partition(', which')[0]}" for _, _, error in report.failed)
        self._say(f"delivers: {mailer.sent} mail{'s' * (mailer.sent != 1)} sent{refused}")

    async def state(self) -> dict[str, Any]:
        """Return all that the session holds."""
        context = await self.store.load_session(SESSION)
        return {} if context is None else context.snapshot()

    def _say(self, text: str) -> None:
        click.echo(f"{self.name}  {text}")


async def story(folder: Path, mailbox: Mailbox, server: tuple[str, int]) -> bool:
    """Let two laptops do it; tell whether both hold the same in the end, and one mail was sent."""
    a, b = (Laptop(name, folder, server) for name in ("laptop-a", "laptop-b"))
    await a.order(
        Order(
            order_id="A-1",
            customer="Zoe",
            email="zoe@example.com",
            product="tea",
            quantity=2,
            unit_price=Decimal("4.50"),
        )
    )
    await a.sync(lease=LEASE)
    await b.sync()
    click.echo("-- they part: each holds the order, and a mail that waits")
    await b.deliver()
    await b.remark("A-1", "ring twice")
    await a.deliver()
    click.echo("-- they meet")
    await a.sync()
    await b.sync()
    await a.sync()
    for laptop in (a, b):
        await laptop.deliver()
    same = await a.state() == await b.state()
    click.echo(f"both hold the same: {'yes' if same else 'no'}; mails in the mailbox: {len(mailbox)}")
    for laptop in (a, b):
        await laptop.store.aclose()
    return same and len(mailbox) == 1 and not mailbox.repeats


@contextmanager
def place(folder: Path | None) -> Iterator[Path]:
    """Return the folder for the stores, with an empty hub in it."""
    with tempfile.TemporaryDirectory(prefix="two-laptops-") as temporary:
        chosen = Path(temporary) if folder is None else folder
        chosen.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "init", "--quiet", "--bare", str(chosen / "hub.git")], check=True)
        yield chosen


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), required=False)
def main(folder: Path | None) -> None:
    """Let two laptops work apart on one order, and send one mail."""
    if folder is not None and any(folder.glob("*.git")):
        click.echo(f"error: {folder} holds stores of an earlier run; give another folder", err=True)
        sys.exit(2)
    try:
        with place(folder) as chosen:
            mailbox = Mailbox(chosen / "mails")
            with mail_server(mailbox) as server:
                is_done = anyio.run(story, chosen, mailbox, server)
    except ReactifactError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    sys.exit(0 if is_done else 1)


if __name__ == "__main__":
    main()
