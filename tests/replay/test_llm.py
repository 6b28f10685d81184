"""Recorded model calls: what makes two calls equal, in which order they answer, what is never written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from support import Note, Place, trigger_of

from reactifact import (
    Consume,
    Context,
    FakeLLM,
    LLMRequest,
    LLMResponse,
    Message,
    ProduceCall,
    Runtime,
    RuntimeResources,
    create_agent,
    produce,
)
from reactifact.budget import Budget
from reactifact.replay import NotingLLM, ReplayLLM, ReplayMiss
from reactifact.structured import structured_llm

pytestmark = pytest.mark.anyio


def request(text: str = "hi", **options: Any) -> LLMRequest:
    return LLMRequest([Message.system("Be brief."), Message.user(text)], **options)


async def record(path: Path, answers: Any, *requests: LLMRequest, model: str = "") -> None:
    llm = ReplayLLM(path, mode="record", inner=FakeLLM(answers), model=model)
    for one in requests:
        await llm.complete(one)


async def test_a_call_is_answered_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "calls.jsonl"
    answer = LLMResponse("hello", raw=object(), finish_reason="stop", usage={"prompt_tokens": 3})
    await record(path, answer, request())
    found = await ReplayLLM(path).complete(request())
    assert (found.text, found.finish_reason, found.usage, found.raw) == (
        "hello",
        "stop",
        {"prompt_tokens": 3},
        None,
    )


async def test_equal_calls_are_answered_in_order_until_they_are_used_up(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    await record(path, ["one", "two", "three"], request(), request("other"), request())
    llm = ReplayLLM(path)
    assert llm.remaining == 3
    assert (await llm.complete(request())).text == "one"
    assert (await llm.complete(request())).text == "three"
    with pytest.raises(ReplayMiss, match="recorded 2 times"):
        await llm.complete(request())
    assert (await llm.complete(request("other"))).text == "two"
    assert llm.remaining == 0
    assert issubclass(ReplayMiss, RuntimeError)


@pytest.mark.parametrize(
    "other",
    [
        request("ho"),
        request(temperature=0.5),
        request(max_tokens=5),
        request(stop=["."]),
        request(response_format={"type": "json_object"}),
        request(extra={"seed": 1}),
        LLMRequest([Message.user("Be brief."), Message.user("hi")]),
    ],
    ids=["text", "temperature", "max_tokens", "stop", "response_format", "extra", "role"],
)
async def test_what_makes_a_call_another_one(tmp_path: Path, other: LLMRequest) -> None:
    path = tmp_path / "calls.jsonl"
    await record(path, "a", request())
    with pytest.raises(ReplayMiss, match="is not recorded"):
        await ReplayLLM(path).complete(other)
    await record(path, "b", other)
    assert (await ReplayLLM(path).complete(other)).text == "b"


async def test_the_model_belongs_to_the_call(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    await record(path, "a", request(), model="big")
    with pytest.raises(ReplayMiss):
        await ReplayLLM(path, model="small").complete(request())
    assert (await ReplayLLM(path, model="big").complete(request())).text == "a"


async def test_secrets_are_neither_written_nor_compared(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    secret = {"api_key": "S3CRET", "nested": {"Authorization": "S3CRET", "access_token": "S3CRET"}, "seed": 1}
    headers = {"x-tenant": "S3CRET"}
    await record(path, LLMResponse("a", raw={"key": "S3CRET"}), request(headers=headers, extra=secret))
    assert "S3CRET" not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    found = await ReplayLLM(path).complete(request(extra={"api_key": "new", "nested": {}, "seed": 1}))
    assert found.text == "a"


async def test_a_recording_that_a_crash_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    await record(path, ["one", "two"], request("1"), request("2"))
    whole = path.read_bytes()
    second = whole.index(b"\n") + 1
    for end in range(second, len(whole)):
        path.write_bytes(whole[:end])
        is_whole = end == len(whole) - 1  # only the newline is missing
        assert ReplayLLM(path).remaining == 1 + is_whole
    path.write_bytes(whole[: second + 20])
    await record(path, "again", request("2"))
    llm = ReplayLLM(path)
    assert (await llm.complete(request("1"))).text == "one"
    assert (await llm.complete(request("2"))).text == "again"
    path.write_bytes(whole[:-1])
    await record(path, "third", request("3"))
    assert ReplayLLM(path).remaining == 3


async def test_what_is_no_recording(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    for text in ('{"a": 1}\n', "nonsense\n{}\n", "\n\n"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"line 1 of .* is not a recorded model call"):
            ReplayLLM(path)
    with pytest.raises(FileNotFoundError):
        ReplayLLM(tmp_path / "absent.jsonl")
    with pytest.raises(ValueError, match="pass inner="):
        ReplayLLM(path, mode="record")
    with pytest.raises(ValueError, match="choose 'record' or 'replay'"):
        ReplayLLM(path, mode="rewind")  # type: ignore[arg-type]


async def test_a_request_without_a_json_form_is_refused_before_it_is_paid_for(tmp_path: Path) -> None:
    inner = FakeLLM("a")
    llm = ReplayLLM(tmp_path / "calls.jsonl", mode="record", inner=inner)
    with pytest.raises(TypeError, match=r"extra\.hook of a model request holds a function"):
        await llm.complete(request(extra={"hook": record}))
    assert inner.requests == []


class City(BaseModel):
    name: str


async def test_a_model_class_as_the_response_format(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    await record(path, "a", request(response_format=City))
    assert (await ReplayLLM(path).complete(request(response_format=City))).text == "a"
    with pytest.raises(ReplayMiss):
        await ReplayLLM(path).complete(request(response_format=Note))


async def test_streams_are_passed_through_and_refused_on_replay(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    llm = ReplayLLM(path, mode="record", inner=FakeLLM("a b c"))
    assert "".join([chunk.text async for chunk in llm.stream(request())]) == "a b c"
    assert not path.exists()
    await record(path, "a", request())
    with pytest.raises(ReplayMiss, match="unrecorded"):
        [chunk async for chunk in ReplayLLM(path).stream(request())]


async def test_structured_calls_end_in_none_on_a_miss(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    recording = RuntimeResources(llm=ReplayLLM(path, mode="record", inner=FakeLLM('{"name": "Rome"}')))
    assert await structured_llm(Context(recording), schema=City, user="?") == City(name="Rome")
    replaying = Context(RuntimeResources(llm=ReplayLLM(path)))
    assert await structured_llm(replaying, schema=City, user="?") == City(name="Rome")
    assert await structured_llm(replaying, schema=City, user="?") is None


# -- notes on commits --------------------------------------------------------------------------------


async def asked(place: Place, llm: Any, **options: Any) -> list[dict[str, str]]:
    @produce(Note)
    async def ask(call: ProduceCall) -> Note:
        answer = await call.context.resources.llm.complete(request(trigger_of(call).data.name))
        return Note(text=answer.text)

    session = await place.store().open("s", RuntimeResources(llm=llm))
    session.context.create(City(name="Rome"), id="city")
    agents = [create_agent("asker", consumes=[Consume(City)], produces=[ask])]
    await Runtime(session.context, agents=agents, session=session, **options).arun()
    found = (await place.load("s")).history()[-1].details["calls"]  # type: ignore[attr-defined]
    return list(found)


async def test_calls_are_noted_on_the_commit_they_led_to(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    recorded = ReplayLLM(path, mode="record", inner=FakeLLM("a"), model="m")
    calls = await asked(place, recorded, budget=Budget(max_tokens=10_000))
    line = json.loads(path.read_text())
    assert len(calls) == 1
    assert (calls[0]["model"], calls[0]["request"]) == ("m", line["key"])
    assert len(calls[0]["response"]) == 64


async def test_noting_alone_keeps_no_file(place: Place, tmp_path: Path) -> None:
    calls = await asked(place, NotingLLM(FakeLLM("a"), model="m"))
    assert [call["model"] for call in calls] == ["m"]
    assert list(tmp_path.glob("*.jsonl")) == []
