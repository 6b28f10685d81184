"""`reactifact bundle`: a session in one file, to hand on or to keep."""

from __future__ import annotations

import click

from ..errors import ReactifactError
from ..replaying.bundling import bundle_session
from .common import counted, line, plain
from .loading import backend_option, stored_at


@click.command(short_help="Pack a session into one file.")
@click.argument("path", metavar="STORE")
@click.argument("session")
@click.option("-o", "--output", metavar="FILE", required=True, help="Where to write it; replaced if there.")
@click.option("--recording", metavar="FILE", help="The model calls that ReplayLLM recorded, to carry along.")
@backend_option
def bundle(path: str, session: str, output: str, recording: str | None, backend: str) -> None:
    """Pack the history of SESSION, with its branches, tags and deliveries, into one git bundle.

    The versions of everything that ran go along, and the recorded model calls if there are any. The
    file is read like a store (`reactifact replay FILE`, `log FILE` ...) and by git (`git clone FILE`).
    Data and prompts are in it as they are: look before you send it on.
    """
    with stored_at(path, backend, read_only=True) as database:
        try:
            made = bundle_session(database, session, output, recording=recording)
        except OSError as error:  # the disk's are StoreError: what is left is the recording
            raise ReactifactError(
                f"the recording {recording} cannot be read ({error.strerror}): check its path"
            ) from error
        except ValueError as error:
            raise ReactifactError(str(error)) from error
    branches = sum(name.startswith("refs/heads/") for name in made.refs)
    objects, lines = counted(made.objects, "object"), counted(branches, "branch", "branches and ledgers")
    line(plain(f"{output}: {objects}, {lines}, {made.size} bytes"))
