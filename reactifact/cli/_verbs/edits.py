"""The verbs that change a store: making it, naming and merging branches, taking back, deleting, retrying.

What each does is the library's; a verb names the branch, asks where something is lost for good, and says
what was done. `branch` has more about the branches of one session.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import anyio
import click

from ..._sessions.stores import open_database
from ..._store._history.revset import Head, tags
from ..._store.branch import MAIN
from ..._store.names import plain
from ..._store.object_db import Database
from ...branching import BranchStore
from ...errors import UnknownRevision
from ...merging import MergeConflict, MergePreview
from ...operations import Relation
from ...session import SessionStore
from ...threads import in_thread
from .._shared.naming import Named, complete_artifact, complete_rev, is_store, named
from .._shared.terminal import progress
from ..common import (
    branch_options,
    counted,
    find_models,
    json_option,
    line,
    models_option,
    print_json,
    say_error,
    short,
    store_argument,
    to_stderr,
    without_password,
)

CONFLICT = 1

rev_argument = click.argument("rev", metavar="[REV]", required=False, shell_complete=complete_rev)


def _done(store: str, work: Callable[[Database], Awaitable[Any]]) -> Any:
    """Open a store that is there for writing, do some work on it, and give it back."""
    database = open_database(store, create=False)
    try:
        return anyio.run(work, database)
    finally:
        database.backend.close()


async def _branch(database: Database, rev: str | None, session: str | None, branch: str | None) -> Head:
    """Return the branch that the arguments mean. Raises `UnknownRevision` for what is not a branch."""
    found = await in_thread(named, database, rev, session, branch)
    if found.head is None or found.head.is_ledger:
        raise UnknownRevision(f"{rev!r} is a commit and not a branch: give SESSION or SESSION/BRANCH")
    return found.head


# -- a new store --


@click.command(short_help="Make an empty store.")
@click.argument("place", metavar="[TARGET]", default="state.git")
@json_option
def init(place: str, as_json: bool) -> None:
    """Make an empty store at TARGET: a bare repository, a SQLite file (.db), or tables behind a DSN.

    Without TARGET it is state.git here, which every verb finds from this folder and those below it. A
    store that is there already stays as it is.

    \b
    --json: {what, store, made}
    """
    was_there = is_store(place)
    backend = open_database(place).backend
    with backend.lock("init"):
        pass  # a store is made for whoever is the first to lock it, or to write
    backend.close()
    if as_json:
        print_json({"store": without_password(place), "made": not was_there})
    else:
        line(plain(f"{without_password(place)}: {'was there already' if was_there else 'made, empty'}"))


# -- names for commits and branches --


@click.command(short_help="Name a commit, or list the names.")
@store_argument
@rev_argument
@click.argument("name", metavar="[NAME]", required=False)
@branch_options
@json_option
def tag(
    store: str, rev: str | None, name: str | None, session: str | None, branch: str | None, as_json: bool
) -> None:
    """Give the commit REV the name NAME in its session, which never moves; without arguments list all.

    \b
    --json: {what, tags: [{session, name, commit}]}
    """
    if rev is not None and name is None:
        rev, name = None, rev

    async def work(database: Database) -> list[Any]:
        if name is None:
            return await in_thread(tags, database, session)
        found = await in_thread(named, database, rev, session, branch)
        owner = session if found.head is None else found.head.session
        text = found.commit if found.head is None else found.head.branch
        made = await BranchStore(database).tag(text, name, session=owner)
        return [made]

    found = _done(store, work)
    if as_json:
        print_json({"tags": [one._asdict() for one in found]})
    else:
        for one in found:
            line(plain(f"{one.session}/{one.name} {short(one.commit)}"))


@click.command(short_help="Begin a branch on a commit.")
@store_argument
@rev_argument
@click.argument("name", metavar="NAME", required=False)
@branch_options
@json_option
def fork(
    store: str, rev: str | None, name: str | None, session: str | None, branch: str | None, as_json: bool
) -> None:
    """Begin the branch NAME on REV, in the same session: it costs one ref and takes the queue along.

    \b
    --json: {what, session, branch, commit}
    """
    if name is None:
        rev, name = None, rev
    if name is None:
        raise click.UsageError("fork needs the name of the new branch: fork [REV] NAME")
    new = name

    async def work(database: Database) -> Head:
        found = await in_thread(named, database, rev, session, branch)
        store_of = BranchStore(database)
        if found.head is not None:
            return await store_of.fork(found.head.branch, new, session=found.head.session)
        owner = session or (await in_thread(found.branch, database)).session
        return await store_of.fork(found.commit, new.removeprefix(f"{owner}/"), session=owner)

    made = _done(store, work)
    if as_json:
        print_json({"session": made.session, "branch": made.branch, "commit": made.commit})
    else:
        line(plain(f"{made.name} begins at {short(made.commit)}"))


# -- merging --


@click.command(short_help="Merge one branch into another.")
@store_argument
@rev_argument
@click.argument("source", metavar="SOURCE", required=False, shell_complete=complete_rev)
@branch_options
@click.option(
    "--policy",
    type=click.Choice(["ours", "theirs"]),
    help="Whose side counts in a conflict.",
)
@click.option("--preview", is_flag=True, help="Show what the merge would do, and write nothing.")
@click.option("-m", "--message", help="The message of the commit.")
@models_option
@json_option
@click.pass_context
def merge(
    click_context: click.Context,
    store: str,
    rev: str | None,
    source: str | None,
    session: str | None,
    branch: str | None,
    policy: Any,
    preview: bool,
    message: str | None,
    models: tuple[str, ...],
    as_json: bool,
) -> None:
    """Merge SOURCE into the branch REV and write it: three-way, by artifact, all or nothing.

    SOURCE is a branch, a tag or a commit; with one argument it is merged into main of its session. Nothing
    is sent to the outside world. Merge functions are known only of the modules that --models names. Exit
    code 1 for a conflict, each on a line, and nothing is written.

    \b
    --json: {what, into, commit: null or an id, version, preview: null or
      {adopted, combined, deleted, linked, unlinked, conflicts},
      conflicts: [text]}
    commit is null where there was nothing to take over, for --preview and in
    a conflict; into is null in a conflict.
    """
    find_models(models)
    if source is None:
        rev, source = None, rev
    if source is None:
        raise click.UsageError("merge needs the branch that is taken over: merge [REV] SOURCE")
    other = source

    async def work(database: Database) -> dict[str, Any]:
        branches = BranchStore(database)
        into = None if rev is None else await _branch(database, rev, session, branch)
        taken = await in_thread(_source, database, other, session if into is None else into.session)
        owner = (await in_thread(taken.branch, database)).session
        into = into or await _branch(database, None, session or owner, branch)
        words = taken.commit if taken.head is None else taken.head.name
        target, origin, scope = into.name, words, None
        if into.session == owner:  # by their own names: a session's id may contain slashes
            target, origin, scope = into.branch, taken.commit, owner
            origin = taken.commit if taken.head is None else taken.head.branch
        if preview:
            found = await branches.preview(target, origin, session=scope, policy=policy)
            return {"into": into.name, "commit": None, "version": None, "preview": found}
        said = message or f"Merge {words} into {into.name}"
        done = await branches.merge(target, origin, session=scope, message=said, policy=policy)
        record = None if done is None else done.record
        return {
            "into": into.name,
            "commit": None if done is None else done.commit,
            "version": None if record is None else record.context_version,
            "preview": None,
        }

    try:
        done = _done(store, work)
    except MergeConflict as error:
        if as_json:
            nothing = dict.fromkeys(("into", "commit", "version", "preview"))
            print_json({**nothing, "conflicts": error.conflicts})
        say_error(error)
        to_stderr("With this verb: --policy ours or theirs, or merge functions by --models")
        click_context.exit(CONFLICT)
    found: MergePreview | None = done.pop("preview")
    if as_json:
        previewed = None if found is None else _preview(found)
        print_json({**done, "preview": previewed, "conflicts": []})
    elif found is not None:
        for text in str(found).splitlines():
            line(text)
    elif done["commit"] is None:
        line(plain(f"{other} holds nothing that {done['into']} does not: nothing was merged"))
    else:
        line(plain(f"merged {other} into {done['into']} (v{done['version']}, {short(done['commit'])})"))


def _source(database: Database, text: str, session: str | None) -> Named:
    """Return what is merged: a name of the whole store, else one of the session that takes it over."""
    try:
        return named(database, text, None, None)
    except UnknownRevision:
        if session is None:
            raise
        return named(database, text, session, None)


def _preview(found: MergePreview) -> dict[str, list[str]]:
    names = ("adopted", "combined", "deleted", "conflicts")
    links = {name: [" ".join(one) for one in _ends(getattr(found, name))] for name in ("linked", "unlinked")}
    return {**{name: list(getattr(found, name)) for name in names}, **links}


def _ends(relations: Iterable[Relation]) -> list[tuple[str, str, str]]:
    return [(one.source_id, one.relation, one.target_id) for one in relations]


# -- taking back --


def _back(verb: str, said: str) -> click.Command:
    @click.command(verb, short_help=said)
    @store_argument
    @rev_argument
    @branch_options
    @json_option
    def command(store: str, rev: str | None, session: str | None, branch: str | None, as_json: bool) -> None:
        async def work(database: Database) -> tuple[Head, str]:
            head = await _branch(database, rev, session, branch)
            branches = BranchStore(database)
            return head, await getattr(branches, verb)(head.session, head.branch)

        head, done = _done(store, work)
        if as_json:
            print_json({"session": head.session, "branch": head.branch, "done": done})
        else:
            line(plain(f"{head.name}: {'undone' if verb == 'undo' else 'done again'}: {done}"))

    command.help = (
        f"{said}\n\nREV is a branch. What was delivered stays delivered: only the state moves. Undos go back "
        f"one after another, and redo takes back the last one.\n\n"
        f"\b\n--json: {{what, session, branch, done}}"
    )
    return command


undo = _back("undo", "Take back what was done last to a branch.")
redo = _back("redo", "Take back the last undo of a branch.")


@click.command(short_help="Take back one generation by a new commit.")
@store_argument
@click.argument("rev", metavar="REV", shell_complete=complete_rev)
@click.option("--into", metavar="SESSION/BRANCH", help="The branch that is written; default: that of REV.")
@click.option("-m", "--message", help="The message of the commit.")
@branch_options
@json_option
@click.pass_context
def revert(
    click_context: click.Context,
    store: str,
    rev: str,
    into: str | None,
    message: str | None,
    session: str | None,
    branch: str | None,
    as_json: bool,
) -> None:
    """Take back the generation, edit or merge that REV is of, and keep what came after it.

    What it wrote gets its earlier content as a new version. What was delivered stays delivered. Exit code 1
    where something it wrote was changed since; nothing is written then.

    \b
    --json: {what, session, branch, commit: null or an id, subject}
    """

    async def work(database: Database) -> tuple[Head, Any]:
        found = await in_thread(named, database, rev, session, branch)
        state = await in_thread(found.branch, database)
        target = Head(state.session, state.branch, found.commit, False)
        if into is not None:
            target = await _branch(database, into, None, None)
        done = await BranchStore(database).revert(
            target.branch, found.commit, session=target.session, message=message
        )
        return target, done

    try:
        target, done = _done(store, work)
    except MergeConflict as error:
        say_error(error)
        click_context.exit(CONFLICT)
    if as_json:
        names = {"session": target.session, "branch": target.branch}
        found = {"commit": None, "subject": None}
        print_json({**names, **(found if done is None else {"commit": done.commit, "subject": done.subject})})
    elif done is None:
        line(plain(f"nothing is left of {rev} on {target.name}: nothing was reverted"))
    else:
        line(plain(f"{target.name}: {done.subject} ({short(done.commit)})"))


# -- removing, folding --


@click.command(short_help="Delete an artifact, a branch or a session.")
@store_argument
@click.argument("rev", metavar="REV", shell_complete=complete_rev)
@click.argument("artifact", metavar="[ARTIFACT]", required=False, shell_complete=complete_artifact)
@click.option("-y", "--yes", is_flag=True, help="Do not ask: without a terminal this is needed.")
@json_option
def delete(store: str, rev: str, artifact: str | None, yes: bool, as_json: bool) -> None:
    """Delete ARTIFACT of the branch REV by a commit; without ARTIFACT the branch, or the session REV.

    The commit of an artifact can be undone. A branch that is deleted is gone with what only it held, a
    session with its branches, tags and ledger; their objects stay in the store until it is pruned.

    \b
    --json: {what, session, branch: null or a name, artifact: null or an id}
    """

    async def find(database: Database) -> tuple[Head, bool]:
        head = await _branch(database, rev, None, None)
        return head, rev == head.session and artifact is None

    database = open_database(store, create=False)
    try:
        head, is_session = anyio.run(find, database)
        thing = f"session {head.session}" if is_session else f"branch {head.name}"
        if artifact is not None:
            thing = f"artifact {artifact} of {head.name}"
        if not yes:
            if not sys.stdin.isatty():
                raise click.UsageError(f"{thing} is deleted only with --yes: there is nobody to ask")
            click.confirm(f"delete {plain(thing)}?", abort=True, err=True)

        async def work() -> None:
            if artifact is not None:
                await _delete_artifact(database, head, artifact)
            elif is_session:
                await SessionStore(database).delete_session(head.session)
            else:
                await BranchStore(database).delete_branch(head.session, head.branch)

        anyio.run(work)
    finally:
        database.backend.close()
    if as_json:
        gone = {"branch": None if is_session else head.branch, "artifact": artifact}
        print_json({"session": head.session, **gone})
    else:
        line(plain(f"deleted {thing}"))


async def _delete_artifact(database: Database, head: Head, artifact: str) -> None:
    message = f"Delete {artifact}"
    async with BranchStore(database).edit(head.session, head.branch, message=message) as context:
        if not context.delete(artifact):
            raise UnknownRevision(f"{head.name} holds no artifact {artifact!r}: nothing was deleted")


@click.command(short_help="Fold old commits of a session into one.")
@store_argument
@rev_argument
@click.option("--keep", type=click.IntRange(min=0), default=50, show_default=True, help="Versions that stay.")
@click.option(
    "--keep-versions", type=click.IntRange(min=0), help="Earlier versions of an artifact that stay."
)
@click.option("--session", help="The session, by its id alone.")
@json_option
def compact(
    store: str,
    rev: str | None,
    keep: int,
    keep_versions: int | None,
    session: str | None,
    as_json: bool,
) -> None:
    """Fold all but the last versions of each branch of a session into a baseline. The state stays.

    Branches still merge three-way, and version numbers stay; what was folded cannot be shown any more. It
    can be undone until the store is pruned.

    \b
    --json: {what, session, branch, folded, version}
    """

    async def work(database: Database) -> dict[str, Any]:
        head = await _branch(database, rev, session, None)
        with progress("compacting", "commits") as told:
            if head.branch == MAIN:
                opened = await SessionStore(database).open(head.session)
                folded = opened.context.compact(keep_commits=keep, keep_versions=keep_versions, progress=told)
                await opened.save()
                context = opened.context
            else:
                branches = BranchStore(database)
                found = await branches.load_branch(head.session, head.branch)
                if found is None:
                    raise UnknownRevision(f"{head.name} was deleted just now")
                context = found
                folded = context.compact(keep_commits=keep, keep_versions=keep_versions, progress=told)
                await branches.save_branch(context, session_id=head.session, name=head.branch)
        return {
            "session": head.session,
            "branch": head.branch,
            "folded": folded,
            "version": context.version,
        }

    done = _done(store, work)
    if as_json:
        print_json(done)
    else:
        place = f"{done['session']}/{done['branch']}"
        line(plain(f"{place}: {counted(done['folded'], 'version')} folded, stands at v{done['version']}"))
