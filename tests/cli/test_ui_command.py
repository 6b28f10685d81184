"""`reactifact ui`: a real server in a process of its own, and what it says where it cannot start."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from shop import Receipt

from reactifact import SessionStore
from reactifact.cli import main
from reactifact.interrupt import TypedQuestion

HERE = str(Path(__file__).parent)  # of the module `shop`


@contextmanager
def serving(*arguments: object) -> Iterator[str]:
    """Run the command until the block ends; gives the address that it prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "reactifact", "ui", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": os.pathsep.join([HERE, *sys.path])},
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert said == ""
    finally:
        process.kill()
        process.wait()


def get(address: str, **options: Any) -> httpx.Response:
    with httpx.Client(trust_env=False, timeout=60) as client:
        return client.get(address, **options)


def test_it_serves_a_store_on_this_machine_and_ends_with_ctrl_c(store: Path) -> None:
    with serving(store, "--port", 0) as address:
        assert address.startswith("http://127.0.0.1:")
        answer = get(address)
        assert answer.status_code == 200
        assert "user-1" in answer.text
        assert "Read-only" in answer.text
        assert str(store) in answer.text
        assert get(address, headers={"host": "evil.example"}).status_code == 421
        assert "server" not in answer.headers


def test_with_writes_the_address_carries_a_token(store: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(store, tmp_path / "state.git")
    with serving(copy, "--port", 0, "--allow-writes", "--allow-host", "desk.example") as address:
        assert "/?token=" in address
        answer = get(address)
        assert answer.status_code == 303
        assert "set-cookie" in answer.headers
        plain = address.partition("?")[0]
        assert get(plain, headers={"host": "desk.example"}).status_code == 200


def test_a_bundle_is_shown_too(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "all.bundle"
    assert main(["bundle", str(store), "user-1", "-o", str(path)]) == 0
    with serving(path, "--port", 0) as address:
        assert "user-1" in get(address).text


def test_nothing_is_made_where_there_is_no_store(run: Callable[..., Any], tmp_path: Path) -> None:
    for name in ("none.git", "none.db"):
        for option in ([], ["--allow-writes"]):
            done = run("ui", tmp_path / name, *option)
            assert done.code == 2
            assert name in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_is_said(run: Callable[..., Any], store: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("ui", store, "--port", taken.getsockname()[1])
    assert done.code == 2
    assert "cannot listen on 127.0.0.1" in done.err
    assert "--port 0" in done.err or "--port (0" in done.err


def test_without_the_extra_the_command_that_installs_it_is_named(
    run: Callable[..., Any], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("reactifact.ui", "starlette"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette", None)
    done = run("ui", store)
    assert done.code == 2
    assert "needs starlette, which is not installed: run " in done.err
    assert "-m pip install" in done.err
    assert "pip install reactifact[ui]" not in done.err  # an index has another package of that name
    assert "pip install 'reactifact[ui]'" not in done.err


def test_the_command_line_does_not_load_the_server_for_other_verbs() -> None:
    servers = ("starlette", "uvicorn")
    program = f"import sys, reactifact.cli; print([n for n in sys.modules if n.startswith({servers})])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_module_of_models_that_cannot_be_imported_is_named(run: Callable[..., Any], store: Path) -> None:
    with pytest.raises(SystemExit, match=r"'no_such\.models' cannot be imported"):
        run("ui", store, "--models", "no_such.models")


def test_models_are_there_for_the_answers(store: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(store, tmp_path / "state.git")
    anyio.run(_asked, copy)
    for models, is_form in (((), False), (("--models", "shop"), True)):
        with (
            serving(copy, "--port", 0, "--allow-writes", *models) as address,
            httpx.Client(trust_env=False, timeout=60, follow_redirects=True) as client,
        ):
            client.get(address)
            page = client.get(address.partition("?")[0] + "questions?s=user-1").text
        assert ("start it with --models" in page) is not is_form
        assert ('method="post"' in page) is is_form


async def _asked(path: Path) -> None:
    async with await SessionStore(path).open("user-1") as session:
        session.context.create(TypedQuestion.asking(Receipt, "Is it good?", now=datetime.now(UTC)))
