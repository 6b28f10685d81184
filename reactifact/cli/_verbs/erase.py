"""`reactifact erase`: artifacts, or their personal fields, out of all that a store keeps of a session."""

from __future__ import annotations

import sys

import anyio
import click

from ..._sessions.stores import open_database, sessions
from ..._store._backends.bundle import is_bundle
from ..._store.names import plain
from ..._store.object_db import Database
from ...erasure import Erasure
from ...errors import StoreError
from ...session import SessionStore
from .._shared.naming import complete_artifact, complete_session
from .._shared.terminal import progress
from ..common import counted, find_models, json_option, line, models_option, print_json, store_argument


@click.command(short_help="Remove artifacts from the whole history, for good.")
@store_argument
@click.argument("artifacts", metavar="ARTIFACT...", nargs=-1, required=True, shell_complete=complete_artifact)
@click.option(
    "--session", help="The session, by its id; default: the only one.", shell_complete=complete_session
)
@click.option("--by", "wish", metavar="WHO", required=True, help="By whose wish: it stands in the tombstone.")
@click.option("--reason", default="", help="Why: it stands in the tombstone, so say nothing of what goes.")
@click.option(
    "--fields", "fields_only", is_flag=True, help="Only the fields that the model marks as personal."
)
@click.option("--dry-run", is_flag=True, help="Say what would go, and change nothing.")
@click.option(
    "--wait", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Seconds for runners."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask: without a terminal this is needed.")
@models_option
@json_option
def erase(
    store: str,
    artifacts: tuple[str, ...],
    session: str | None,
    wish: str,
    reason: str,
    fields_only: bool,
    dry_run: bool,
    wait: float,
    yes: bool,
    models: tuple[str, ...],
    as_json: bool,
) -> None:
    """Remove ARTIFACTs, in all versions, from all that STORE keeps of a session and of its forks.

    Actions and questions that came from them, or name them, go too. Commits get other ids; Change-Ids,
    versions and the check of the history (`fsck`) stay. What moves of branches left behind goes as well, and
    nothing of it can be undone. What no branch reaches is then removed from the store at once. Backups,
    clones, bundles, recordings and what a server keeps of its own are yours: docs/erase.md.

    \b
    --json: {what, artifacts: [{id, token, type_id, versions, because, fields}], sessions, refs, dropped,
             commits, held, waiting, rests, is_dry_run}
    """
    if is_bundle(store):
        raise StoreError(
            f"{store} is a bundle, which is only read: erase from the store, and make a new bundle"
        )
    find_models(models)
    database = open_database(store, create=False)
    try:
        chosen = session or _only(database)

        async def work(is_dry: bool) -> Erasure:
            found = SessionStore(database)
            return await found.erase(
                chosen, *artifacts, by=wish, reason=reason, fields_only=fields_only, dry_run=is_dry, wait=wait
            )

        if dry_run:
            done = anyio.run(work, True)
        else:
            if not yes:
                if not sys.stdin.isatty():
                    raise click.UsageError("erasing is done only with --yes: there is nobody to ask")
                for text in _told(anyio.run(work, True)):
                    click.echo(plain(text), err=True)
                click.confirm("erase this for good?", abort=True, err=True)
            with progress("erasing"):
                done = anyio.run(work, False)
    finally:
        database.backend.close()
    if as_json:
        print_json(done.to_dict())
        return
    for text in _told(done):
        line(plain(text))


def _only(database: Database) -> str:
    found = sessions(database)
    if len(found) != 1:
        raise click.UsageError(
            f"the store holds {counted(len(found), 'session')}: say with --session which one is meant"
        )
    return found[0]


def _told(done: Erasure) -> list[str]:
    goes, went = ("would go", "would be made anew") if done.is_dry_run else ("went", "made anew")
    said = []
    for one in done.artifacts:
        what = f"fields {', '.join(one.fields)} of {one.id}" if one.fields else one.id
        cause = f", because of {one.because}" if one.because else ""
        kind = one.type_id.rpartition(".")[2]
        said.append(f"{what} ({kind}, {counted(one.versions, 'version')}){cause}: {goes}, now {one.token}")
    said.append(
        f"sessions {', '.join(done.sessions)}: {counted(done.commits, 'commit')} {went}, "
        f"{counted(len(done.refs), 'ref')} moved, {counted(len(done.dropped), 'ref')} dropped, "
        f"{counted(done.held, 'kept result')} and {counted(done.waiting, 'waiting event')} gone"
    )
    if done.rests:
        said.append(f"read it, and stay: {', '.join(done.rests)}; look whether they tell of it")
    return said
