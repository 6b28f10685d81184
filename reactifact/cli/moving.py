"""`reactifact export` and `reactifact import`: a whole store, to and from another place."""

from __future__ import annotations

import anyio
import click

from ..sessions.moving import Moved, export_store, import_store
from .common import counted, line, plain
from .loading import without_password


@click.command(short_help="Copy a whole store to another one or to a bundle.")
@click.argument("store", metavar="STORE")
@click.argument("place", metavar="TARGET")
def export(store: str, place: str) -> None:
    """Copy all that STORE holds to another store, or to a git bundle (a name that ends in .bundle).

    TARGET is made when absent. Sessions, branches, ledgers, tags and values go along under their names,
    and every commit keeps its id. What is there already is left alone; nothing is written where a name
    stands for something else. It prints how many refs (branches, ledgers, tags), values and objects
    were new there.
    """
    _say(place, anyio.run(export_store, store, place))


@click.command("import", short_help="Copy a store, a bundle or old data into a store.")
@click.argument("place", metavar="SOURCE")
@click.argument("store", metavar="STORE")
@click.option("--session", help="The name for a checkpoint of reactifact 0.15; default: its file's name.")
def import_(place: str, store: str, session: str | None) -> None:
    """Copy all that a store or a bundle holds into STORE, which is made when absent.

    SOURCE may also be what reactifact 0.15 wrote: the folder of a FileKVBackend, the file of a
    SQLiteKVBackend, a checkpoint, or the DSN of a PostgreSQLKVBackend (STORE may be the same then). Each
    session of it becomes one commit "imported from ...", with the versions of its artifacts, its
    relations, waiting events and the state of its actions.
    """
    if store.endswith(".bundle"):
        raise click.UsageError(f"a bundle is made with `reactifact export`, not with import: {store}")

    async def bring() -> Moved:
        return await import_store(place, store, session=session)

    _say(store, anyio.run(bring))


def _say(place: str, moved: Moved) -> None:
    place = without_password(place)
    if not moved.refs and not moved.values:
        line(plain(f"{place}: nothing was copied, it holds all of it already"))
        return
    values = f"{counted(moved.values, 'value')}, " if moved.values else ""
    line(plain(f"{place}: {counted(moved.refs, 'ref')}, {values}{counted(moved.objects, 'object')}"))
