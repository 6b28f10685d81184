"""Record the terminal sessions that the manual shows: `scripts/sessions.py [--check]`.

A block `console` below `<!-- recorded: PLACE -->` holds commands, each after a `$`, and what they printed.
PLACE says in which folder they run: `here`, where the blocks above it on the page were run; the name of a
page, where all blocks of that page were run; or one of `PLACES`. Ids, times and spans of time differ from run
to run: a page is written anew where anything else does, and with `--check` the exit code is 1 then.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

BLOCK = re.compile(
    r"(?:<!-- recorded: (?P<place>[\w-]+) -->\n)?"
    r"^```(?P<language>python|sh|console)(?: title=\"(?P<file>[^\"]+)\")?\n(?P<text>.*?)^```",
    re.DOTALL | re.MULTILINE,
)
COMMAND = re.compile(r"^\$ (.+)$", re.MULTILINE)
BEFORE = f"""
python() {{ {sys.executable} "$@"; }}
reactifact() {{ {sys.executable} -m reactifact "$@"; }}
"""
CHANGING = (
    (re.compile(r"\b[0-9a-f]{7,40}\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:[+-]\d\d:\d\d)?)?"), "TIME"),
    (re.compile(r"\b\d+(?:\.\d+)?(?:ms|s|m|h|d)\b"), "SPAN"),
    (re.compile(r"(?<=\S) {2,}"), " "),  # columns are as wide as what stands in them
)

PARKED = """
import anyio
from reactifact import PendingAction, Runtime, SessionStore


async def refuse(context, action):
    raise ConnectionRefusedError("no such user")


async def main():
    store = SessionStore("state.git")
    async with await store.open("shop-7") as session:
        action = PendingAction(kind="mail", idempotency_key="confirm:7", payload={"order": 7})
        session.context.create(action, id="action:confirm:7")
    await store.relay(refuse, once=True, max_attempts=1)
    await store.aclose()


anyio.run(main)
"""
REFUSED = """
import subprocess
from pathlib import Path
from typing import ClassVar

import anyio
from pydantic import BaseModel
from reactifact import ProduceCall, SessionStore, step


class Order(BaseModel):
    TYPE_ID: ClassVar[str] = "shop.Order"
    item: str
    price: int


@step(consumes=Order, produces=Order)
async def look(call: ProduceCall[Order]) -> None:
    pass


async def main():
    store = SessionStore("state.git")
    async with store.edit("shop", message="Take an order") as context:
        context.create(Order(item="tea", price=5), id="order:42")
    await store.aclose()


if __name__ == "__main__":
    anyio.run(main)
    git = ["git", "-c", "user.name=ann", "-c", "user.email=ann@example.com"]
    subprocess.run([*git, "clone", "-q", "--branch", "shop/main", "state.git", "work"], check=True)
    (path,) = Path("work/artifacts").rglob("order%3A42.json")
    path.write_text(path.read_text().replace("5", '"five"'))
    subprocess.run([*git, "-C", "work", "commit", "-qam", "Correct the price"], check=True)
    subprocess.run([*git, "-C", "work", "push", "-q"], check=True)
"""
PLACES = {"parked": PARKED, "refused": REFUSED}
"""Programs that fill a folder, by name."""


class Folder:
    """A folder in which the blocks of a page are run one after another, as a reader would."""

    def __init__(self, path: Path) -> None:
        self._top = path
        self._now = path
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("REACTIFACT_")},
            "PYTHONPATH": str(ROOT),
            "TZ": "UTC",
            "COLUMNS": "110",
            "NO_COLOR": "1",
            "WHERE": str(path / ".where"),
        }

    def save(self, name: str, text: str) -> None:
        """Save a file where the reader is."""
        (self._now / name).write_text(text, encoding="utf-8")

    def run(self, text: str, *, must_work: bool = True) -> str:
        """Run lines of shell and return what they printed; a later call goes on in the folder they left."""
        script = f"{BEFORE}set {'-e' if must_work else '+e'}\n{text}\npwd > $WHERE\n"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self._now,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(f"this ended with {done.returncode}:\n{text}\n{done.stdout}")
        self._now = Path((self._top / ".where").read_text(encoding="utf-8").strip())
        return done.stdout

    def do(self, block: re.Match[str]) -> None:
        """Do what a block of a page tells the reader to do."""
        if block["language"] == "python" and block["file"]:
            self.save(block["file"], block["text"])
        elif block["language"] == "sh":
            self.run(block["text"])


class Recorder:
    """Records the sessions of pages, each folder made once."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self._folders: dict[str, Folder] = {}

    def page(self, page: Path) -> str:
        """Return the text of a page as it should be; one that differs in nothing but ids and times stays."""
        text = page.read_text(encoding="utf-8")
        here = self._new(page.stem) if "<!-- recorded: here -->" in text else None

        def anew(block: re.Match[str]) -> str:
            if block["place"] is None:
                if here is not None:
                    here.do(block)
                return block[0]
            folder = here if block["place"] == "here" else self._prepared(block["place"])
            assert folder is not None
            session = "".join(
                f"$ {command}\n{folder.run(command, must_work=False)}"
                for command in COMMAND.findall(block["text"])
            )
            if settled(session) == settled(block["text"]):
                return block[0]
            return block[0].replace(f"\n{block['text']}```", f"\n{session}```")

        return BLOCK.sub(anew, text)

    def _new(self, name: str) -> Folder:
        path = self._top / name
        path.mkdir()
        self._folders[name] = Folder(path)
        return self._folders[name]

    def _prepared(self, place: str) -> Folder:
        """Return a folder filled as PLACE says. Raises `SystemExit` for one that is not known."""
        if place in self._folders:
            return self._folders[place]
        folder = self._new(place)
        page = DOCS / f"{place}.md"
        if place in PLACES:
            folder.save("prepare.py", PLACES[place])
            folder.run("python prepare.py")
        elif page.is_file():
            for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
                folder.do(block)
        else:
            raise SystemExit(f"{place} is not a page, nor one of {', '.join(PLACES)}: where is it recorded?")
        return folder


def settled(text: str) -> str:
    """Return a text in which what changes from run to run is replaced."""
    for pattern, word in CHANGING:
        text = pattern.sub(word, text)
    return "\n".join(line.rstrip() for line in text.splitlines())


def pages() -> list[Path]:
    """Return the pages that show sessions; those first whose own blocks fill a folder, for the others."""
    texts = {page: page.read_text(encoding="utf-8") for page in sorted(DOCS.rglob("*.md"))}
    found = [page for page, text in texts.items() if "<!-- recorded: " in text]
    return sorted(found, key=lambda page: "<!-- recorded: here -->" not in texts[page])


def anew() -> dict[Path, str]:
    """Return the text of each page that shows sessions as it should be."""
    with tempfile.TemporaryDirectory(prefix="sessions-") as top:
        recorder = Recorder(Path(top))
        return {page: recorder.page(page) for page in pages()}


def main() -> int:
    """Write the pages, or compare them; return the exit code."""
    is_check = "--check" in sys.argv
    texts = anew()
    behind = [page for page, text in texts.items() if text != page.read_text(encoding="utf-8")]
    for page in behind:
        print(f"{page.relative_to(ROOT)} {'differs from what is printed' if is_check else 'written'}")
        if not is_check:
            page.write_text(texts[page], encoding="utf-8")
    return 1 if behind and is_check else 0


if __name__ == "__main__":
    raise SystemExit(main())
