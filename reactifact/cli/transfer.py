"""`reactifact bundle`, `export`, `import` and `prune`: a store in another place, and space back."""

from __future__ import annotations

import anyio
import click

from .._sessions.stores import open_database, prune_store
from .._store._backends.bundle import is_bundle
from .._store._backends.git.backend import GitBackend
from .._store.names import plain
from .._store.protocol import Pruned
from ..errors import ReactifactError, StoreError
from ..replay.state import bundle_session
from ..transfer import Moved, export_store, import_store
from ._shared.naming import complete_session
from ._shared.terminal import Progress, progress
from .common import (
    backend_option,
    counted,
    json_option,
    line,
    print_json,
    store_argument,
    stored_at,
    without_password,
)

# -- `reactifact bundle`: a session in one file, to hand on or to keep --


@click.command(short_help="Pack a session into one file.")
@click.argument("path", metavar="[STORE]")
@click.argument("session", metavar="SESSION", shell_complete=complete_session)
@click.option("-o", "--output", metavar="FILE", required=True, help="Where to write it; replaced if there.")
@click.option("--recording", metavar="FILE", help="The model calls that ReplayLLM recorded, to carry along.")
@backend_option
@json_option
def bundle(path: str, session: str, output: str, recording: str | None, backend: str, as_json: bool) -> None:
    """Pack the history of SESSION, with its branches, tags and deliveries, into one git bundle.

    The versions of everything that ran go along, and the recorded model calls if there are any. The
    file is read like a store (`reactifact replay FILE`, `log FILE` ...) and by git (`git clone FILE`).
    Data and prompts are in it as they are: look before you send it on.

    \b
    --json: {what, file, objects, branches, bytes}
    """
    with stored_at(path, backend, read_only=True) as database:
        try:
            with progress("bundling") as told:
                made = bundle_session(database, session, output, recording=recording, progress=told)
        except OSError as error:  # the disk's are StoreError: what is left is the recording
            raise ReactifactError(
                f"the recording {recording} cannot be read ({error.strerror}): check its path"
            ) from error
        except ValueError as error:
            raise ReactifactError(str(error)) from error
    branches = sum(name.startswith("refs/heads/") for name in made.refs)
    if as_json:
        counts = {"objects": made.objects, "branches": branches, "bytes": made.size}
        print_json({"file": output, **counts})
        return
    objects, lines = counted(made.objects, "object"), counted(branches, "branch", "branches and ledgers")
    line(plain(f"{output}: {objects}, {lines}, {made.size} bytes"))


# -- `reactifact export` and `reactifact import`: a whole store, to and from another place --


@click.command(short_help="Copy a whole store to another one or to a bundle.")
@click.argument("store", metavar="[STORE]")
@click.argument("place", metavar="TARGET")
@json_option
def export(store: str, place: str, as_json: bool) -> None:
    """Copy all that STORE holds to another store, or to a git bundle (a name that ends in .bundle).

    TARGET is made when absent. Sessions, branches, ledgers, tags and values go along under their names,
    and every commit keeps its id. What is there already is left alone; nothing is written where a name
    stands for something else. It prints how many refs (branches, ledgers, tags), values and objects
    were new there.

    \b
    --json: {what, target, refs, values, objects}
    """

    async def bring(told: Progress) -> Moved:
        return await export_store(store, place, progress=told)

    with progress("exporting") as told:
        moved = anyio.run(bring, told)
    _say(place, moved, as_json)


@click.command("import", short_help="Copy a store, a bundle or old data into a store.")
@click.argument("place", metavar="SOURCE")
@click.argument("store", metavar="[STORE]")
@click.option("--session", help="The name for a checkpoint of reactifact 0.15; default: its file's name.")
@json_option
def import_(place: str, store: str, session: str | None, as_json: bool) -> None:
    """Copy all that a store or a bundle holds into STORE, which is made when absent.

    SOURCE may also be what reactifact 0.15 wrote: the folder of a FileKVBackend, the file of a
    SQLiteKVBackend, a checkpoint, or the DSN of a PostgreSQLKVBackend (STORE may be the same then). Each
    session of it becomes one commit "imported from ...", with the versions of its artifacts, its
    relations, waiting events and the state of its actions.

    \b
    --json: {what, target, refs, values, objects}
    """
    if store.endswith(".bundle"):
        raise click.UsageError(f"a bundle is made with `reactifact export`, not with import: {store}")

    async def bring(told: Progress) -> Moved:
        return await import_store(place, store, session=session, progress=told)

    with progress("importing") as told:
        moved = anyio.run(bring, told)
    _say(store, moved, as_json)


def _say(place: str, moved: Moved, as_json: bool) -> None:
    place = without_password(place)
    if as_json:
        counts = {"refs": moved.refs, "values": moved.values, "objects": moved.objects}
        print_json({"target": place, **counts})
        return
    if not moved.refs and not moved.values:
        line(plain(f"{place}: nothing was copied, it holds all of it already"))
        return
    values = f"{counted(moved.values, 'value')}, " if moved.values else ""
    line(plain(f"{place}: {counted(moved.refs, 'ref')}, {values}{counted(moved.objects, 'object')}"))


# -- `reactifact prune` --


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
    """Let go of what no branch or tag of STORE reaches, and remove it from a SQLite or PostgreSQL store.

    Deleted branches and sessions, compactions and undone turns leave it. What is found unreachable for
    the first time is only noted, and goes with a prune after its grace; with --grace 0 it goes at once.
    Running agents may go on. With --rewrite others wait as long as it takes to copy the store. What is let
    go of in a bare repository is removed by the next `git gc`. Compactions, checkouts and undos older than
    the grace can no longer be undone.

    \b
    --json: {what, objects, bytes, waiting, operations}
    """
    if is_bundle(store):
        raise StoreError(f"{store} is a bundle, which is only read: there is nothing to prune")
    database = open_database(store, create=False)
    try:

        async def work(told: Progress) -> Pruned:
            return await prune_store(database, grace=grace, rewrite=rewrite, progress=told)

        with progress("pruning") as told:
            done = anyio.run(work, told)
        is_git = isinstance(database.backend, GitBackend)
    finally:
        database.backend.close()
    if as_json:
        names = {"objects": done.objects, "bytes": done.size}
        print_json({**names, "waiting": done.waiting, "operations": done.operations})
        return
    text = (
        f"{counted(done.objects, 'object')} removed ({done.size} bytes), {done.waiting} wait for their grace"
    )
    if is_git:
        moves = counted(done.operations, "move")
        text = f"{moves} of branches can no longer be undone; `git gc` removes what nothing reaches"
    line(plain(f"{without_password(store)}: {text}"))
