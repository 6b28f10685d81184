"""Stored text never steers the terminal that it is printed on: no C0, no C1, no bidirectional controls."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from shop import Order, runtime_of

from reactifact import SessionStore

HOSTILE = "x\x1b[2J\x9b31m\x85\x7f\u202e\u2066\u200f\u2028\x07"
NAME = f"o{HOSTILE}"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "state.git"

    async def fill() -> None:
        store = SessionStore(path, durability="os")
        session = await store.open(HOSTILE)
        session.context.create(Order(customer=HOSTILE, note=HOSTILE), id=NAME)
        session.context.create(Order(customer="b"), id="b")
        session.context.link(NAME, HOSTILE, "b")
        await runtime_of(session, delivering=False).arun()
        session.context.update(NAME, Order(customer=HOSTILE, note=f"other {HOSTILE}"))
        session.context.commits.commit_edit(author=HOSTILE, message=HOSTILE)
        await session.save()
        await store.aclose()

    anyio.run(fill)
    return path


@pytest.mark.parametrize(
    "verb",
    [
        ["sessions"],
        ["sessions", "--json"],
        ["log", HOSTILE],
        ["log", HOSTILE, "--json"],
        ["show", NAME, "--session", HOSTILE],
        ["show", NAME, "--session", HOSTILE, "--json"],
        ["context", "--session", HOSTILE],
        ["context", HOSTILE],  # refused, with the argument in the message
        ["outbox", "status"],
        ["audit", HOSTILE, NAME],
        ["audit", HOSTILE, NAME, "--json"],
        ["audit", HOSTILE, f"receipt:{NAME}", "--json"],
        ["audit", HOSTILE, HOSTILE],
        ["audit", HOSTILE, HOSTILE, "--json"],
        ["replay", "--session", HOSTILE],
        ["log", f"{HOSTILE}?"],
    ],
    ids=lambda verb: ascii(" ".join(verb)).replace("\\", "-"),
)
def test_nothing_printed_steers_the_terminal(run, hostile: Path, verb: list[str]) -> None:
    name, *rest = verb
    found = run(*([name, rest.pop(0)] if name == "outbox" else [name]), hostile, *rest)
    assert found.out or found.err
    for text in (found.out, found.err):
        assert {char for char in text if not char.isprintable()} <= {"\n"}
    if "--json" in verb and found.code == 0:
        assert json.loads(found.out)
