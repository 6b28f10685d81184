"""Every verb takes every kind of STORE, says in a line what is wrong with one, and prints no password."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import anyio
import pytest
from shop import Order

from reactifact import SessionStore
from reactifact._extras import install_command
from reactifact._store._backends.git import journal
from reactifact.cli.common import without_password

VERBS = (
    ("sessions",),
    ("log", "s"),
    ("show", "o1", "--session", "s"),
    ("diff", "v0", "v1", "--session", "s"),
    ("outbox", "s"),
    ("context", "--session", "s"),
    ("replay", "--session", "s", "--verify-all"),
    ("audit", "s", "o1"),
    ("branch", "s", "list"),
    ("branch", "s", "save", "b"),
    ("branch", "s", "merge", "b"),
    ("bundle", "s", "-o", "s.bundle"),
    ("export", "copy.git"),
)
"""What is read or written of a store; the store goes behind the verb."""


async def fill(place: str, *, is_closed: bool = True) -> None:
    store = SessionStore(place)
    async with store.edit("s") as context:
        context.create(Order(customer="ann"), id="o1")
    if is_closed:
        await store.aclose()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check_every_verb(run, place: str, password: str) -> None:
    anyio.run(fill, place)
    for verb, *rest in VERBS:
        found = run(verb, place, *rest)
        assert (found.code, found.err) == (0, ""), verb
        assert password not in found.out
    report = Path("report.json")
    report.write_text(run("audit", place, "s", "o1", "--json").out)
    assert run("verify", place, report).code == 0


def test_every_verb_reads_a_sqlite_file(run, folder):
    check_every_verb(run, "state.db", "no password")
    assert run("prune", "state.db").code == 0


def test_every_verb_reads_a_postgresql_database(run, folder, postgres_dsn):
    check_every_verb(run, postgres_dsn, ":secret@")
    for arguments in (("prune", postgres_dsn), ("import", "s.bundle", postgres_dsn)):
        found = run(*arguments)
        assert (found.code, found.err) == (0, "")
        assert "postgresql://tester@" in found.out
    chosen = run("replay", postgres_dsn, "--backend", "sqlite")
    assert chosen.code == 2
    assert "leave out --backend sqlite" in chosen.err
    assert "secret" not in chosen.err


@pytest.mark.parametrize(("verb", "code"), [("sessions", 2), ("prune", 2), ("replay", 2), ("context", 1)])
@pytest.mark.parametrize("place", ["mysql://ann:secret@host/shop", ""])
def test_what_is_neither_path_nor_dsn_is_refused_and_nothing_is_made(run, folder, verb, code, place):
    found = run(verb, place)
    assert (found.code, found.out) == (code, "")
    assert len(found.err.splitlines()) == 1
    assert "secret" not in found.err
    assert list(folder.iterdir()) == []


def test_a_dsn_without_the_driver_says_what_to_install(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "reactifact._store._backends.sql.postgres_connection", None)
    for verb in ("sessions", "replay"):
        found = run(verb, "postgresql://ann:secret@host/shop")
        assert (found.code, found.out) == (2, "")
        assert install_command("pg") in found.err
        assert len(found.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("state.git", "state.git"),
        ("postgresql://host/shop", "postgresql://host/shop"),
        ("postgresql://ann@host/shop", "postgresql://ann@host/shop"),
        ("postgresql://ann:a:b@c@host:1/shop?password=secret", "postgresql://ann@host:1/shop"),
    ],
)
def test_a_password_is_left_out(place, shown):
    assert without_password(place) == shown


def test_a_bundle_is_neither_imported_into_nor_pruned(run, folder):
    anyio.run(fill, "state.git")
    run("bundle", "state.git", "s", "-o", "s.bundle")
    found = run("import", "s.bundle", "new.bundle")
    assert (found.code, found.out) == (2, "")
    assert "reactifact export" in found.err
    assert not (folder / "new.bundle").exists()
    found = run("prune", "s.bundle")
    assert (found.code, found.out) == (2, "")
    assert "only read" in found.err


def test_what_was_copied_is_said(run, folder):
    anyio.run(fill, "state.git")
    assert run("export", "state.git", "copy.db").out.startswith("copy.db: 1 ref, ")
    assert run("export", "state.git", "copy.db").out == (
        "copy.db: nothing was copied, it holds all of it already\n"
    )


def test_a_missing_recording_is_named(run, folder):
    anyio.run(fill, "state.git")
    found = run("bundle", "state.git", "s", "-o", "s.bundle", "--recording", "calls.jsonl")
    assert (found.code, found.out) == (2, "")
    assert found.err == (
        "reactifact: the recording calls.jsonl cannot be read (No such file or directory): check its path\n"
    )


def test_a_report_that_lacks_something_is_told_what(run, folder):
    anyio.run(fill, "state.git")
    Path("report.json").write_text(json.dumps({}))
    assert "it has no 'answer'" in run("verify", "state.git", "report.json").err


def test_a_log_of_nothing_says_so_beside_its_output(run, folder):
    anyio.run(fill, "state.git")
    found = run("log", "state.git", "--artifact", "nothing")
    assert (found.code, found.out, found.err) == (0, "", "no commit of s/main fits\n")
    assert run("log", "state.git", "-n", "0").err == ""


def test_a_branch_is_not_merged_into_itself_and_a_copy_is_said(run, folder):
    anyio.run(fill, "state.git")
    run("branch", "state.git", "s", "save", "b")
    found = run("branch", "state.git", "s", "merge", "main")
    assert (found.code, found.out) == (2, "")
    assert "main cannot be merged into itself" in found.err
    assert run("branch", "state.git", "s", "merge", "b", "--as", "c").out == (
        "b holds nothing that main does not: nothing was merged; saved main as c\n"
    )
    assert run("branch", "state.git", "s", "list").lines == ["b", "c"]


@pytest.mark.parametrize("verb", ["sessions", "log", "show", "fsck"])
def test_what_a_power_cut_took_is_put_back_also_for_a_verb_that_reads(run, folder, monkeypatch, verb):
    anyio.run(partial(fill, is_closed=False), "state.git")
    Path("state.git/refs/heads/s/main").write_text("")
    monkeypatch.setattr(journal, "boot_id", lambda: "after the cut")
    found = run(verb, "state.git", *(["o1", "--session", "s"] if verb == "show" else []))
    assert (found.code, found.err) == (0, "")
    assert "o1" in run("log", "state.git").out
