"""A person corrects what agents did, with git: `python -m examples.review.main [FOLDER]`.

An agent reads a claim out of a letter and takes the wrong number for the sum; the refund waits to be sent. A
person clones the store, looks at the log, corrects one file, commits and pushes. The store's hook refuses a
first try that is not valid. Then the agents react to the correction, and what goes out is the corrected sum.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import anyio
import click

from reactifact import Artifact, Context, PendingAction, Runtime, SessionStore
from reactifact.cli import main as reactifact

from .models import Letter, Refund, agents

SESSION = "claims"


class Office:
    """The store, and the refunds that went out."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "state.git"
        self.clone = folder / "clone"
        self.paid: list[int] = []

    async def pay(self, _: Context, action: Artifact[PendingAction]) -> None:
        """Send a refund: here it is only noted."""
        self.paid.append(action.data.payload["cents"])

    async def work(self, letter: Letter | None = None, *, send: bool) -> Refund:
        """Let the agents work on what is new, and return the refund that they planned."""
        store = SessionStore(self.path)
        try:
            async with await store.open(SESSION) as session:
                if letter is not None:
                    session.context.create(letter, id="letter-1")
                dispatcher = self.pay if send else None
                await Runtime(session.context, agents(), session=session, dispatcher=dispatcher).arun()
                refund = session.context.get("refund-1")
                assert refund is not None
                assert isinstance(refund.data, Refund)
                return refund.data
        finally:
            await store.aclose()

    def git(self, *arguments: str, refused: bool = False) -> str:
        """Run git in the clone and return what it printed."""
        who = ("-c", "user.name=Rita", "-c", "user.email=rita@example.com")
        done = subprocess.run(
            ["git", "-C", str(self.clone), *who, *arguments], capture_output=True, text=True, check=False
        )
        assert (done.returncode != 0) is refused, done.stderr
        return done.stdout + done.stderr

    def correct(self, text: str, message: str, *, refused: bool = False) -> str:
        """Correct the sum of the claim, commit and push."""
        (claim,) = self.clone.glob("artifacts/*.Claim/*/*/*/claim-1.json")
        claim.write_text(claim.read_text(encoding="utf-8").replace('"cents": 1400', text), encoding="utf-8")
        self.git("commit", "-a", "-m", message)
        return self.git("push", "origin", f"HEAD:{SESSION}/main", refused=refused)


async def run(folder: Path) -> None:
    """Tell the story."""
    office = Office(folder)
    letter = Letter(sender="Bo", text="14 days I waited. Please pay 9 euros back.")
    refund = await office.work(letter, send=False)
    click.echo(f"the agents plan to pay back {refund.cents / 100:.2f}")
    assert reactifact(["hooks", "install", str(office.path)]) == 0

    subprocess.run(
        ["git", "clone", "-q", "-b", f"{SESSION}/main", str(office.path), str(office.clone)], check=True
    )
    said = office.correct('"cents": nine', "9 euros, not 14 days", refused=True)
    click.echo("a push that is not valid is refused:")
    click.echo("\n".join(row for row in said.splitlines() if "claim-1.json" in row))
    office.git("reset", "--hard", f"origin/{SESSION}/main")
    office.correct('"cents": 900', "9 euros, not 14 days")

    refund = await office.work(send=True)
    click.echo(f"after the correction they plan {refund.cents / 100:.2f}, and paid {office.paid}")
    assert office.paid == [900]
    office.git("fetch", "origin")
    click.echo(office.git("log", "--format=%an: %s", f"origin/{SESSION}/main"))


@click.command(help=__doc__)
@click.argument("folder", required=False)
def main(folder: str | None) -> None:
    """Run the example in a folder, which is new, or in one that goes away."""
    if folder is not None:
        Path(folder).mkdir(parents=True)
        anyio.run(run, Path(folder))
        return
    with tempfile.TemporaryDirectory() as made:
        anyio.run(run, Path(made))


if __name__ == "__main__":
    main()
