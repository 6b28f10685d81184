"""Where does that number come from? `python -m examples.audit.main [--store PATH]`.

Transactions, budgets and a policy are read from three files; two agents compute, in Python, which
department spent more than it may. The answer is audited down to the lines of the files. Then one
transaction is corrected, and exactly what rests on it is computed again. Two runs print the same hashes.
With `--store` the session stays in a bare repository there, for `reactifact audit` and `replay`.
"""

from __future__ import annotations

import anyio
import click

from reactifact import Context, Runtime, RuntimeResources, SessionStore
from reactifact.audit import build_report, context_hash
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.errors import NotAStore
from reactifact.replay import verify_history

from .agents import agents
from .models import Finding
from .reading import read_files

SESSION = "budget"
CORRECTED = "transaction:t2"


async def run(path: str | None) -> None:
    """Compute, audit, correct one input, and compute again."""
    store = SessionStore(path if path is not None else InMemoryKVBackend())
    try:
        if await store.has_session(SESSION):
            raise click.UsageError(f"{path} holds the session of an earlier run: choose another path")
        session = await store.open(SESSION, RuntimeResources(principal="importer"))
        context = session.context
        read_files(context)
        runtime = Runtime(context, agents=agents(), session=session)
        click.echo(f"computed with {await runtime.arun()} executions")
        _show(context)
        _show_audit(context)
        was = context.get(CORRECTED)
        assert was is not None
        context.update(CORRECTED, was.data.model_copy(update={"cents": 1_000_00}))
        before = len(context.history())
        await runtime.arun()
        again = [write.artifact_id for commit in context.history()[before:] for write in commit.writes]
        click.echo(f"corrected {CORRECTED}: computed again {', '.join(again)}")
        _show(context)
        report = verify_history(store.database, SESSION)
        click.echo(f"checked {report.commits} commits: {'all match' if report.ok else report.fault}")
    finally:
        await store.aclose()


def _show(context: Context) -> None:
    for finding in context.list_artifacts(Finding):
        data = finding.data
        click.echo(f"{data.department}: {data.spent / 100:.2f} of {data.allowed / 100:.2f}, {data.verdict}")
    click.echo(f"state hash {context_hash(context)}")


def _show_audit(context: Context) -> None:
    report = build_report(context, "finding:travel", session_id=SESSION)
    for entry in report.entries:
        who = f"{entry.author}, directly" if entry.is_direct else f"{entry.author}, code {entry.code}"
        click.echo(f"{'  ' * entry.distance}{entry.artifact_id} {entry.content_hash[:12]} by {who}")
    click.echo(f"sources: {', '.join(sorted(report.sources))}")


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
