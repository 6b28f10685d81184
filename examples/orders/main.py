"""The command: `python -m examples.orders.main --orders FILE.csv --store PATH`.

Owns the arguments, the order of the steps, and what is printed. It may be interrupted or killed at
any moment; started again with the same arguments it goes on where it was.
"""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from reactifact import Context, PendingAction, Runtime, SessionStore
from reactifact.errors import ReactifactError

from .agents import new_agents
from .mail import DeliveryFailed, Mailbox, Mailer, ServerUnreachable, mail_server
from .models import Order, Sales
from .reading import OrdersFileError, read_orders

SESSION = "orders"
BATCH = 20
"""Orders that are stored and confirmed together; a kill loses no more work than one batch of them."""

SAMPLE = Path(__file__).with_name("orders.csv")
NOT_DELIVERED, NO_STORE, INTERRUPTED = 1, 3, 130


def host_and_port(
    context: click.Context, parameter: click.Parameter, given: str | None
) -> tuple[str, int] | None:
    """Return what HOST:PORT says, an IPv6 host being in brackets. Raises `click.BadParameter`."""
    if given is None:
        return None
    host, _, port = given.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise click.BadParameter(f"{given!r} is not HOST:PORT, such as mail.example.com:25 or [::1]:2525")
    return host, int(port)


@dataclass(slots=True)
class Job:
    """What one run works with."""

    orders: list[Order]
    context: Context
    runtime: Runtime
    mailer: Mailer

    async def run(self) -> list[str]:
        """Bring all orders to an end and return those whose stored content differs from the file's.

        Raises `ServerUnreachable`. A mail that is refused stays failed and stops no other.
        """
        self._retry_failed()
        if self.context.pending_events() or self.context.pending_actions():
            await self._settle()  # what an earlier run left
        new, differing = self._against_the_store()
        for start in range(0, len(new), BATCH):
            for order in new[start : start + BATCH]:
                self.context.create(order, id=f"order:{order.order_id}")
            await self._settle()
        return differing

    def _retry_failed(self) -> None:
        for action in self.context.list_artifacts(PendingAction):
            if action.data.status == "failed":
                self.context.retry_action(action.id)

    def _against_the_store(self) -> tuple[list[Order], list[str]]:
        new, differing = [], []
        for order in self.orders:
            stored = self.context.get(f"order:{order.order_id}")
            if stored is None:
                new.append(order)
            elif stored.data != order:
                differing.append(order.order_id)
        return new, differing

    async def _settle(self) -> None:
        while True:
            try:
                await self.runtime.arun()
            except DeliveryFailed:
                if self.mailer.unreachable is not None:
                    raise self.mailer.unreachable from None
                continue  # it is recorded as failed and not tried again before the next start
            return


@contextmanager
def progress_bar(total: int, done: int) -> Iterator[Progress]:
    """Show a bar on stderr while a run is in progress; without a terminal, nothing."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        progress.add_task("mails", total=total, completed=done)
        yield progress


class Interrupted(Exception):
    """Ctrl-C ended a run; all that was done is stored."""


async def until_interrupted(work: Callable[[], Awaitable[int]]) -> int:
    """Return what `work` returns. At Ctrl-C it is cancelled, and `Interrupted` is raised.

    The cancellation is anyio's, which shields hold off: the mail in flight is sent to its end and
    recorded. By itself asyncio would cancel in another way, which they do not.
    """
    result: int | None = None
    failure: Exception | None = None
    with anyio.open_signal_receiver(signal.SIGINT) as signals:
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                async for _ in signals:
                    group.cancel_scope.cancel()

            group.start_soon(watch)
            try:
                result = await work()
            except Exception as error:  # out of the group as it is, not in an exception group
                failure = error
            group.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if result is None:
        raise Interrupted
    return result


async def process(orders: list[Order], store: SessionStore, address: tuple[str, int]) -> int:
    """Run the job against a store and an SMTP server; print what came of it; return the exit code."""
    try:
        session = await store.open(SESSION)
        context = session.context
        delivered_before = _count(context, "dispatched")
        with progress_bar(len(orders), delivered_before) as progress:
            mailer = Mailer(*address, on_sent=lambda: progress.advance(progress.task_ids[0]))
            runtime = Runtime(context, agents=new_agents(), session=session, dispatcher=mailer)
            unreachable: ServerUnreachable | None = None
            differing: list[str] = []
            try:
                differing = await Job(orders, context, runtime, mailer).run()
            except ServerUnreachable as error:
                unreachable = error
            finally:
                mailer.close()
        for order_id in differing:
            click.echo(f"order {order_id} was confirmed with other content before: that stays", err=True)
        return _report(context, mailer, len(orders), unreachable)
    finally:
        with anyio.CancelScope(shield=True):
            await store.aclose()


def _count(context: Context, status: str) -> int:
    return sum(action.data.status == status for action in context.list_artifacts(PendingAction))


def _report(context: Context, mailer: Mailer, total: int, unreachable: ServerUnreachable | None) -> int:
    delivered, stored = _count(context, "dispatched"), len(context.list_artifacts(Order))
    sales = context.latest(Sales)
    click.echo(f"orders     {stored} stored of {total} in the file")
    if sales is not None:
        click.echo(f"revenue    {sales.data.revenue:.2f} EUR on {sales.data.receipts} receipts")
    click.echo(f"mails      {delivered} delivered, {mailer.sent} of them now")
    click.echo(f"commits    {context.version} by agents, and at least one for each delivery")
    if unreachable is not None:
        click.echo(f"error: {unreachable}; start it and run the same command again", err=True)
        return NOT_DELIVERED
    failed = [action for action in context.list_artifacts(PendingAction) if action.data.status == "failed"]
    for action in failed:
        click.echo(f"error: {action.data.idempotency_key} failed: {action.data.error}", err=True)
    if failed:
        click.echo("error: run the same command again to retry what failed", err=True)
        return NOT_DELIVERED
    return 0


def next_steps(store: Path, mailbox: Mailbox | None) -> list[str]:
    """Return commands that read what a run left."""
    git = f"git -C {shlex.quote(str(store))}"
    steps = [
        f"{git} log --stat {SESSION}/main          # what was decided, and by which agent",
        f"{git} log --oneline {SESSION}/%outbox    # what was delivered",
        f"{git} fsck --strict",
    ]
    if mailbox is not None:
        steps.append(f"ls {shlex.quote(str(mailbox.path / 'new'))}    # the mails")
    return steps


@contextmanager
def smtp_server(
    given: tuple[str, int] | None, mails: Path
) -> Iterator[tuple[tuple[str, int], Mailbox | None]]:
    """Yield the address of the given server, or of one of our own with its mailbox at `mails`."""
    if given is not None:
        yield given, None
        return
    mailbox = Mailbox(mails)
    with mail_server(mailbox) as address:
        yield address, mailbox


@click.command(
    epilog="Exit codes: 0 all mails delivered (bad rows are reported and skipped); 1 mails could not be "
    "delivered, run it again; 2 the arguments or the file cannot be used; 3 the store cannot be used; "
    "130 interrupted, run it again."
)
@click.option(
    "--orders",
    "orders_path",
    type=click.Path(path_type=Path),
    default=SAMPLE,
    help="The CSV file to read; a sample when left out.",
)
@click.option(
    "--store",
    "store_path",
    type=click.Path(path_type=Path),
    required=True,
    help="The bare repository that keeps the state, made when absent.",
)
@click.option(
    "--smtp", metavar="HOST:PORT", callback=host_and_port, help="A server to use instead of one of our own."
)
def main(orders_path: Path, store_path: Path, smtp: tuple[str, int] | None) -> None:
    """Confirm each order of a CSV file by mail, exactly once.

    It can be interrupted or killed at any moment: started again with the same arguments, it goes on
    where it was. Without --smtp it starts a server of its own, which keeps its mails in a maildir
    beside the store.
    """
    try:
        found = read_orders(orders_path)
    except OrdersFileError as error:
        raise click.UsageError(str(error)) from error
    for row in found.bad_rows:
        click.echo(f"{orders_path}, line {row.line}: {row.reason}; skipped", err=True)
    try:
        store = SessionStore(store_path)
        mails = store_path.absolute().with_name(f"{store_path.absolute().name}.mails")
        with smtp_server(smtp, mails) as (address, mailbox):
            try:
                code = anyio.run(until_interrupted, partial(process, found.orders, store, address))
            finally:
                if mailbox is not None:
                    click.echo(f"mailbox    {len(mailbox)} mails, {mailbox.repeats} repeats dropped now")
    except (Interrupted, KeyboardInterrupt):
        click.echo("interrupted: run the same command again to go on", err=True)
        sys.exit(INTERRUPTED)
    except (ReactifactError, OSError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(NO_STORE)
    click.echo(f"bad rows   {len(found.bad_rows)} reported and skipped")
    click.echo("\nNext:\n  " + "\n  ".join(next_steps(store_path, mailbox)))
    sys.exit(code)


if __name__ == "__main__":
    main()
