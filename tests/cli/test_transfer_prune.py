"""`reactifact prune`: what it removes, what it says, and the stores that are not its business."""

from __future__ import annotations

import json

import anyio
from shop import Order

from reactifact import SessionStore


async def filled(place: str) -> None:
    store = SessionStore(place)
    for session in ("kept", "gone"):
        async with store.edit(session) as context:
            context.create(Order(item="tea", customer="ann"), id=session)
    await store.delete_session("gone")
    await store.aclose()


def test_it_notes_first_and_removes_after_the_grace(run, tmp_path):
    place = str(tmp_path / "state.db")
    anyio.run(filled, place)
    shown = run("prune", place)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith(f"{place}: 0 objects removed (0 bytes), ")
    waiting = json.loads(run("prune", place, "--json").out)["waiting"]
    assert waiting > 5
    done = json.loads(run("prune", place, "--grace", "0", "--rewrite", "--json").out)
    assert (done["objects"], done["waiting"]) == (waiting, 0)
    assert done["bytes"] > 0
    assert "kept" in run("sessions", place).out
    assert run("prune", place, "--grace", "0").out == (
        f"{place}: 0 objects removed (0 bytes), 0 wait for their grace\n"
    )


def test_what_it_cannot_prune_is_an_error_in_one_line(run, tmp_path):
    shown = run("prune", str(tmp_path / "missing.db"))
    assert (shown.code, shown.out) == (2, "")
    assert "missing.db is not there" in shown.err
    assert shown.err.count("\n") == 1
    assert run("prune", str(tmp_path / "x.db"), "--grace", "-1").code == 2
    assert not (tmp_path / "missing.db").exists()


def test_of_a_bare_repository_it_lets_go_and_says_what_removes_it(run, tmp_path):
    place = str(tmp_path / "state.git")
    anyio.run(filled, place)
    assert run("branch", place, "kept", "undo").code == 0
    shown = run("prune", place, "--grace", "0")
    assert (shown.code, shown.err) == (0, "")
    assert "1 move of branches can no longer be undone; `git gc`" in shown.out
    assert json.loads(run("prune", place, "--json").out)["operations"] == 0
