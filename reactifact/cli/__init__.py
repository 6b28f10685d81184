"""The command line: reading a store, for people and for scripts.

Owns the program `reactifact`: its verbs, its exit codes, the environment it reads. Only `relay`, `retry`,
`branch`, `answer`, `reject`, `hooks`, `export`, `import`, `prune` and `sync` change a store. What is shown is
collected by the layers below; a verb chooses and prints.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

import click
from click.shell_completion import shell_complete

from ..errors import ReactifactError
from ..types.importer import importing_nothing
from ._shared.naming import STORE_VARIABLE, Verbs
from ._verbs.edits import compact, delete, fork, init, merge, redo, revert, tag, undo
from ._verbs.erase import erase
from ._verbs.history import bisect, blame, history
from .audit import audit, verify
from .branch import branch
from .common import say_error, to_stderr
from .diagrams import context, graph
from .log import diff, log
from .questions import answer, questions
from .relay import relay, retry, run
from .replay import fsck, replay
from .sessions import outbox, sessions
from .show import show
from .sync import git_merge, git_setup, git_text, hooks, reject, sync
from .transfer import bundle, export, import_, prune
from .ui import ui

PROGRAM = "reactifact"
_COMPLETE = "_REACTIFACT_COMPLETE"
FAILED = 2
_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
_BROKEN_PIPE = 141  # 128 + SIGPIPE: what a C program ends with when its reader leaves


def _version() -> str:
    try:
        return version(PROGRAM)
    except PackageNotFoundError:
        return "(not installed, no version)"  # run from a source folder on the path


@click.group(cls=Verbs, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), "-V", "--version", prog_name=PROGRAM)
@click.option("-C", "--store", metavar="STORE", help="The store that the verb is about.")
@click.pass_context
def cli(click_context: click.Context, store: str | None) -> None:
    """Read the state of agents from a store, and change it where a verb says so.

    \b
      reactifact VERB [REV] [ARTIFACT]

    The store is named by -C or --store, by the first argument, by REACTIFACT_STORE, or found from the
    current folder upward: a folder that is a store, or its state.git. REV is SESSION, SESSION/BRANCH, a
    tag, SESSION/BRANCH@vN, vN, a commit id or a Change-Id (four digits are enough), HEAD, and ~N or ^N
    after any of these; default: the session written last.

    A STORE is the path of a bare git repository, the path of a SQLite file (.db, .sqlite, .sqlite3), or
    the postgresql:// DSN of a PostgreSQL database; where it is only read, also a bundle, the file that
    `bundle` or `export` made. The classes of the artifacts are not needed, and no module that a store
    names is imported: only what --models, --check, --dispatcher, `graph` and `run` are told.

    \b
    Exit codes:
      0  done, and what was checked matches
      1  something does not match, is in conflict, or (graph, context,
         branch, replay, audit) is not there; docs/cli.md says which verb
      2  wrong arguments, or a store, session or commit that is not there
         or cannot be read

    Errors are one line on stderr, a merge conflict has one for each field; wrong arguments come with a
    line of usage. `sessions`, `outbox` and `log --all` go on past a branch that cannot be read, and name
    it on stderr. Colour and a pager are used on a terminal only, colour not at all where NO_COLOR is set.
    """
    if click_context.invoked_subcommand is None:
        verbs = " | ".join(cli.commands)
        click.echo(f"{PROGRAM} {_version()}: agents whose state is a git repository")
        click.echo(f"verbs: {verbs}; start with `{PROGRAM} sessions STORE`\n")
        click.echo(click_context.get_help())


for verb in (
    blame,
    fsck,
    history,
    bisect,
    init,
    tag,
    fork,
    merge,
    undo,
    redo,
    revert,
    delete,
    erase,
    compact,
    run,
):
    cli.add_command(verb)
for verb in (
    *(log, show, diff, sessions, outbox, questions, answer, context, graph),
    *(relay, retry, branch, replay, audit, verify, bundle, export, import_, prune, sync),
    *(reject, hooks, git_setup, git_merge, git_text),
):
    cli.add_command(verb)
cli.add_command(ui)  # writes with --allow-writes alone


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line on `argv` (default: the process's arguments); return the exit code.

    Where a shell asks for completions (`_REACTIFACT_COMPLETE`, as click defines it), they are printed.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    try:
        asked = os.environ.get(_COMPLETE)
        with importing_nothing():
            return shell_complete(cli, {}, PROGRAM, _COMPLETE, asked) if asked else _run(arguments)
    except BrokenPipeError:
        _drop_output()
        return _BROKEN_PIPE
    except OSError as error:
        if error.errno == errno.EPIPE:
            _drop_output()
            return _BROKEN_PIPE
        say_error(error)
        return FAILED


def git_main() -> int:
    """Run as `git reactifact ...`: the store is the repository that git is pointed at."""
    if not os.environ.get(STORE_VARIABLE) and os.environ.get("GIT_DIR"):
        os.environ[STORE_VARIABLE] = os.environ["GIT_DIR"]
    return main()


def _run(arguments: list[str]) -> int:
    colour = False if os.environ.get("NO_COLOR") else None  # None: on a terminal
    try:
        with cli.make_context(PROGRAM, arguments, color=colour) as click_context:
            cli.invoke(click_context)
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        sys.stdout.flush()
        return end.exit_code
    except click.ClickException as error:
        said = io.StringIO()
        error.show(said)  # it repeats the arguments as they were given
        to_stderr(said.getvalue().rstrip("\n"))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except (ReactifactError, ImportError) as error:  # an ImportError: a DSN, and its driver is not installed
        say_error(error)
        return FAILED
    return 0


def _drop_output() -> None:
    """Let what is still buffered go nowhere, so that the interpreter's last flush is silent too."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
