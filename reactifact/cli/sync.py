"""`reactifact sync`, and `reject`, `hooks`, `git-setup`: other stores, clones, and commits made with git."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio
import click

from .._sessions.by_hand import PushedObjects, refused_push
from .._sessions.by_hand import reject as reject_tip
from .._sessions.clones import as_lines, install_hook, merge_files, readable, set_up_clone
from .._sessions.stores import open_database
from .._sessions.sync import SyncOptions, SyncReport
from .._sessions.sync import sync as synced
from .._store._backends.git.backend import GitBackend
from .._store._history.adoption.text import Refused
from .._store.names import plain, plain_lines
from .._store.object_db import Database
from ..errors import told
from ._shared.naming import Verbs
from .common import (
    UNREADABLE,
    backend_option,
    chosen_head,
    find_models,
    json_option,
    line,
    models_option,
    one_line,
    print_json,
    store_argument,
    stored_at,
    to_stderr,
)

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


# -- `reactifact reject`, `hooks`, `git-setup`: commits made with git, in a store and in a clone --


@click.command(short_help="Set a commit made with git aside and go back.")
@click.argument("path", metavar="[STORE]")
@click.argument("name", metavar="SESSION[/BRANCH]")
@backend_option
@json_option
def reject(path: str, name: str, backend: str, as_json: bool) -> None:
    """Set aside what somebody made with git, and move the branch back to the last good commit.

    What is set aside is kept under refs/reactifact/rejected/, and the move is in the operation log. Exit code
    2, and nothing is moved, where the branch stands on a commit that reactifact made.

    \b
    --json: {what, session, branch, commit, kept, back_to}
    """
    with stored_at(path, backend, read_only=False) as database:
        head = chosen_head(database, name, None, None)
        done = reject_tip(database, head.session, head.branch, datetime.now(UTC))
    if as_json:
        names = {"session": head.session, "branch": head.branch}
        print_json({**names, "commit": done.commit, "kept": done.kept, "back_to": done.back_to})
        return
    line(plain(f"{head.name}: {done.commit[:12]} is kept as {done.kept}, back at {done.back_to[:12]}"))


@click.group(cls=Verbs, short_help="Let git refuse a push that is not a state.")
def hooks() -> None:
    """Install and run the hook of a bare repository that looks at what is pushed to it."""


@hooks.command("install")
@click.argument("path", metavar="[STORE]")
@models_option
@json_option
def install(path: str, models: tuple[str, ...], as_json: bool) -> None:
    """Put a pre-receive hook into STORE. It refuses a push in the words in which opening would refuse it.

    Types that --models does not name are checked for their form alone.

    \b
    --json: {what, hook}
    """
    hook = install_hook(path, models)
    if as_json:
        print_json({"hook": str(hook)})
    else:
        line(plain(f"installed {hook}"))


@hooks.command("check")
@click.argument("path", metavar="[STORE]")
@models_option
@click.pass_context
def check(click_context: click.Context, path: str, models: tuple[str, ...]) -> None:
    """Check the moves of refs on standard input, as git hands them to pre-receive; 1: one is refused."""
    find_models(models)
    moves = []
    for text in sys.stdin.read().splitlines():
        old, new, ref = text.split(" ", 2)
        moves.append((old, new, ref))
    backend = PushedObjects(GitBackend(path, read_only=True), path)
    try:
        refused = refused_push(Database(backend), moves)
    finally:
        backend.close()
    for reason in refused:
        to_stderr(plain_lines(reason))
    if refused:
        click_context.exit(CONFLICT)


@click.command("git-setup", short_help="Let git merge and compare by field in a clone.")
@click.argument("folder", metavar="CLONE", default=".")
@models_option
@json_option
def git_setup(folder: str, models: tuple[str, ...], as_json: bool) -> None:
    """Set up CLONE (by default this folder) so that git merges and compares our files by field.

    It writes the merge driver and the diff driver into the clone's own settings. Of modules that --models
    names the merge functions are used; other types are merged field by field.

    \b
    --json: {what, clone}
    """
    set_up_clone(folder, models)
    if as_json:
        print_json({"clone": folder})
        return
    line(plain(f"{folder}: git merges and compares artifacts and relations by field now"))


@click.command("git-merge", hidden=True)
@click.argument("base")
@click.argument("ours")
@click.argument("theirs")
@click.argument("name")
@models_option
@click.pass_context
def git_merge(
    click_context: click.Context, base: str, ours: str, theirs: str, name: str, models: tuple[str, ...]
) -> None:
    """Merge THEIRS into OURS, as git calls a merge driver; 1: a conflict is left."""
    find_models(models)
    files = (Path(base).read_bytes(), Path(ours).read_bytes(), Path(theirs).read_bytes())
    try:
        merged, conflicts = merge_files(*files, name)
    except Refused as error:
        to_stderr(plain(f"{name}: {readable(error)}"))
        click_context.exit(CONFLICT)
    Path(ours).write_bytes(merged)
    for field in conflicts:
        to_stderr(plain(f"{name}: {field or 'the whole value'} was changed on both sides"))
    if conflicts:
        click_context.exit(CONFLICT)


@click.command("git-text", hidden=True)
@click.argument("path")
def git_text(path: str) -> None:
    """Print a payload for git to compare, as git calls a textconv program."""
    click.echo(as_lines(Path(path).read_bytes()), nl=False)
