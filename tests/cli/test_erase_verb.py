"""`reactifact erase`: what it asks, what it says, what is left, and whom it refuses."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from pydantic import BaseModel
from store_bytes import holding

from reactifact import SessionStore
from reactifact.erasure import Personal

Run = Callable[..., Any]
SECRET = "Wilhelmina Zzyzx"


class Person(BaseModel):
    """Somebody."""

    name: Annotated[str, Personal()]
    visits: int = 0


async def filled(place: Path, sessions: tuple[str, ...]) -> None:
    store = SessionStore(place)
    for session in sessions:
        async with store.edit(session) as context:
            context.create(Person(name=SECRET), id="person:zzyzx")
        async with store.edit(session, message=f"{SECRET} came again") as context:
            context.update("person:zzyzx", Person(name=SECRET, visits=1))
    await store.aclose()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A store with one session."""
    anyio.run(filled, tmp_path / "state.git", ("visits",))
    return tmp_path / "state.git"


def test_a_dry_run_says_what_would_go(run: Run, place: Path) -> None:
    shown = run("erase", place, "person:zzyzx", "--by", "officer", "--dry-run")
    assert (shown.code, shown.err) == (0, "")
    assert "person:zzyzx (Person, 2 versions): would go, now erased-" in shown.out
    assert "sessions visits: 2 commits would be made anew, 1 ref moved" in shown.out
    assert holding(place, SECRET)


def test_it_erases_and_says_so(run: Run, place: Path) -> None:
    done = run(
        "erase", place, "person:zzyzx", "--by", "officer", "--reason", "request", "--yes", "--json"
    ).json
    assert (done["what"], done["is_dry_run"], done["sessions"]) == ("erase", False, ["visits"])
    assert [(one["id"], one["versions"]) for one in done["artifacts"]] == [("person:zzyzx", 2)]
    assert holding(place, SECRET, "zzyzx") == []
    assert run("fsck", place).code == 0
    log = run("log", place, "visits").out
    assert done["artifacts"][0]["token"] in log


def test_fields_alone(run: Run, place: Path) -> None:
    shown = run("erase", place, "person:zzyzx", "--by", "officer", "--fields", "--yes")
    assert "fields name of person:zzyzx (Person, 2 versions): went, now cleared-" in shown.out
    assert holding(place, SECRET) == []
    assert "[erased]" in run("show", place, "visits", "person:zzyzx").out


def test_it_asks_first_and_is_refused_where_nobody_can_be_asked(run: Run, place: Path) -> None:
    shown = run("erase", place, "person:zzyzx", "--by", "officer")
    assert (shown.code, shown.out) == (2, "")
    assert "only with --yes" in shown.err
    assert run("erase", place, "person:zzyzx").code == 2  # by whose wish?
    assert holding(place, SECRET)


def test_what_is_not_there_and_which_session(run: Run, place: Path, tmp_path: Path) -> None:
    shown = run("erase", place, "person:nobody", "--by", "officer", "--yes")
    assert shown.code == 2
    assert "'person:nobody'" in shown.err
    two = tmp_path / "two.git"
    anyio.run(filled, two, ("one", "two"))
    shown = run("erase", two, "person:zzyzx", "--by", "officer", "--yes")
    assert shown.code == 2
    assert "2 sessions: say with --session" in shown.err
    assert run("erase", two, "person:zzyzx", "--by", "officer", "--yes", "--session", "one").code == 0
    assert "Wilhelmina" in run("show", two, "two", "person:zzyzx").out
    bundle = tmp_path / "all.bundle"
    subprocess.run(["git", "-C", str(two), "bundle", "create", "-q", str(bundle), "--all"], check=True)
    shown = run("erase", bundle, "person:zzyzx", "--by", "officer", "--yes")
    assert (shown.code, "is a bundle" in shown.err) == (2, True)
