"""The bytes a store takes: a turn, as it runs and after git packed it, and a list that grows.

All files of the repository over the number of turns, as the runtime leaves them, after `git gc`, and after
`git repack -adf`; beside it the bytes of a list to which a kilobyte is appended again and again, packed, over
the bytes that were appended. Counts: they do not depend on the machine.
"""

from __future__ import annotations

import random
import string
import subprocess
from pathlib import Path
from typing import Any

import anyio
from pydantic import BaseModel

from reactifact import SessionStore

from .harness import Claim, Report, Row, Settings
from .turn import Shop

NAME = "stored"
SUMMARY = "bytes a turn as it runs, after git gc and after git repack -adf; bytes of a growing list"
TURNS = 1_000
APPENDS = 1_700
KILOBYTE = 1_000
ALLOWED = {"as it runs": 8_000, "after git gc": 4_000, "after git repack -adf": 2_500}
ALLOWED_LIST = 3.0


class Notes(BaseModel):
    """A list that grows."""

    lines: list[str] = []


async def take_orders(path: Path, turns: int, settings: Settings) -> None:
    """Let a shop take orders."""
    shop = Shop(path, settings.durability)
    await shop.open()
    with settings.meter("taking orders", "turns") as told:
        for number in range(turns):
            await shop.turn()
            told(number + 1, turns)
    shop.backend.close()


async def append(path: Path, appends: int, settings: Settings) -> int:
    """Append random text of a kilobyte, one a save; return the bytes of it all."""
    chance = random.Random(7)
    durability: Any = settings.durability
    store = SessionStore(path, durability=durability)
    session = await store.open("notes")
    lines: list[str] = []
    session.context.create(Notes(), id="notes")
    with settings.meter("appending", "lines") as told:
        for number in range(appends):
            lines.append("".join(chance.choices(string.ascii_letters, k=KILOBYTE)))
            session.context.update("notes", Notes(lines=lines))
            session.context.drain_events()
            await session.save()
            told(number + 1, appends)
    await store.aclose()
    return sum(map(len, lines))


def run(settings: Settings) -> Report:
    """Fill the stores and count; `sizes` gives turns and, second, appends."""
    turns, appends = (*(settings.sizes or (TURNS,)), APPENDS)[:2]
    shop, notes = settings.folder / "shop.git", settings.folder / "notes.git"
    anyio.run(take_orders, shop, turns, settings)
    found = {"as it runs": stored_bytes(shop) / turns}
    settings.progress("git gc, git repack -adf")
    git(shop, "gc", "--quiet")
    found["after git gc"] = stored_bytes(shop) / turns
    git(shop, "repack", "-adfq")
    found["after git repack -adf"] = stored_bytes(shop) / turns
    payload = anyio.run(append, notes, appends, settings)
    lists = {"as it runs": stored_bytes(notes) / payload}
    settings.progress("git gc, git repack -adf")
    git(notes, "gc", "--quiet")
    lists["after git gc"] = stored_bytes(notes) / payload
    git(notes, "repack", "-adfq")
    lists["after git repack -adf"] = stored_bytes(notes) / payload
    return Report(
        NAME,
        SUMMARY,
        {"durability": settings.durability, "appends": appends, "folder": str(settings.folder)},
        "turns",
        (turns,),
        [
            *(Row(f"a turn, {name}", "bytes", (value,)) for name, value in found.items()),
            *(Row(f"list of {appends:,} ÷ appended, {name}", "", (value,)) for name, value in lists.items()),
        ],
        [
            *(Claim(f"bytes a turn {name}", value, ALLOWED[name]) for name, value in found.items()),
            Claim("bytes of the list, packed, over what was appended", min(lists.values()), ALLOWED_LIST),
        ],
    )


def git(path: Path, *arguments: str) -> None:
    """Run git on a repository."""
    subprocess.run(["git", "-C", path, *arguments], check=True)


def stored_bytes(path: Path) -> int:
    """Return the bytes of all files of a repository."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
