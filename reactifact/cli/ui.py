"""`reactifact ui`: the inspector, in a browser."""

from __future__ import annotations

import click

from .._extras import install_command
from ..errors import ReactifactError
from .common import bundle_at, find_models, line, recovered, store_argument, without_password


class MissingExtra(ReactifactError):
    """What a verb needs beyond the package itself is not installed."""


@click.command(short_help="Show a store in the browser.")
@store_argument
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0: a free one.")
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Answer to this host name too (several times); for another --host, or a proxy.",
)
@click.option("--allow-writes", is_flag=True, help="Let questions be answered and failed actions be retried.")
@click.option(
    "--models",
    metavar="MODULE",
    multiple=True,
    help="Import a module with models (several times): they validate the answers to their questions.",
)
def ui(
    store: str, host: str, port: int, hosts: tuple[str, ...], allow_writes: bool, models: tuple[str, ...]
) -> None:
    """Serve pages that show a store: history, runs, artifacts, branches, outbox, questions.

    The address is printed; Ctrl-C ends it. Nothing is changed, and only this machine is answered, unless
    asked for. With --allow-writes the printed address carries a token, and only a browser that opened it
    may write; a question that was asked with a model is answered where --models names its module. The pages
    follow a run while it goes on. Needs the extra `ui`.
    """
    try:
        from ..ui.app import Token, application, listening, run
        from ..ui.guard import LOCAL_HOSTS
    except ModuleNotFoundError as error:
        absent = str(error.name).partition(".")[0]
        raise MissingExtra(
            f"`reactifact ui` needs {absent}, which is not installed: run {install_command('ui')}"
        ) from error
    find_models(models)
    bundle = bundle_at(store)
    if bundle is not None and allow_writes:
        raise click.UsageError("a bundle is only read: import it into a store to write")
    database = bundle or recovered(store, read_only=not allow_writes)
    try:
        token = Token() if allow_writes else None
        listener = listening(host, port)
        names = {*LOCAL_HOSTS, *hosts, f"[{host}]" if ":" in host else host}
        app = application(database, name=without_password(store), token=token, hosts=names)
        shown = f"[{host}]" if ":" in host else host
        entry = "" if token is None else f"?token={token.token}"
        line(f"http://{shown}:{listener.getsockname()[1]}/{entry}")
        run(app, listener)
    finally:
        database.backend.close()
