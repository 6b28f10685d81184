"""Find the generation in which a total went wrong: `python -m examples.bisect.main [--store PATH]`.

Forty payments are booked, one of them a refund, and in the end the total is not that of the entries.
`BranchStore.bisect` looks at a handful of stored states and names the generation, its agent and what
woke it; no agent runs for that. With `--store` the history stays in a bare repository there, and the
commands with which plain git finds the same commit are printed.
"""

from __future__ import annotations

import math
import shlex
from pathlib import Path

import anyio
import click

from reactifact import Runtime, SessionStore
from reactifact.branching import BranchStore
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.errors import NotAStore

from .books import ACCOUNT, Account, Payment, balances, bookkeeper

SESSION = "books"
CHECK = Path(__file__).with_name("check.sh")
"""What `balances` says, as a line of shell."""

PAYMENTS = 40
REFUND = 23
"""The payment that is a refund: the first that the agent books wrongly."""


async def trade(store: SessionStore) -> tuple[int, int]:
    """Book the payments, each in a turn of its own; return the total, and what it should be."""
    session = await store.open(SESSION)
    runtime = Runtime(session.context, agents=[bookkeeper()], session=session)
    for number in range(1, PAYMENTS + 1):
        cents = -5_00 if number == REFUND else 10_00 + number
        session.context.create(Payment(cents=cents), id=f"payment:{number}")
        await runtime.arun()
    account = session.context.get(ACCOUNT, Account)
    assert account is not None
    return account.data.total, sum(account.data.entries)


async def run(path: str | None) -> None:
    """Make the history, and find the generation."""
    store = SessionStore(path if path is not None else InMemoryKVBackend())
    try:
        if await store.has_session(SESSION):
            raise click.UsageError(
                f"{path} holds the books of an earlier run: remove it or choose another path"
            )
        total, expected = await trade(store)
        click.echo(f"{PAYMENTS} payments booked; the total is {total}, the entries make {expected}")
        assert total - expected == 10_00

        branches = BranchStore(store.database)
        states = len(await branches.log(SESSION)) - 1  # the empty beginning is not a state to look at
        found = await branches.bisect(SESSION, balances)
        assert found is not None
        assert found.entry.record is not None
        assert found.entry.record.trigger is not None
        trigger = found.entry.record.trigger["artifact_id"]
        click.echo(f"bisect looked at {found.loads} of {states} states")
        click.echo(f"it went wrong in {found.commit[:12]}, by {found.agent}, because of {trigger}")
        assert (found.agent, trigger) == ("bookkeeper", f"payment:{REFUND}")
        assert found.loads <= math.ceil(math.log2(states + 1))

        wrong = await branches.diff(str(found.before), found.commit)
        (change,) = wrong.state.changed
        for field in change.fields:
            click.echo(f"    {field.path}: {field.old} -> {field.new}")
        assert [field.path for field in change.fields] == [f"entries[{REFUND - 1}]", "total"]
        if path is not None:
            click.echo("\nplain git finds it too:")
            click.echo("\n".join(git_commands(path)))
    finally:
        await store.aclose()


def git_commands(path: str) -> list[str]:
    """Return the commands that find the commit with git alone, without a checkout."""
    git = f"git -C {shlex.quote(path)}"
    first = f"$({git} rev-list --max-parents=0 {SESSION}/main)"
    return [
        f"{git} bisect start {SESSION}/main {first}",
        f"{git} bisect run sh {shlex.quote(str(CHECK))}",
        f"{git} bisect reset",
    ]


@click.command(help=__doc__)
@click.option("--store", "path", type=click.Path(), help="A bare repository, made when absent.")
def main(path: str | None) -> None:
    """Run the example."""
    try:
        anyio.run(run, path)
    except NotAStore as error:
        raise click.UsageError(str(error)) from error


if __name__ == "__main__":
    main()
