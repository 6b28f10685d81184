"""`reactifact prune`: removing what no branch and no tag reaches from a SQLite or PostgreSQL store."""

from __future__ import annotations

import anyio
import click

from ..errors import StoreError
from ..sessions.pruning import prune_store
from ..sessions.stores import open_database
from ..store.bundle import is_bundle
from .common import counted, json_option, line, plain, print_json, store_argument
from .loading import without_password


@click.command(short_help="Remove what no branch or tag reaches.")
@store_argument
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=3600.0,
    show_default=True,
    help="Seconds between finding an object unreachable for the first time and its removal.",
)
@click.option("--rewrite", is_flag=True, help="Write the tables anew: the space goes back, no byte is left.")
@json_option
def prune(store: str, grace: float, rewrite: bool, as_json: bool) -> None:
    """Remove from STORE, a SQLite file or a postgresql:// DSN, what no branch or tag reaches.

    Deleted branches and sessions, compactions and undone turns leave it. What is found unreachable for
    the first time is only noted, and goes with a prune after its grace; with --grace 0 it goes at once.
    Running agents may go on. With --rewrite others wait as long as it takes to copy the store. A bare
    repository is pruned by `git gc`.

    \b
    --json: {objects, bytes, waiting}
    """
    if is_bundle(store):
        raise StoreError(f"{store} is a bundle, which is only read: there is nothing to prune")
    database = open_database(store, create=False)
    try:

        async def work() -> tuple[int, int, int]:
            return await prune_store(database, grace=grace, rewrite=rewrite)

        objects, size, waiting = anyio.run(work)
    finally:
        database.backend.close()
    if as_json:
        print_json({"objects": objects, "bytes": size, "waiting": waiting})
    else:
        removed = f"{counted(objects, 'object')} removed ({size} bytes)"
        line(plain(f"{without_password(store)}: {removed}, {waiting} wait for their grace"))
