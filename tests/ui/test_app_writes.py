"""Retry and answer from a page: what they change, and what they refuse."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, urlencode

import anyio
import pytest
from desk import HOSTILE, REFUNDS, SESSION, Shift, Verdict, filled, refunds_turn, resources_of
from reading import Client, read
from starlette.testclient import TestClient

from reactifact import SessionStore
from reactifact.branching import BranchStore
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.interrupt import PendingQuestion, TypedQuestion
from reactifact.ui import app
from reactifact.ui.guard import Token
from reactifact.ui.pages import questions as pages

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
    monkeypatch.setattr(app, "_WAIT", 0.0)
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


# -- questions that were asked with a model ----------------------------------------------------------

R = f"s={quote_plus(REFUNDS)}"


def refunds(store: Any) -> Any:
    async def load() -> Any:
        return await SessionStore(store).load_session(REFUNDS)

    return anyio.run(load)


def asked_for(store: Any, text: str) -> Any:
    """Return the question of the refunds that begins so, and whose answer an agent waits for."""
    found = (one for one in refunds(store).list_artifacts(TypedQuestion) if one.data.asked_by)
    return next(one for one in found if one.data.question.startswith(text))


def address_of(question_id: str) -> str:
    return f"/answer?{urlencode({'s': REFUNDS, 'b': 'main', 'id': question_id})}"


def test_a_question_with_a_model_is_a_form_with_its_deadline(
    owner: TestClient, client: Client, store: Any
) -> None:
    found = read(owner.get(f"/questions?{R}").text)
    text = found.text
    for said in (
        "May we refund 42.90 to li@example.com?",
        "answered with a desk.Verdict",
        "In euros, 500 at most.",
    ):
        assert said in text
    assert "3 h 30 min left open until 2026-03-02 13:00:" in text
    assert "expired it was open until 2026-03-02 09:25:00" in text.partition("Expired without an answer")[2]
    assert "2 questions on" in text
    names = {str(one["name"]) for kind in ("input", "select", "textarea") for one in found.all(kind)}
    fields = ["approved", "amount", "way", "comment", "tell", "until"]  # in the order of the model
    places = [text.index(name.capitalize()) for name in fields]
    assert places == sorted(places)
    assert names == {"secret", "option"} | {f"field/{name}" for name in fields}
    assert len(found.all("form")) == 2  # what has expired has none
    assert read(client(store).get(f"/questions?{R}").text).all("form") == []
    assert "3 open" not in read(owner.get("/").text).text


def test_a_filled_in_form_wakes_who_waits(owner: TestClient, store: Any) -> None:
    question = asked_for(store, "May we")
    form = {
        "approved": "1",
        "amount": "12.5",
        "way": "1",
        "comment": "as\r\nagreed",
        "tell": ["0", "2"],
        "until": "",
    }
    sent = {**FORM, **{f"field/{name}": value for name, value in form.items()}}
    after = owner.post(address_of(question.id), data=sent)
    assert str(after.url).endswith(f"/questions?{R}&b=main")
    answered = refunds(store).get(question.id)
    assert answered.data.answer() == Verdict(
        approved=True, amount=12.5, way="voucher", comment="as\nagreed", tell=["customer", "accounts"]
    )

    async def newest() -> Any:
        return (await BranchStore(store).log(f"{REFUNDS}/main", limit=1))[0]

    assert anyio.run(newest).author == "inspector"

    async def go_on() -> None:
        await refunds_turn(SessionStore(store))

    anyio.run(go_on)
    carrier = asked_for(store, "Who fetches")
    page = read(owner.get(f"/questions?{R}").text)
    assert "Who fetches the parcel?" in page.text
    assert "the fast one" in page.text
    assert owner.post(address_of(carrier.id), data={**FORM, "option": "1"}).status_code == 200
    anyio.run(go_on)
    (action,) = refunds(store).pending_actions()
    assert action.data.payload == {"way": "voucher", "by": "Swift"}


def test_an_answer_that_is_not_the_model_is_shown_again_with_what_is_wrong(
    owner: TestClient, store: Any
) -> None:
    question = asked_for(store, "May we")
    sent = {"field/amount": "501", "field/comment": "x" * 61, "field/approved": "1", "field/until": "soon"}
    answer = owner.post(address_of(question.id), data={**FORM, **sent})
    assert answer.status_code == 422
    found = read(answer.text)
    by_name = {str(one["name"]): one for kind in ("input", "select") for one in found.all(kind)}
    wrong = {name for name, one in by_name.items() if one.get("aria-invalid")}
    assert wrong == {"field/amount", "field/comment", "field/way", "field/until"}
    assert "Input should be less than or equal to 500" in found.text
    assert "Field required" in found.text
    assert by_name["field/amount"]["value"] == "501"  # what was typed is not lost
    assert "checked" in by_name["field/approved"]
    assert not refunds(store).get(question.id).data.answered
    fixed = {f"field/{name}": value for name, value in {"amount": "5", "way": "0"}.items()}
    form = found.all("form")[0]
    assert owner.post(form["action"] or "", data={**FORM, **fixed}).status_code == 200
    assert refunds(store).get(question.id).data.answer() == Verdict(
        approved=False, amount=5, way="card", tell=[]
    )


@pytest.mark.parametrize("option", ["", "2", "yes", HOSTILE])
def test_an_option_that_is_not_there_is_refused(owner: TestClient, store: Any, option: str) -> None:
    answer = owner.post(address_of("question:carrier"), data={**FORM, "option": option})
    assert answer.status_code == 422
    assert "takes one of its options" in read(answer.text).text
    assert not refunds(store).get("question:carrier").data.answered


def test_a_late_answer_and_a_second_one_are_their_errors(owner: TestClient, store: Any) -> None:
    late = owner.post(address_of("question:late"), data={**FORM, "field/way": "0", "field/amount": "1"})
    assert (late.status_code, "takes no answer any more" in read(late.text).text) == (410, True)
    for status in (200, 200):  # the same one again changes nothing
        assert owner.post(address_of("question:carrier"), data={**FORM, "option": "0"}).status_code == status
    second = owner.post(address_of("question:carrier"), data={**FORM, "option": "1"})
    assert (second.status_code, "its answer stays" in read(second.text).text) == (409, True)
    assert refunds(store).get("question:carrier").data.resolution == {"name": "Swift", "days": 1}


def test_a_model_that_the_server_does_not_have_is_named(owner: TestClient, store: Any) -> None:
    async def ask() -> None:
        async with await SessionStore(store).open(SESSION, resources_of()) as session:
            question = TypedQuestion(question="And?", answer_type="elsewhere.Answer", answer_schema={})
            session.context.create(question, id="question:elsewhere")

    anyio.run(ask)
    found = read(owner.get(f"/questions?{S}").text)
    assert "elsewhere.Answer, which this server does not have: start it with --models" in found.text
    assert not [form for form in found.all("form") if "elsewhere" in str(form["action"])]
    answer = owner.post(f"/answer?{S}&b=main&id=question:elsewhere", data=FORM)
    assert answer.status_code == 409
    assert "elsewhere.Answer" in answer.text
    assert "--models" in answer.text
    assert "elsewhere" not in sys.modules


def test_questions_of_both_kinds_come_in_pages(
    owner: TestClient, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "LOOKED_AT", 1)
    seen: list[str] = []
    address: str | None = f"/questions?{R}"

    async def ask() -> None:
        async with await SessionStore(store).open(REFUNDS, resources_of()) as session:
            session.context.create(PendingQuestion(question="A plain one?"), id="question:plain")

    anyio.run(ask)
    while address is not None:
        found = read(owner.get(address).text)
        seen += [one for one in found.links if one.startswith("/artifact?")]
        address = next((one for one in found.links if "after=" in one), None)
    assert len(seen) == len(set(seen)) == 4
