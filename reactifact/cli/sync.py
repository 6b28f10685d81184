"""`reactifact sync`: a store and another one brought together over git, and who delivers meanwhile."""

from __future__ import annotations

from functools import partial

import anyio
import click

from .._sessions.stores import open_database
from .._sessions.sync import SyncOptions, SyncReport
from .._sessions.sync import sync as synced
from .._store.names import plain
from ..errors import told
from .common import UNREADABLE, json_option, line, one_line, print_json, store_argument, to_stderr

CONFLICT = 1
_LEASE = 3600.0


@click.command(short_help="Bring a store and another one together over git.")
@store_argument
@click.argument("remote", metavar="[REMOTE]", required=False)
@click.option("--session", "sessions", multiple=True, help="Only this session, by its id (several times).")
@click.option("--lease", "leased", is_flag=True, help="Take the lease of the sessions, or renew it.")
@click.option(
    "--for", "seconds", metavar="SECONDS", type=click.FloatRange(min=1), help="How long; default: 3600."
)
@click.option("--release", is_flag=True, help="Give the lease back.")
@click.option("--name", default="", help="Who has the lease, for people; default: the path of the store.")
@json_option
def sync(
    store: str,
    remote: str | None,
    sessions: tuple[str, ...],
    leased: bool,
    seconds: float | None,
    release: bool,
    name: str,
    as_json: bool,
) -> None:
    """Bring STORE and REMOTE together: fetch, merge here, push what nobody moved meanwhile.

    REMOTE is a remote that git knows in the store (default: origin), an address or a path; git reaches it as
    it does anywhere, with its own credentials. Branches, tags, what was delivered and what was deleted
    travel. Where both sides changed one thing, the conflict is named, a line for each field, and the branches
    of that session stay as they are on both sides: merge with `reactifact branch STORE SESSION merge`, or
    BranchStore.merge(policy=), then sync again.

    While stores are apart each delivers what it plans and has not heard of as sent. With --lease this one
    alone delivers the sessions, for --for seconds: others that synced refuse to.

    \b
    Exit codes: 0 all came together, 1 a conflict is left, 2 something else
    --json: {what, remote, attempts, made, forwarded, merged, heard, erased, pushed,
      deleted, conflicts: [{session, branch, theirs, details}],
      failed: [{session, branch, error}], leases: {session: end}}
    """
    if (leased and release) or (seconds is not None and not leased):
        raise click.UsageError("give --lease (with --for SECONDS, if wanted) or --release")
    lease = 0.0 if release else (seconds or _LEASE) if leased else None
    options = SyncOptions(sessions=list(sessions) or None, lease=lease, name=name, may_ask=True)
    database = open_database(store, create=False)
    try:
        report = anyio.run(partial(synced, database, remote, options))
    finally:
        database.backend.close()
    if as_json:
        print_json(report.to_dict())
    else:
        _print(report)
    for conflict in report.conflicts:
        to_stderr(f"reactifact: {plain(conflict.session)}/{plain(conflict.branch)} is in conflict:")
        for text in conflict.text.split("\n"):
            to_stderr(f"  {plain(text)}")
    for session, branch, error in report.failed:
        place = f"{session}/{branch}" if branch else session
        to_stderr(f"reactifact: {plain(place)} did not come together: {one_line(told(error))}")
    if not report.ok:
        click.get_current_context().exit(UNREADABLE if report.failed else CONFLICT)


def _print(report: SyncReport) -> None:
    for verb, names in (("new", report.made), ("forward", report.forwarded), ("merged", report.merged)):
        for session, branch in names:
            line(f"{verb:8} {plain(session)}/{plain(branch)}")
    for session, branch in report.deleted:
        line(f"{'deleted':8} {plain(session)}/{plain(branch)}")
    for session in report.heard:
        line(f"{'heard':8} of deliveries of {plain(session)}")
    for ref in report.pushed:
        line(f"{'pushed':8} {plain(ref)}")
    for session, end in sorted(report.leases.items()):
        line(f"{'lease':8} {plain(session)} until {end.isoformat(timespec='seconds')}")
    moved = report.made or report.forwarded or report.merged or report.deleted or report.pushed
    done = moved or report.heard or report.leases
    if not done and report.ok:
        line(f"nothing new here and in {plain(report.remote)}")
