"""The command: `python -m examples.two_machines.main --store postgresql://USER:PASSWORD@HOST/DATABASE`.

Owns the arguments, the start and the killing of the machines, the orders that come in meanwhile, and
the account of it all at the end, which rests on the store and the mailbox alone.
"""

from __future__ import annotations

import mailbox as maildirs
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL
from subprocess import PIPE

import anyio
import click
from anyio.abc import Process, TaskStatus
from anyio.streams.buffered import BufferedByteReceiveStream

from reactifact import PendingAction, SessionStore
from reactifact.errors import ReactifactError

from ..orders.mail import Mailbox, compose, mail_server
from ..orders.main import SAMPLE
from ..orders.models import Order
from ..orders.reading import OrdersFileError, read_orders
from .moments import READY, Moment
from .stream import CLAIM, STREAM, append, orders_in, session_of, set_door

MACHINES = ("a", "b")
BATCH = 2
"""Orders that come in together."""
PAUSE = 0.05
"""Seconds between two batches."""
HANG = 0.2
"""Seconds that a machine stands still before it is killed: the other one passes by what it holds."""
POLL = 0.001
"""Seconds between two looks at the mailbox, while a kill waits for a number of mails."""

NOT_DONE, NO_STORE = 1, 3
NO_DATABASE = """\
give it a PostgreSQL database: --store postgresql://USER:PASSWORD@HOST/DATABASE. For a throw-away one:

  initdb -D pgdata -A trust -U me && pg_ctl -D pgdata -o "-p 5433 -k /tmp" -l pgdata/log -w start
  createdb -h localhost -p 5433 -U me orders      # --store postgresql://me@localhost:5433/orders
  pg_ctl -D pgdata stop && rm -r pgdata           # when you are done"""

Kill = Moment | int
"""When a machine is killed: at a moment of one of its orders, or when so many mails have arrived."""


def kills(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, Kill]:
    """Return what MACHINE@WHEN says, by machine. Raises `click.BadParameter`."""
    found: dict[str, Kill] = {}
    for text in given:
        name, _, when = text.partition("@")
        if name not in MACHINES or not (when in list(Moment) or re.fullmatch(r"[0-9]{1,9}", when)):
            raise click.BadParameter(
                f"{text!r} is not MACHINE@WHEN: a or b, @, and {', '.join(Moment)} or a number of mails"
            )
        found[name] = Moment(when) if when in list(Moment) else int(when)
    return found


@dataclass(slots=True)
class Shop:
    """The coordinator: lets orders come in, runs the machines, and kills those it is told to."""

    place: str
    store: SessionStore
    orders: list[Order]
    mailbox: Mailbox
    address: tuple[str, int]
    kills: dict[str, Kill]
    failures: list[str] = field(default_factory=list)

    async def open(self) -> None:
        """Run both machines while orders come in, and return when both have ended."""
        await set_door(self.store, True)
        async with anyio.create_task_group() as group:
            for name in MACHINES:
                await group.start(self._run_machine, name)
            await self._let_orders_in()

    async def _let_orders_in(self) -> None:
        stream = await self.store.load_session(STREAM)
        assert stream is not None
        known = {order.order_id for order in orders_in(stream)}
        new = [order for order in self.orders if order.order_id not in known]
        for start in range(0, len(new), BATCH):
            await append(self.store, new[start : start + BATCH])
            await anyio.sleep(PAUSE)
        await set_door(self.store, False)

    async def _run_machine(self, name: str, *, task_status: TaskStatus[None]) -> None:
        when = self.kills.get(name)
        host, port = self.address
        command = [sys.executable, "-m", "examples.two_machines.machine", "--name", name]
        command += ["--store", self.place, "--smtp", f"{host}:{port}"]
        command += ["--halt-at", when] if isinstance(when, Moment) else []
        async with await anyio.open_process(command, stdin=PIPE, stdout=PIPE, stderr=None) as process:
            assert process.stdout is not None
            lines = BufferedByteReceiveStream(process.stdout)
            is_ready = await _next_line(lines) == READY
            task_status.started()
            if when is not None and is_ready:
                await self._kill(name, when, process, lines)
            code = await process.wait()
            if code != (0 if when is None else -SIGKILL):
                self.failures.append(f"machine {name} was not killed, and ended with exit code {code}")

    async def _kill(self, name: str, when: Kill, process: Process, lines: BufferedByteReceiveStream) -> None:
        """Kill a machine in its moment; SIGKILL lets it clean up nothing. One that has ended is let be."""
        if isinstance(when, Moment):
            if await _next_line(lines) != when:
                return
            await anyio.sleep(HANG)
            click.echo(f"killed     machine {name}, at '{when}' of its second order")
        else:
            while len(self.mailbox) < when:
                if process.returncode is not None:
                    return
                await anyio.sleep(POLL)
            click.echo(f"killed     machine {name}, when {when} mails had arrived")
        process.kill()


async def _next_line(lines: BufferedByteReceiveStream) -> str | None:
    """Return what a machine says, `None` when it has ended."""
    try:
        return (await lines.receive_until(b"\n", 1_000)).decode()
    except (anyio.EndOfStream, anyio.IncompleteRead):
        return None


async def account(store: SessionStore, mailbox: Mailbox) -> list[str]:
    """Print what became of the orders, and return what is wrong with it."""
    stream = await store.load_session(STREAM)
    orders = [] if stream is None else orders_in(stream)
    mails = Counter(str(mail["Message-ID"]) for mail in maildirs.Maildir(mailbox.path, create=False))
    without: list[str] = []
    taken_by: Counter[str] = Counter()
    for order in orders:
        context = await store.load_session(session_of(order))
        actions = [] if context is None else context.list_artifacts(PendingAction)
        states = [(action.data.status, mails.pop(compose(action)["Message-ID"], 0)) for action in actions]
        if states != [("dispatched", 1)]:
            without.append(order.order_id)
        claim = None if context is None else context.get(CLAIM)
        if claim is not None:
            taken_by[claim.data.machine] += 1
    waiting = await store.pending_sessions()
    click.echo(f"orders     {len(orders)}, of them {len(orders) - len(without)} with one mail each")
    click.echo(f"taken      {', '.join(f'{taken_by[name]} by {name}' for name in MACHINES)}")
    click.echo(f"mailbox    {len(mailbox)} mails, {mailbox.repeats} repeats dropped")
    click.echo(f"waiting    {len(waiting)} sessions with something to send")
    wrong = {
        "orders without exactly one mail": without,
        "mails of no order": list(mails),
        "sessions with something to send": waiting,
    }
    return [f"{what}: {', '.join(which)}" for what, which in wrong.items() if which]


async def run(place: str, orders: list[Order], mails: Path | None, kill: dict[str, Kill]) -> list[str]:
    """Run the example and return what went wrong."""
    store = SessionStore(place)
    try:
        if mails is None and await store.has_session(STREAM):
            raise click.UsageError(
                "the store holds the orders of an earlier run: give the --mails of that run to go on with "
                "it, or another database"
            )
        with mail_folder(mails) as path:
            mailbox = Mailbox(path)
            with mail_server(mailbox) as address:
                shop = Shop(place, store, orders, mailbox, address, kill)
                await shop.open()
            return shop.failures + await account(store, mailbox)
    finally:
        with anyio.CancelScope(shield=True):
            await store.aclose()


@contextmanager
def mail_folder(given: Path | None) -> Iterator[Path]:
    """Yield where mails are kept: the given folder, or one that goes away at the end."""
    if given is not None:
        yield given.absolute()
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "mails"


@click.command(
    epilog="Exit codes: 0 each order has its one mail; 1 it has not, or a machine could not be killed as "
    "told: run it again; 2 the arguments cannot be used; 3 the store cannot be used."
)
@click.option("--store", "place", metavar="DSN", help="The PostgreSQL database of both machines.")
@click.option(
    "--orders",
    "orders_path",
    type=click.Path(path_type=Path),
    default=SAMPLE,
    help="The CSV file of orders, as in examples.orders; its sample when left out.",
)
@click.option(
    "--mails",
    type=click.Path(path_type=Path),
    help="A maildir for the mails, kept for later runs; a temporary one when left out.",
)
@click.option(
    "--kill",
    metavar="MACHINE@WHEN",
    multiple=True,
    default=("a@sent",),
    show_default=True,
    callback=kills,
    help="Kill a or b: at a moment of its second order (claimed, deciding, decided, sent, recorded), or "
    "when a number of mails have arrived. May be given for both.",
)
def main(place: str | None, orders_path: Path, mails: Path | None, kill: dict[str, Kill]) -> None:
    """Two machines work through one stream of orders; one is killed; each order ends with one mail.

    The machines are processes that share nothing but a PostgreSQL database. Delivery is at least
    once: a machine that dies between a send and its record leaves a mail that the other sends again,
    under the same Message-ID. The mail server knows it by that, drops it, and counts it.
    """
    if place is None:
        raise click.UsageError(NO_DATABASE)
    try:
        found = read_orders(orders_path)
    except OrdersFileError as error:
        raise click.UsageError(str(error)) from error
    for row in found.bad_rows:
        click.echo(f"{orders_path}, line {row.line}: {row.reason}; skipped", err=True)
    wrong: list[str] = []
    try:
        wrong = anyio.run(run, place, found.orders, mails, kill)
    except* (ReactifactError, OSError) as errors:
        for problem in errors.exceptions:
            click.echo(f"error: {problem}", err=True)
        sys.exit(NO_STORE)
    for line in wrong:
        click.echo(f"error: {line}", err=True)
    if wrong:
        sys.exit(NOT_DONE)


if __name__ == "__main__":
    main()
