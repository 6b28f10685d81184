"""`reactifact sync`: what it says, its exit codes, its JSON, and leases."""

from __future__ import annotations

import json
import subprocess

import anyio
import pytest
from shop import Order

from reactifact import SessionStore


async def edited(place: str, artifact: str, customer: str) -> None:
    store = SessionStore(place)
    async with store.edit("shop") as context:
        context.create(Order(item="tea", customer=customer), id=artifact)
        context.update(artifact, Order(item="tea", customer=customer))
    await store.aclose()


@pytest.fixture
def places(tmp_path):
    hub = tmp_path / "hub.git"
    subprocess.run(["git", "init", "-q", "--bare", hub], check=True)
    return tuple(str(tmp_path / name) for name in ("a.git", "b.git")), str(hub)


@pytest.fixture
def shared(run, places):
    (a, b), hub = places
    anyio.run(edited, a, "o1", "ann")
    assert run("init", b).code == 0
    assert run("sync", a, hub).code == 0
    assert run("sync", b, hub).code == 0
    return a, b, hub


def test_it_says_what_came_and_what_went(run, places):
    (a, b), hub = places
    anyio.run(edited, a, "o1", "ann")
    shown = run("sync", a, hub)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out == "pushed   refs/heads/shop/main\n"
    assert run("init", b).code == 0
    assert run("sync", b, hub).out == "new      shop/main\n"
    anyio.run(edited, b, "o2", "bob")
    anyio.run(edited, a, "o3", "eve")
    assert run("sync", b, hub).out == "pushed   refs/heads/shop/main\n"
    assert run("sync", a, hub).out == "merged   shop/main\npushed   refs/heads/shop/main\n"
    assert run("sync", b, hub).out == "forward  shop/main\n"
    assert run("sync", b, hub).out == f"nothing new here and in {hub}\n"
    found = json.loads(run("sync", b, hub, "--json").out)
    assert (found["merged"], found["conflicts"], found["failed"], found["attempts"]) == ([], [], [], 1)


def test_a_conflict_has_a_line_for_each_field_and_an_exit_code(run, shared):
    a, b, hub = shared
    anyio.run(edited, a, "o1", "zoe")
    anyio.run(edited, b, "o1", "bob")
    assert run("sync", a, hub).code == 0
    shown = run("sync", b, hub)
    assert shown.code == 1
    assert "shop/main is in conflict" in shown.err
    assert "customer" in shown.err
    shown = run("sync", b, hub, "--json")
    assert shown.code == 1
    ((conflict),) = json.loads(shown.out)["conflicts"]
    assert (conflict["session"], conflict["branch"]) == ("shop", "main")
    merged = ("branch", b, "shop", "merge", "--source", conflict["theirs"])
    assert run(*merged).code == 1  # the same conflict: the commit is here


def test_a_lease_is_taken_shown_and_given_back(run, shared):
    a, b, hub = shared
    shown = run("sync", a, hub, "--lease", "--for", "600", "--name", "laptop A")
    assert shown.code == 0
    assert "lease    shop until " in shown.out
    shown = run("sync", b, hub, "--lease")
    assert shown.code == 2
    assert "laptop A" in shown.err
    assert run("sync", a, hub, "--release").code == 0
    assert run("sync", b, hub, "--lease").code == 0
    for wrong in (("--lease", "--release"), ("--for", "60")):
        assert run("sync", a, hub, *wrong).code == 2


def test_what_cannot_be_is_an_error_in_one_line(run, shared, tmp_path):
    a, _, hub = shared
    for arguments, said in (
        ((a,), "knows no remote"),
        ((a, str(tmp_path / "nowhere")), "ls-remote"),
        ((a, hub, "--session", "nobody"), "nobody"),
        ((str(tmp_path / "nothing.git"), hub), "nothing"),
    ):
        shown = run("sync", *arguments)
        assert (shown.code, shown.out) == (2, "")
        assert said in shown.err
        assert shown.err.count("\n") == 1
