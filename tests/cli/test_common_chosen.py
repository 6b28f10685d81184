"""Which branch a verb takes that was told none, what one bad ref hides, and what is printed of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
from shop import Order
from support import git

from reactifact import SessionStore
from reactifact._sessions import service
from reactifact._sessions.stores import open_database
from reactifact.branching import BranchStore
from reactifact.cli import main
from reactifact.cli.common import load_agents, without_password
from reactifact.errors import NotAStore

GONE = "1" * 40
LONG = "b" * 300


@pytest.fixture
def shop(store: Path, tmp_path: Path) -> Path:
    """A copy of the shop that a test may damage."""
    path = tmp_path / "state.git"
    shutil.copytree(store, path)
    git(path, "pack-refs", "--all")
    return path


def by_hand(path: Path, parent: str, ref: str) -> None:
    """Make a commit with git on what `parent` names, and a branch on it."""
    tree = git(path, "rev-parse", f"{parent}^{{tree}}").strip()
    who = ("-c", "user.name=a", "-c", "user.email=a@x")
    commit = git(path, *who, "commit-tree", tree, "-p", parent, "-m", "by hand").strip()
    git(path, "update-ref", ref, commit)


def point(path: Path, ref: str, content: str) -> None:
    file = path / ref
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{content}\n")


# -- the branch that is taken --------------------------------------------------------------------


def test_without_a_session_the_branch_is_main_of_the_one_written_last(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "s.git"

    async def make() -> None:
        branches = BranchStore(path, durability="os")
        for session in ("first", "last"):
            async with branches.edit(session) as context:
                context.create(Order(customer="ann"), id="o1")
        await branches.fork("last", "last/plan")
        async with branches.edit("last", "plan") as context:
            context.create(Order(customer="bob"), id="o2")  # the newest commit of the store
        await branches.aclose()

    anyio.run(make)
    for verb in (("replay", path), ("context", path), ("log", path), ("show", path, "o1")):
        found = run(*verb)
        assert (found.code, found.err) == (0, "session last, branch main (written last of 2 sessions)\n"), (
            verb
        )
        assert "o2" not in found.out
    assert run("replay", path, "--json").json["branch"] == "main"
    assert run("replay", path, "--branch", "plan", "--json").json["branch"] == "plan"


def test_the_only_branch_of_a_session_without_main_is_taken_and_of_several_none(
    run: Any, tmp_path: Path
) -> None:
    path = tmp_path / "s.git"

    async def make(*names: str) -> None:
        branches = BranchStore(path, durability="os")
        context = (await SessionStore(branches.database).open("other")).context
        context.create(Order(customer="ann"), id="o1")
        for name in names:
            await branches.save_branch(context.branch(name=name), session_id="s", name=name)
        await branches.aclose()

    anyio.run(make, "a")
    assert run("replay", path, "--json").json["branch"] == "a"
    anyio.run(make, "b")
    found = run("replay", path)
    assert found.code == 1
    assert "session 's' has no line of its own; branches it has: 'a', 'b'" in found.err


# -- what cannot be read, and what is not a session's ------------------------------------------------


def test_one_bad_branch_hides_neither_its_session_nor_the_store(run: Any, shop: Path) -> None:
    anyio.run(lambda: BranchStore(shop, durability="os").fork("user-1", f"user-1/{LONG}"))
    refs = git(shop, "for-each-ref", "--format=%(refname)", "refs/heads/user-1").split()
    (cut,) = [ref for ref in refs if "bbbb" in ref]
    point(shop, cut, GONE)
    point(shop, "refs/heads/user-1/bad", GONE)
    for verb in (
        ("log", shop, "user-1"),
        ("show", shop, "o1", "--session", "user-1"),
        ("replay", shop, "--session", "user-1"),
        ("branch", shop, "user-1", "list"),
        ("context", shop),
        ("replay", shop),
        ("outbox", shop, "shop"),
    ):
        found = run(*verb)
        assert found.code == 0, (verb, found.err)
    assert (
        "(written last of 4 sessions; 2 refs cannot be read, see `reactifact sessions`)"
        in run("context", shop).err
    )
    everything = run("log", shop, "user-1", "--all")
    assert everything.code == 2
    assert "Plan the party" in everything.out
    assert [line.partition(" cannot be read")[0] for line in everything.err.splitlines()] == [
        "reactifact: user-1/bad",
        f"reactifact: {cut}",
    ]
    commit = git(shop, "rev-parse", "refs/heads/user-1/main").strip()
    assert run("show", shop, commit[:10], "--session", "user-1").code == 0
    named = run("log", shop, "--session", "user-1", "--branch", LONG)
    assert (named.code, named.out) == (2, "")
    assert f"object {GONE} is missing" in named.err


def test_a_session_whose_own_line_is_damaged_still_lists_its_branches(run: Any, shop: Path) -> None:
    point(shop, "refs/heads/user-1/main", GONE)
    found = run("branch", shop, "user-1", "list")
    assert (found.code, found.lines) == (0, ["plan b"])


@pytest.mark.parametrize("verb", ["sessions", "outbox"])
def test_a_store_of_which_nothing_can_be_read_is_not_called_empty(run: Any, shop: Path, verb: str) -> None:
    refs = git(shop, "for-each-ref", "--format=%(refname)", "refs/heads").split()
    for ref in refs:
        point(shop, ref, GONE)
    found = run(verb, shop)
    assert (found.code, found.out) == (2, "")
    assert len(found.err.splitlines()) == len(refs)
    found = run("replay", shop)
    assert found.code == 2
    assert f"no session of {shop} can be read" in found.err


def test_a_branch_of_gits_that_is_not_a_session_is_left_out(run: Any, shop: Path) -> None:
    before = run("sessions", shop, "--json")
    by_hand(shop, "user-1/main", "refs/heads/hand/fix")
    for verb in ("sessions", "outbox"):
        found = run(verb, shop)
        named = "refs/heads/hand/fix is not a branch of a session: it stands on a commit of session 'user-1'"
        assert (found.code, found.err.strip()) == (0, named if verb == "sessions" else "")
        assert "hand" not in found.out
    found = run("sessions", shop, "--json")
    assert {**found.json, "others": []} == before.json
    assert [one["ref"] for one in found.json["others"]] == ["refs/heads/hand/fix"]
    waiting, broken = service.sendable_branches(open_database(shop))
    assert (waiting, broken) == ([("shop", "main")], [])
    # one on a branch of the session itself is adopted
    by_hand(shop, "user-1/main", "refs/heads/user-1/fix")
    found = run("sessions", shop)
    assert found.code == 0
    assert "fix" in found.out


# -- places ---------------------------------------------------------------------------------------

ADDRESSES = (
    "host=db dbname=shop password=secret",
    "dbname=shop user=ann password='secret'",
    " password = secret host=db",
    "krbsrvname=x password=secret",
    "postgresql:ann:secret@db/shop",
    "mysql://ann:secret@db/shop",
    "ann:secret@db/shop",
    "git@example.com:ann/secret.git",
    "sqlite:secret.db",
    ":memory:",
)


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_is_refused_everywhere_and_never_repeated(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    from reactifact._store._backends.bundle import write_bundle
    from reactifact._store._backends.git.backend import GitBackend
    from reactifact.checkpoints import FileBackend, FileKVBackend, SQLiteBackend, SQLiteKVBackend
    from reactifact.cli.common import open_store

    monkeypatch.chdir(tmp_path)
    takers = (SessionStore, BranchStore, open_store, FileKVBackend, SQLiteKVBackend, GitBackend)
    for take in (*takers, FileBackend, SQLiteBackend, lambda place: write_bundle(place, {}, {})):
        with pytest.raises(NotAStore, match="is not a path but") as found:
            take(address)
        assert "secret" not in str(found.value)
    for verb in (
        ("sessions", address),
        ("log", address),
        ("context", address),
        ("replay", address),
        ("branch", address, "s", "list"),
        ("prune", address),
        ("import", address, "s.git"),
    ):
        found = run(*verb)
        assert found.code in (1, 2)
        assert found.out == ""
        assert "secret" not in found.err
    assert "secret" not in without_password(address)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["./host=db password=x", "a=b.git", "run-3.git", "host.git", "user@host.git"]
)
def test_a_path_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    for place in (name, tmp_path / "host=db"):  # a Path is one, whatever its name
        with SessionStore(place, durability="os").database.backend.lock("x"):
            pass
    assert len(list(tmp_path.iterdir())) == 2


# -- what is printed ------------------------------------------------------------------------------


def test_every_conflict_of_a_merge_has_its_lines(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "s.git"

    async def make() -> None:
        branches = BranchStore(path, durability="os")
        async with branches.edit("s") as context:
            for name in ("o1", "o2"):
                context.create(Order(customer="ann\x1b[2J"), id=name)
        await branches.fork("s", "s/b")
        for branch in ("main", "b"):
            async with branches.edit("s", branch) as context:
                for name in ("o1", "o2"):
                    context.update(name, Order(customer=branch, note=branch))
        await branches.aclose()

    anyio.run(make)
    found = run("branch", path, "s", "merge", "b")
    assert (found.code, found.out) == (1, "")
    lines = found.err.splitlines()
    assert lines[0].startswith("reactifact: cannot merge")
    assert sum(line.startswith("    customer: base ") for line in lines) == 2
    assert sum(line.startswith("    note: base ") for line in lines) == 2
    assert "\x1b" not in found.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_given_its_completions_and_no_banner(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shell: str
) -> None:
    monkeypatch.setattr(
        subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, 0, b"5.2.0\n", b"")
    )  # click asks bash for its version
    monkeypatch.setenv("_REACTIFACT_COMPLETE", f"{shell}_source")
    assert main([]) == 0
    script = capsys.readouterr().out
    assert f"_REACTIFACT_COMPLETE={shell}_complete" in script
    assert "agents whose state" not in script
    monkeypatch.setenv("_REACTIFACT_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", "reactifact ses")
    monkeypatch.setenv("COMP_CWORD", "ses" if shell == "fish" else "1")
    assert main([]) == 0
    found = capsys.readouterr().out
    assert "sessions" in found
    assert "agents whose state" not in found


def test_a_module_whose_error_has_no_text_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mute_module.py").write_text(
        "class Mute(Exception):\n"
        "    def __str__(self): raise RuntimeError('no text')\n"
        "    __repr__ = __str__\n"
        "raise Mute\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="'mute_module' cannot be imported: Mute"):
        load_agents("mute_module")
