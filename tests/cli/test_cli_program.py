"""The program itself: banner, exit codes, errors in one line, pipes, colour, and that it only reads."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import forked
import pytest
from shop import Order

from reactifact import SessionStore
from reactifact._sessions.stores import open_database
from reactifact.errors import NotAStore, StoreError

PACKAGE_ROOT = Path(__file__).parents[2]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "PYTHONPATH")}
    return {**kept, "PYTHONPATH": str(PACKAGE_ROOT), **more}


def program(*arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    return forked.run("-m", "reactifact", *arguments, env=environment(**more))


def listing(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path): (
            path.stat().st_mtime_ns,
            path.stat().st_mode,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in [folder, *folder.rglob("*")]
    }


def test_without_a_verb_it_shows_a_banner_the_verbs_and_help(run):
    shown = run()
    assert shown.code == 0
    assert shown.out.startswith("reactifact")
    for verb in ("log", "show", "diff", "sessions", "outbox"):
        assert verb in shown.lines[1]
    assert "Usage:" in shown.out


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_version(run, option):
    shown = run(option)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith("reactifact, version ")


@pytest.mark.parametrize("verb", ["log", "show", "diff", "sessions", "outbox"])
def test_every_verb_documents_its_json(run, verb):
    shown = run(verb, "--help")
    assert shown.code == 0
    assert "--json" in shown.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["log", "{nowhere}"], "there is nothing at"),
        (["sessions", "{nowhere}/x.db"], "there is no folder"),
        (["outbox", "{file}"], "is a file"),
        (["sessions", "{empty}"], "empty folder"),
        (["log", "{store}", "nobody"], "no session 'nobody'"),
        (["log", "{store}", "--session", "nobody"], "no session 'nobody'"),
        (["log", "{store}", "user-1/nothing"], "no session 'user-1/nothing'"),
        (["log", "{store}", "--session", "user-1", "--branch", "nothing"], "no branch 'nothing'"),
        (["log", "{store}", "team/a"], "can be read as"),
        (["outbox", "{store}", "nobody"], "no session 'nobody'"),
        (["show", "{store}", "0123456789"], "starts with 0123456789"),
        (["show", "{store}", "nothing"], "no artifact 'nothing'"),
        (["show", "{store}", "v7", "--session", "user-1"], "no version 7"),
        (["show", "{store}", "nothing", "--as", "artifact"], "no artifact 'nothing'"),
        (["diff", "{store}", "v1", "v7", "--session", "user-1"], "no version 7"),
        (["diff", "{store}", "user-1/%outbox", "user-1"], "ledger"),
        (["diff", "{store}", "zz", "user-1"], "names no commit"),
    ],
)
def test_what_is_not_there_is_one_line_on_stderr_and_exit_code_2(run, store, tmp_path, arguments, said):
    file, empty = tmp_path / "file", tmp_path / "empty"
    file.write_text("x")
    empty.mkdir()
    places = {"store": store, "nowhere": tmp_path / "nowhere", "file": file, "empty": empty}
    shown = run(*[argument.format(**places) for argument in arguments])
    assert shown.code == 2
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert said in shown.err
    assert sorted(tmp_path.iterdir()) == [empty, file]
    assert list(empty.iterdir()) == []


def test_an_empty_store_is_no_error_where_nothing_was_asked_for(run, tmp_path):
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "new.git"], check=True)
    assert run("sessions", tmp_path / "new.git").out == "no sessions\n"
    assert run("outbox", tmp_path / "new.git", "--json").json == {
        "what": "outbox",
        "outboxes": [],
        "damaged": [],
    }
    shown = run("log", tmp_path / "new.git")
    assert (shown.code, "no session yet" in shown.err) == (2, True)


def test_a_process_ends_with_the_same_codes_and_needs_no_class(store, tmp_path):
    # the module of the models is not on the path of these processes
    shown = program("show", store, "o1", "--session", "user-1")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert '"customer": "ann@example.com"' in shown.stdout
    missing = program("log", tmp_path / "nowhere")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr.startswith("reactifact: there is nothing at")
    assert program("frobnicate").returncode == 2


def test_reading_changes_nothing_not_even_in_a_plain_clone(run, store, tmp_path):
    clone = tmp_path / "clone.git"
    subprocess.run(["git", "clone", "-q", "--bare", store, clone], check=True)
    before = listing(clone)
    for arguments in (["log", "--all"], ["sessions"], ["outbox"], ["show", "o1", "--session", "user-1"]):
        assert run(arguments[0], clone, *arguments[1:]).code == 0
    assert listing(clone) == before


@pytest.mark.skipif(
    os.geteuid() == 0 and shutil.which("setpriv") is None, reason="needs a user without rights"
)
def test_a_store_that_may_only_be_read(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("read-only")
    copy = folder / "state.git"
    shutil.copytree(store, copy)
    folders = [copy, *(path for path in copy.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o555)
    # root may write anywhere: give its rights up for the call
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    try:
        assert (
            subprocess.run([*drop, "touch", copy / "new"], capture_output=True, check=False).returncode != 0
        )
        command = [*drop, sys.executable, "-m", "reactifact", "log", str(copy), "user-1", "--all"]
        shown = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    finally:
        for path in folders:
            path.chmod(0o755)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "Plan the party" in shown.stdout


def test_a_reader_that_leaves_in_the_middle(tmp_path):
    async def write() -> None:
        session = await SessionStore(tmp_path / "s.git", durability="os").open("s")
        session.context.create(Order(customer="x" * 1_000_000), id="o")  # more than a pipe holds
        await session.save()

    anyio.run(write)
    script = '"$0" -m reactifact show "$1" o | head -c 1; echo " ${PIPESTATUS[0]}"'
    command = ["bash", "-c", script, sys.executable, str(tmp_path / "s.git")]
    shown = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert (shown.stdout, shown.stderr) == ("o 141\n", "")


def test_a_reader_that_left_before_the_first_byte(store):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "reactifact", "sessions", str(store)]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, env=environment(), check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_a_full_disk_behind_stdout_is_an_error(store):
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "reactifact", "sessions", str(store)]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=environment(), check=False)
    assert ended.returncode == 2
    assert ended.stderr.count(b"\n") == 1


def on_a_terminal(*arguments: object, **more: str) -> bytes:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "reactifact", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment(**more))
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:
        pass  # how the end of a terminal shows on Linux
    os.close(ours)
    assert process.wait() == 0
    return shown


def test_colour_on_a_terminal_alone_and_never_against_no_color(store):
    assert b"\x1b[3" in on_a_terminal("log", store, "user-1")
    assert b"\x1b" not in on_a_terminal("log", store, "user-1", NO_COLOR="1")
    assert "\x1b" not in program("log", store, "user-1").stdout


def test_stored_text_does_not_steer_the_terminal(store):
    assert b"\x1b[2J" not in on_a_terminal("show", store, "o\n9", "--session", "shop")
    assert "second line \\u001b[31m" in program("outbox", store, "user-1").stdout


def test_an_encoding_that_lacks_a_character_is_no_error(tmp_path, run):
    async def write() -> None:
        session = await SessionStore(tmp_path / "s.git", durability="os").open("ü")
        session.context.create(Order(customer="日本"), id="é")
        await session.save()

    anyio.run(write)
    command = [sys.executable, "-m", "reactifact", "show", str(tmp_path / "s.git"), "é"]
    narrow = environment(PYTHONIOENCODING="ascii")
    shown = subprocess.run(command, capture_output=True, text=True, env=narrow, check=False)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "\\u65e5" in shown.stdout
    assert run("show", tmp_path / "s.git", "é", "--json").json["data"]["customer"] == "日本"


def test_a_store_opened_read_only_refuses_to_be_written(store):
    before = listing(store)
    database = open_database(store, read_only=True)
    with pytest.raises(StoreError, match="read-only"):
        database.write({}, [])
    with pytest.raises(StoreError, match="read-only"), database.backend.lock("session"):
        pass
    database.backend.close()
    assert listing(store) == before


def test_read_only_makes_no_store(tmp_path):
    with pytest.raises(NotAStore):
        open_database(tmp_path / "new.git", read_only=True)
    assert list(tmp_path.iterdir()) == []
