"""Research that survives a kill: `python -m examples.research.main --store PATH [--answer mail]`.

A topic is split into parts, each is looked into by a paid call, twenty side by side, the findings are put
together, a person approves the report, and it is mailed. Kill it at any moment and start it again: only the
calls that were in flight are paid again, and nothing is mailed twice. The model and the mail are files in
which each call and each mail is noted, so that what was paid can be counted.
"""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import click

from reactifact import Artifact, Context, PendingAction, Runtime, Session, SessionStore

from .agents import OPTIONS, agents
from .models import Report, Topic

SESSION = "research"
AT_ONCE = 20


class Notes:
    """A file outside of the store in which each line is on disk once `note` returns."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, text: str) -> None:
        """Write a line."""
        os.write(self._descriptor, f"{text}\n".encode())
        os.fsync(self._descriptor)


class PaidModel:
    """Stands for a model: it answers after a while, and every answer costs."""

    def __init__(self, notes: Notes, delay: float) -> None:
        self._notes = notes
        self._delay = delay

    async def __call__(self, prompt: str) -> str:
        """Return an answer, paid for and noted."""
        await anyio.sleep(self._delay)
        self._notes.note(f"paid {prompt}")
        return f"an answer to {prompt!r}"


def runtime(session: Session, notes: Notes, delay: float) -> Runtime:
    """Return the runtime of a session, which keeps each step."""

    async def mail(context: Context, action: Artifact[PendingAction]) -> None:
        notes.note(f"mailed {action.data.idempotency_key}")

    return Runtime(
        session.context,
        agents=agents(PaidModel(notes, delay)),
        max_concurrency=AT_ONCE,
        session=session,
        dispatcher=mail,
        session_save_policy="per_step",
    )


async def research(path: str, notes: Path, parts: int, delay: float, answer: str | None) -> list[str]:
    """Go on with the research of a store, or begin it; return what a person is to be told."""
    store = SessionStore(path)
    try:
        async with await store.open(SESSION, wait=10) as session:
            context = session.context
            running = runtime(session, Notes(notes), delay)
            if context.get("topic") is None:
                context.create(Topic(text="tea", parts=parts), id="topic")
            await running.arun()
            for question in context.pending_questions():
                if answer is None:
                    return [question.data.question, "answer it with --answer mail or --answer discard"]
                context.resume(question.id, OPTIONS[answer])
            await running.arun()
            report = context.get("report")
            mailed = report is not None and isinstance(report.data, Report)
            return ["the report was mailed" if mailed else "the report was discarded"]
    finally:
        await store.aclose()


@click.command(help=__doc__)
@click.option(
    "--store", "path", required=True, help="A path or a DSN; a bare repository is made when absent."
)
@click.option("--notes", type=click.Path(path_type=Path), required=True, help="The file of what was paid.")
@click.option("--parts", default=20, show_default=True, help="How many parts the topic is split into.")
@click.option("--delay", default=0.02, show_default=True, help="Seconds that a call of the model takes.")
@click.option("--answer", type=click.Choice(list(OPTIONS)), help="What a person says to the report.")
def main(path: str, notes: Path, parts: int, delay: float, answer: str | None) -> None:
    """Run the example."""
    for text in anyio.run(research, path, notes, parts, delay, answer):
        click.echo(text)


if __name__ == "__main__":
    main()
