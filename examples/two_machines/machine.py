"""One machine: `python -m examples.two_machines.machine --name a --store STORE --smtp HOST:PORT`.

Owns how an order is taken, taken over, and brought to its end. Any number of machines run at once, on
one host or many; what they know of one another stands in the store, and no more than that is needed:

- Whoever opens an order's session with `wait=0` has the order, the others get `SessionBusy`.
- A machine that dies loses its locks with its connection. The next one to open the session finds what
  was committed, and goes on from there.
"""

from __future__ import annotations

import sys

import anyio
import click

from reactifact import (
    Agent,
    Artifact,
    Consume,
    Context,
    PendingAction,
    ProduceCall,
    Runtime,
    SessionStore,
    create_agent,
    produce,
)
from reactifact.errors import ReactifactError, SessionBusy

from ..orders.agents import confirm_order
from ..orders.mail import Mailer, ServerUnreachable
from ..orders.main import host_and_port
from ..orders.models import Order, Receipt
from .moments import READY, Halt, Moment, say
from .stream import CLAIM, STREAM, Claim, is_open, orders_in, session_of

PAUSE = 0.02
"""Seconds until a machine that found nothing to do looks again."""


class Machine:
    """Works through the stream until it is closed and every order of it is done, by whomever."""

    def __init__(self, name: str, store: SessionStore, mailer: Mailer, halt: Halt) -> None:
        self.name = name
        self.store = store
        self.mailer = mailer
        self.halt = halt

    async def work(self) -> None:
        """Take orders and bring them to an end. Raises `ServerUnreachable`."""
        await self.deliver_what_waits()  # before anything new
        stream = await self.store.open(STREAM)
        say(READY)
        done: set[str] = set()
        while True:
            await stream.refresh()
            left = [order for order in orders_in(stream.context) if order.order_id not in done]
            if not left and not is_open(stream.context):
                return
            ended = [order.order_id for order in left if await self.bring_to_its_end(order)]
            done.update(ended)
            if not ended:  # nothing came in, or another machine has it, or had it when it died
                await anyio.sleep(PAUSE)

    async def deliver_what_waits(self) -> None:
        """Deliver what an earlier crash or a refusal left undelivered anywhere in the store.

        Raises `ServerUnreachable`.
        """
        report = await self.store.drain(self.deliver, retry_failed=True)
        self._check_server()
        if report.delivered:
            self._tell(f"delivers what waited: {report.delivered}")

    async def bring_to_its_end(self, order: Order) -> bool:
        """Do what is left to do for an order; `False` when another machine has it."""
        try:
            session = await self.store.open(session_of(order), wait=0)
        except SessionBusy:
            return False
        async with session:
            context = session.context
            is_new = not session.loaded
            if is_new:
                self.halt.reached(Moment.CLAIMED)
                context.create(Claim(machine=self.name), id=CLAIM)
                context.create(order, id=f"order:{order.order_id}")
                await session.save()  # from here on the store knows who had it
            elif context.pending_events() or context.pending_actions():
                self._tell(f"goes on with order {order.order_id}, which was begun")
            else:
                return True
            runtime = Runtime(
                context,
                agents=[self._confirmation()],
                session=session,
                dispatcher=self.deliver,
                dispatch_errors="record",  # one refused mail does not stop the others
            )
            await runtime.arun()  # the turn, or what is left of it
            self._check_server()
            if is_new:
                self.halt.reached(Moment.RECORDED)
        return True

    async def deliver(self, context: Context, action: Artifact[PendingAction]) -> None:
        """The dispatcher: send one mail, its `Message-ID` being the idempotency key."""
        self.halt.reached(Moment.DECIDED)
        await self.mailer(context, action)
        self.halt.reached(Moment.SENT)

    def _tell(self, what: str) -> None:
        click.echo(f"machine {self.name}  {what}", err=True)

    def _check_server(self) -> None:
        if self.mailer.unreachable is not None:
            raise self.mailer.unreachable

    def _confirmation(self) -> Agent:
        @produce(Receipt, reacts_to=Order)
        def be_interrupted(call: ProduceCall) -> None:
            self.halt.reached(Moment.DECIDING)

        return create_agent(
            "confirmation", consumes=[Consume(Order)], produces=[confirm_order, be_interrupted]
        )


async def run(name: str, place: str, address: tuple[str, int], moment: Moment | None) -> None:
    """Run one machine to the end of the stream."""
    store, mailer = SessionStore(place), Mailer(*address)
    try:
        await Machine(name, store, mailer, Halt(moment)).work()
    finally:
        mailer.close()
        await store.aclose()


@click.command(help=__doc__)
@click.option("--name", required=True, help="What the machine signs its orders with.")
@click.option("--store", "place", required=True, help="The store that all machines share.")
@click.option("--smtp", "address", metavar="HOST:PORT", callback=host_and_port, required=True)
@click.option(
    "--halt-at", type=click.Choice([moment.value for moment in Moment]), help="A moment to stand still in."
)
def main(name: str, place: str, address: tuple[str, int], halt_at: str | None) -> None:
    """Run one machine."""
    try:
        anyio.run(run, name, place, address, None if halt_at is None else Moment(halt_at))
    except (ReactifactError, ServerUnreachable) as error:
        click.echo(f"machine {name}: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
