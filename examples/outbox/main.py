"""Run the seven cases: `python -m examples.outbox.main [--store PATH]`.

Each case prints one line when everything it asserts holds; an assertion that fails ends the program
with a non-zero exit code. With `--store` the cases leave their sessions in a bare repository there,
to be read with git; without it they leave nothing.
"""

from __future__ import annotations

import anyio
import click

from reactifact import SessionStore
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.errors import NotAStore

from .cases import CASES


async def run(path: str | None) -> None:
    """Run every case in a store of its own sessions and print its line."""
    store = SessionStore(path if path is not None else InMemoryKVBackend())
    try:
        if await store.has_session("demo"):
            raise click.UsageError(
                f"{path} holds the sessions of an earlier run: remove it or choose another path"
            )
        for number, case in enumerate(CASES, start=1):
            click.echo(f"{number}. {await case(store)}")
    finally:
        await store.aclose()


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
