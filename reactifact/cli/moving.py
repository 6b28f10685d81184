"""`reactifact export` and `reactifact import`: a whole store, to and from another place."""

from __future__ import annotations

import anyio
import click

from ..sessions.moving import Moved, export_store, import_store
from .common import line, plain


@click.command(short_help="Copy a whole store to a repository or a bundle.")
@click.argument("store", metavar="STORE")
@click.argument("place", metavar="FILE-OR-PATH")
def export(store: str, place: str) -> None:
    """Copy all that STORE holds to a bare repository, or to a git bundle (FILE.bundle).

    STORE is a path, a SQLite file or a postgresql:// DSN. Sessions, branches, ledgers, tags and values
    go along under their names, and every commit keeps its id. What is there already is left alone;
    nothing is written where a name stands for something else.
    """
    _say(place, anyio.run(export_store, store, place))


@click.command("import", short_help="Copy a whole store, a bundle, or data of reactifact 0.15, into a store.")
@click.argument("place", metavar="FILE-OR-PATH")
@click.argument("store", metavar="STORE")
@click.option("--session", help="The name for a checkpoint of reactifact 0.15; default: its file's name.")
def import_(place: str, store: str, session: str | None) -> None:
    """Copy all that a store or a bundle holds into STORE, which is made when absent.

    FILE-OR-PATH may also be what reactifact 0.15 wrote: the folder of a FileKVBackend, the file of a
    SQLiteKVBackend, a checkpoint, or the DSN of a PostgreSQLKVBackend (STORE may be the same then). Each
    session of it becomes one commit "imported from ...", with the versions of its artifacts, its
    relations, waiting events and the state of its actions.
    """

    async def bring() -> Moved:
        return await import_store(place, store, session=session)

    _say(store, anyio.run(bring))


def _say(place: str, moved: Moved) -> None:
    values = f", {moved.values} values" if moved.values else ""
    line(plain(f"{place}: {moved.refs} refs{values}, {moved.objects} objects"))
