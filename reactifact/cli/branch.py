"""`reactifact branch`: list, save, rename and merge the branches of a session, undo, redo and revert.

Of all verbs it is the one that writes. What a merge is, and when a save is refused, is the store's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import click

from .._context.context import Context
from .._store._history.revset import Head, find_head, readable_heads
from .._store.branch import MAIN
from .._store.commits import read_record
from .._store.names import plain
from .._store.object_db import Database
from ..branching import BranchStore
from ..errors import ReactifactError, StoreError
from ..threads import in_thread
from ._shared.naming import complete_session
from .common import (
    backend_option,
    find_models,
    json_option,
    line,
    models_option,
    print_json,
    say_error,
    stored_at,
)

NOT_DONE = 1
VERBS = ("list", "save", "rename", "merge", "undo", "redo", "revert")

Work = Callable[[BranchStore], Awaitable[list[str]]]
"""Does it, and returns what is printed for people."""


class MissingBranch(StoreError, LookupError):
    """A branch that a verb names is not in the store; nothing was written."""


@click.command(short_help="List, save, rename, merge branches; undo, redo, revert.")
@click.argument("path", metavar="[STORE]")
@click.argument("session", metavar="SESSION", shell_complete=complete_session)
@click.argument("verb", type=click.Choice(VERBS), metavar="|".join(VERBS))
@click.argument("name", required=False)
@click.option("--into", help="merge, revert: the branch that is written; default: main.")
@click.option("--source", help="merge: the branch that is taken over; NAME does the same.")
@click.option(
    "--as",
    "saved_as",
    metavar="NAME",
    help="merge: save the result as this branch, not as --into; rename: the new name.",
)
@backend_option
@models_option
@json_option
@click.pass_context
def branch(
    click_context: click.Context,
    path: str,
    session: str,
    verb: str,
    name: str | None,
    into: str | None,
    source: str | None,
    saved_as: str | None,
    backend: str,
    models: tuple[str, ...],
    as_json: bool,
) -> None:
    """List the branches of SESSION, save its state as NAME, merge two of them, take back what was done.

    \b
    branch STORE SESSION list                      the branches beside main
    branch STORE SESSION save NAME                 main as it is now, as NAME
    branch STORE SESSION rename NAME --as NEW      NAME is called NEW from now on
    branch STORE SESSION merge NAME                NAME into main
    branch STORE SESSION merge A --into B --as C   A into a copy of B named C
    branch STORE SESSION undo [NAME]               what was done last to main, or NAME
    branch STORE SESSION redo [NAME]               take back the last undo
    branch STORE SESSION revert COMMIT             the generation of COMMIT, by a commit on top of main

    A merge is three-way, by artifact, all or nothing; nothing is sent to the outside world. Types are
    compared as stored, and merge functions are known only of the modules that --models names. Exit
    code 1, and nothing is written, for a store, session or branch that is not there and for a
    conflict.

    \b
    --json: {what, session, verb, branches, branch, commit, version, changed}
    branches: those beside main, afterwards; branch: the one that is written,
    null for list; commit, version: what it stands on; changed: whether it moved.
    """
    find_models(models)
    work = _work(verb, session, name, into, source, saved_as)
    target = _target(verb, name, into, saved_as)
    try:
        with stored_at(path, backend, read_only=verb == "list") as database:
            before = _stands(database, session, target)
            report = anyio.run(work, BranchStore(database))
            document = anyio.run(_described, BranchStore(database), session, target, before)
    except ReactifactError as error:
        say_error(error)
        click_context.exit(NOT_DONE)
    if as_json:
        print_json({"verb": verb, **document})
        return
    for text in report:
        line(text)


def _target(verb: str, name: str | None, into: str | None, saved_as: str | None) -> str | None:
    """Return the branch that a verb writes."""
    if verb == "list":
        return None
    if verb in ("merge", "revert"):
        return saved_as or into or MAIN
    return (saved_as if verb == "rename" else name) or MAIN


def _stands(database: Database, session: str, branch: str | None) -> Head | None:
    """Return where a branch stands, `None` for one that is not there."""
    heads, _ = readable_heads(database, session)
    return next((head for head in heads if not head.is_ledger and head.branch == branch), None)


async def _described(
    store: BranchStore, session: str, branch: str | None, before: Head | None
) -> dict[str, Any]:
    branches = await store.list_branches(session)
    head = await in_thread(_stands, store.database, session, branch)
    record = None if head is None else await in_thread(read_record, store.database, head.commit)
    return {
        "session": session,
        "branches": branches,
        "branch": branch,
        "commit": None if head is None else head.commit,
        "version": None if record is None else record.version,
        "changed": head != before,
    }


def _work(
    verb: str, session: str, name: str | None, into: str | None, source: str | None, saved_as: str | None
) -> Work:
    """Return what a verb does. Raises `UsageError` for arguments that do not go together."""
    wrong = {
        "--into": into and verb not in ("merge", "revert"),
        "--source": source and verb != "merge",
        "--as": saved_as and verb not in ("merge", "rename"),
    }
    if any(wrong.values()):
        names = " and ".join(option for option, is_wrong in wrong.items() if is_wrong)
        raise click.UsageError(f"{names}: not an option of {verb}")
    if verb == "rename":
        if not name or not saved_as:
            raise click.UsageError("rename needs both names: branch STORE SESSION rename NAME --as NEW")
        return partial(_rename, session=session, name=name, new=saved_as)
    if verb == "revert":
        if not name:
            raise click.UsageError("revert needs a commit: branch STORE SESSION revert COMMIT")
        return partial(_revert, session=session, revision=name, into=into or MAIN)
    if verb == "list":
        if name is not None:
            raise click.UsageError(f"list takes no name, and was given {name!r}")
        return partial(_list, session=session)
    if verb in ("undo", "redo"):
        return partial(_back, session=session, name=name or MAIN, verb=verb)
    if verb == "save":
        if not name:
            raise click.UsageError("save needs the name of the branch: branch STORE SESSION save NAME")
        if name == MAIN:
            raise click.UsageError(f"{MAIN} is the session's own line: give the branch another name")
        return partial(_save, session=session, name=name)
    if name is not None and source is not None:
        raise click.UsageError(f"give the branch that is taken over once: as {name!r}, or with --source")
    taken = source or name
    if not taken:
        raise click.UsageError("merge needs the branch that is taken over: --source NAME")
    if taken == (into or MAIN):
        raise click.UsageError(f"{taken} cannot be merged into itself: name two branches")
    return partial(_merge, session=session, into=into or MAIN, source=taken, saved_as=saved_as)


async def _list(store: BranchStore, *, session: str) -> list[str]:
    if not await store.branches(session):
        await in_thread(find_head, store.database, session)  # it raises, and says what there is instead
    return [plain(name) for name in await store.list_branches(session)] or ["no branches"]


async def _back(store: BranchStore, *, session: str, name: str, verb: str) -> list[str]:
    done = await (store.undo if verb == "undo" else store.redo)(session, name)
    return [f"{'undone' if verb == 'undo' else 'done again'}: {plain(done)}"]


async def _rename(store: BranchStore, *, session: str, name: str, new: str) -> list[str]:
    await store.rename(name, new, session=session)
    return [f"renamed branch {plain(name)} of session {plain(session)} to {plain(new)}"]


async def _revert(store: BranchStore, *, session: str, revision: str, into: str) -> list[str]:
    done = await store.revert(into, revision, session=session)
    if done is None:
        return [f"nothing is left of {plain(revision)} on {plain(into)}: nothing was reverted"]
    return [f"{plain(done.subject)} (v{done.record.version if done.record else 0})"]


async def _save(store: BranchStore, *, session: str, name: str) -> list[str]:
    context = await store.load_branch(session, MAIN)
    if context is None:
        head = await in_thread(find_head, store.database, session)
        raise MissingBranch(
            f"session {session!r} has no line of its own to save, only branches such as {head.branch!r}"
        )
    await store.save_branch(context.branch(name=name), session_id=session, name=name)
    return [f"saved branch {plain(name)} of session {plain(session)} at version {context.version}"]


async def _merge(
    store: BranchStore, *, session: str, into: str, source: str, saved_as: str | None
) -> list[str]:
    target = await _loaded(store, session, into)
    other = await _loaded(store, session, source)
    options: dict[str, Any] = {"message": f"Merge {source} into {saved_as or into}"}
    if saved_as is not None and saved_as != into:
        target = target.branch(name=saved_as)
    before = target.version
    target.merge(other, **options)
    await store.save_branch(target, session_id=session, name=saved_as or into)
    if target.version == before:
        saved = f"; saved {plain(into)} as {plain(saved_as)}" if saved_as and saved_as != into else ""
        return [f"{plain(source)} holds nothing that {plain(into)} does not: nothing was merged{saved}"]
    return [
        f"merged {plain(source)} into {plain(into)}, saved as {plain(saved_as or into)} (v{target.version})"
    ]


async def _loaded(store: BranchStore, session: str, name: str) -> Context:
    found = await store.load_branch(session, name)
    if found is None:
        known = ", ".join(map(plain, await store.list_branches(session))) or "none"
        raise MissingBranch(f"missing branch {name!r} of session {session!r}; branches beside main: {known}")
    return found
