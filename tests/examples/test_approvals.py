"""The approvals example: over HTTP, and by hand of a real browser, across a killed process."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import forked
import httpx
import pytest
from chromium import browser, program

from examples.approvals.app import Service, make_app
from examples.approvals.refunds import Decision
from reactifact import SessionStore
from reactifact.checkpoints import InMemoryKVBackend

ROOT = Path(__file__).parents[2]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # what uvicorn runs on


@asynccontextmanager
async def client(store: SessionStore, **options: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Service]]:
    app = make_app(store, **options)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as found:
            yield found, app.state.service


def texts(service: Service) -> list[str]:
    return [one.data.text for one in service.session.context.list_artifacts(Decision)]


@pytest.mark.anyio
async def test_a_refund_waits_for_its_approval() -> None:
    async with client(SessionStore(InMemoryKVBackend())) as (http, service):
        await http.post("/refunds", data={"customer": "Ann", "cents": "500"})
        assert texts(service) == ["paid"]  # so small that nobody is asked
        await http.post("/refunds", data={"customer": "Bob <b>", "cents": "5000"})
        page = (await http.get("/")).text
        assert "Refund 50.00 to Bob &lt;b&gt;?" in page
        (question,) = (await http.get("/questions")).json()
        wrong = await http.post(f"/questions/{question}", data={"option": "perhaps"})
        assert (wrong.status_code, len(service.paid)) == (422, 1)
        done = await http.post(f"/questions/{question}", data={"option": "approve"})
        assert done.status_code == 303
        assert texts(service) == ["paid", "approved and paid"]
        assert len(service.paid) == 2
        late = await http.post(f"/questions/{question}", data={"option": "refuse"})
        assert (late.status_code, len(service.paid)) == (409, 2)
        assert (await http.post("/questions/none", data={})).status_code == 404
        assert (await http.post("/refunds", data={"customer": "", "cents": "x"})).status_code == 422


@pytest.mark.anyio
async def test_a_question_that_nobody_answers_in_time_is_refused() -> None:
    async with client(SessionStore(InMemoryKVBackend()), patience=timedelta(0)) as (http, service):
        await http.post("/refunds", data={"customer": "Bob", "cents": "5000"})
        await http.get("/")
        assert texts(service) == ["refused: nobody answered in time"]
        assert service.paid == []


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def serve(store: Path, port: int) -> forked.Process:
    """Start the example as a process of its own; it answers when this returns."""
    null = subprocess.DEVNULL
    arguments = ("-m", "examples.approvals.main", "--store", store, "--port", port)
    process = forked.start(*arguments, cwd=ROOT, stdin=null, stdout=null, stderr=null)
    deadline = time.monotonic() + 120
    while True:
        assert process.poll() is None
        assert time.monotonic() < deadline
        try:
            httpx.get(f"http://127.0.0.1:{port}/", timeout=60)
            return process
        except httpx.TransportError:
            time.sleep(0.05)


@pytest.mark.skipif(
    program() is None,
    reason="no chromium: .ci/run installs Debian's; here it is absent and was not installed",
)
def test_a_person_approves_it_in_a_browser_and_the_server_is_killed_in_between(tmp_path: Path) -> None:
    store, port = tmp_path / "state.git", free_port()
    process = serve(store, port)
    try:
        with browser(tmp_path / "profile") as page:
            page.go(f"http://127.0.0.1:{port}/")
            page.wait_for("document.title == 'Refunds' && document.readyState == 'complete'")
            page.run("document.querySelector('[name=customer]').value = 'Ann'")
            page.run("document.querySelector('[name=cents]').value = '5000'")
            page.run("document.querySelector('[action=\"/refunds\"] button').click()")
            asked = page.wait_for("document.querySelector('#questions li')?.innerText")
            assert "Refund 50.00 to Ann?" in asked

            process.kill()  # the question waits in the store
            process.wait()
            process = serve(store, port)
            page.go(f"http://127.0.0.1:{port}/")
            page.wait_for("document.querySelectorAll('#questions button').length == 2")
            labels = page.run("[...document.querySelectorAll('#questions button')].map(b => b.value).join()")
            assert labels == "approve,refuse"
            page.run("document.querySelector('#questions [value=approve]').click()")
            decided = page.wait_for("document.querySelector('#decisions li')?.innerText")
            assert decided.endswith("approved and paid")
            assert page.run("document.querySelectorAll('#questions li').length") == 0
    finally:
        process.kill()
        process.wait()
    found = anyio.run(SessionStore(store).load_session, "refunds")
    assert found is not None
    assert [one.data.status for one in found.list_artifacts() if one.id.startswith("action:")] == [
        "dispatched"
    ]
