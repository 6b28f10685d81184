"""Retry and answer from a page: what they change, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import anyio
import pytest
from desk import SESSION, Shift, filled, resources_of
from reading import Client, read
from starlette.testclient import TestClient

from reactifact import SessionStore
from reactifact.branching import BranchStore
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.interrupt import PendingQuestion
from reactifact.ui import writes
from reactifact.ui.guard import Token

S = f"s={quote_plus(SESSION)}"
TOKEN = Token("a token of this test")
FORM = {"secret": TOKEN.form_secret}


@pytest.fixture
def store() -> Any:
    return filled(InMemoryKVBackend(), 1)


@pytest.fixture
def owner(client: Client, store: Any) -> TestClient:
    """A browser that has opened the address with the token."""
    browser = client(store, TOKEN)
    browser.get("/", params={"token": TOKEN.token})
    return browser


def loaded(store: Any) -> Any:
    async def load() -> Any:
        return await SessionStore(store).load_session(SESSION)

    return anyio.run(load)


def test_a_failed_action_is_armed_anew_and_sent_by_the_next_drain(owner: TestClient, store: Any) -> None:
    board = read(owner.get(f"/outbox?{S}").text)
    (action,) = (form["action"] for form in board.all("form"))
    assert action is not None
    after = owner.post(action, data=FORM)
    assert str(after.url).endswith(f"/outbox?{S}&b=main")
    assert "Failed 0" in read(after.text).text
    assert "Waiting 2" in read(after.text).text

    async def drain() -> list[str]:
        sent: list[str] = []

        async def dispatch(context: Any, artifact: Any) -> None:
            sent.append(artifact.data.idempotency_key)

        await SessionStore(store).drain(dispatch)
        return sent

    assert sorted(anyio.run(drain)) == ["reply:ticket:2", "reply:ticket:3"]


def test_what_was_delivered_is_not_armed_anew(owner: TestClient) -> None:
    answer = owner.post(f"/retry?{S}&b=main&id=action:reply:ticket:0", data=FORM)
    assert answer.status_code == 400
    assert "was dispatched" in answer.text


@pytest.mark.parametrize(
    ("kind", "text", "value"), [("text", "Yes, do.", "Yes, do."), ("json", '{"sum": 42.9}', {"sum": 42.9})]
)
def test_an_answer_is_a_commit_of_its_own(
    owner: TestClient, store: Any, kind: str, text: str, value: Any
) -> None:
    found = read(owner.get(f"/questions?{S}").text)
    address = next(form["action"] for form in found.all("form") if "refund" in (form["action"] or ""))
    assert address is not None
    after = owner.post(address, data={**FORM, "answer": text, "kind": kind})
    assert "1 question on" in read(after.text).text
    question = loaded(store).get("question:refund").data
    assert (question.answered, question.resolution) == (True, value)

    async def newest() -> Any:
        return (await BranchStore(store).log(f"{SESSION}/main", limit=1))[0]

    assert anyio.run(newest).author == "inspector"


def test_an_answer_that_is_not_json_is_refused(owner: TestClient, store: Any) -> None:
    address = f"/answer?{S}&b=main&id=question:refund"
    answer = owner.post(address, data={**FORM, "answer": "{no", "kind": "json"})
    assert answer.status_code == 400
    assert "not JSON" in answer.text
    assert not loaded(store).get("question:refund").data.answered


def test_a_second_answer_does_not_replace_the_first(owner: TestClient, store: Any) -> None:
    address = f"/answer?{S}&b=main&id=question:refund"
    assert owner.post(address, data={**FORM, "answer": "yes"}).status_code == 200
    assert owner.post(address, data={**FORM, "answer": "yes"}).status_code == 200  # the same one again
    answer = owner.post(address, data={**FORM, "answer": "no"})
    assert answer.status_code == 409
    assert "its answer stays" in answer.text
    assert loaded(store).get("question:refund").data.resolution == "yes"


@pytest.mark.parametrize(("b", "name"), [("gone", "question:refund"), ("main", "gone"), ("main", "desk")])
def test_what_is_not_a_question_is_not_answered(owner: TestClient, b: str, name: str) -> None:
    answer = owner.post(f"/answer?{S}&b={b}&id={name}", data={**FORM, "answer": "yes"})
    assert answer.status_code == 404


def test_no_answer_is_written_beneath_a_running_turn(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "_WAIT", 0.0)
    store = filled(tmp_path / "state.git", 1)
    browser = client(store, TOKEN)
    browser.get("/", params={"token": TOKEN.token})
    address = f"/answer?{S}&b=main&id=question:refund"

    async def run() -> Any:
        session = await SessionStore(store).open(SESSION, resources_of(), wait=0)
        try:
            return await anyio.to_thread.run_sync(
                lambda: browser.post(address, data={**FORM, "answer": "yes"})
            )
        finally:
            await session.aclose()

    busy = anyio.run(run)
    assert busy.status_code == 409
    assert "answer again when it has ended" in busy.text
    assert browser.post(address, data={**FORM, "answer": "yes"}).status_code == 200


def test_the_pulse_beats_with_every_write(client: Client, store: Any) -> None:
    browser = client(store)

    def pulses() -> tuple[str, str]:
        return browser.get("/pulse").text, browser.get("/pulse", params={"s": SESSION}).text

    async def write(name: str) -> None:
        session = await SessionStore(store).open(name, resources_of())
        session.context.create(PendingQuestion(question="And now?"))
        await session.save()

    before = pulses()
    assert pulses() == before
    assert f'data-pulse="{before[1]}"' in browser.get(f"/session?{S}").text
    anyio.run(write, "another")
    between = pulses()
    assert between[0] != before[0]
    assert between[1] == before[1]
    anyio.run(write, SESSION)
    assert pulses()[1] != between[1]


def test_an_answer_wakes_the_next_turn(owner: TestClient, store: Any) -> None:
    owner.post(f"/answer?{S}&b=main&id=question:refund", data={**FORM, "answer": "yes"})

    async def go_on() -> Any:
        session = await SessionStore(store).open(SESSION, resources_of())
        waiting = [event.artifact_id for event in session.context.pending_events()]
        await Shift(session).turn(50)
        return waiting

    assert "question:refund" in anyio.run(go_on)
