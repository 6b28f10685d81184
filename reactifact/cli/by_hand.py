"""`reactifact reject`, `hooks`, `git-setup`: commits made with git, in a store and in a clone."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from .._sessions.by_hand import PushedObjects, refused_push
from .._sessions.by_hand import reject as reject_tip
from .._sessions.clones import as_lines, install_hook, merge_files, readable, set_up_clone
from .._store._backends.git.backend import GitBackend
from .._store._history.adoption.text import Refused
from .._store.names import plain, plain_lines
from .._store.object_db import Database
from ._shared.naming import Verbs
from .common import (
    backend_option,
    chosen_head,
    find_models,
    json_option,
    line,
    models_option,
    print_json,
    stored_at,
    to_stderr,
)

NOT_DONE = 1


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
        click_context.exit(NOT_DONE)


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
        click_context.exit(NOT_DONE)
    Path(ours).write_bytes(merged)
    for field in conflicts:
        to_stderr(plain(f"{name}: {field or 'the whole value'} was changed on both sides"))
    if conflicts:
        click_context.exit(NOT_DONE)


@click.command("git-text", hidden=True)
@click.argument("path")
def git_text(path: str) -> None:
    """Print a payload for git to compare, as git calls a textconv program."""
    click.echo(as_lines(Path(path).read_bytes()), nl=False)
