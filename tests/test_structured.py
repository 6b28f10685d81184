"""`structured_llm` and `SourceRef`."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, RootModel

from reactifact import Context, FakeLLM, LLMRequest, LLMResponse, RuntimeResources
from reactifact.sources import SourceRef
from reactifact.structured import structured_llm

pytestmark = pytest.mark.anyio


class City(BaseModel):
    name: str
    people: int = 0


class Dated(BaseModel):
    model_config = ConfigDict(strict=True)
    day: date


class Names(RootModel[list[str]]):
    pass


async def ask(answers: Any, schema: type[BaseModel] = City, **options: Any) -> tuple[Any, list[LLMRequest]]:
    llm = FakeLLM(answers)
    context = Context(RuntimeResources(llm=llm))
    return await structured_llm(context, schema=schema, user="Which city?", **options), llm.requests


ROME = City(name="Rome", people=3)


@pytest.mark.parametrize(
    "answer",
    [
        '{"name": "Rome", "people": 3}',
        '  \n{"name": "Rome", "people": 3}\n ',
        '```json\n{"name": "Rome", "people": 3}\n```',
        '```\n{"name": "Rome", "people": 3}\n```',
        'Here it is:\n```JSON\r\n{"name": "Rome", "people": 3}\r\n``` Anything else?',
        'Sure! {"name": "Rome", "people": 3} is the one {you} want.',
        'A set {a, b} and then {"name": "Rome", "people": 3}',
        '[1, 2] {"name": "Rome", "people": 3}',
        '{"thought": "hm"} {"name": "Rome", "people": 3}',
        '{"name": "Rome", "people": 3} {"name": "Oslo", "people": 4}',
    ],
)
async def test_json_is_found_wherever_it_stands(answer: str) -> None:
    found, requests = await ask(answer)
    assert found == ROME
    assert len(requests) == 1


async def test_other_schemas() -> None:
    assert (await ask('["a", "b"] it is', Names))[0] == Names(["a", "b"])
    assert (await ask('{"day": "2026-01-02"}', Dated))[0] == Dated(day=date(2026, 1, 2))


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "no idea",
        '{"name": 5}',
        '{"outer": {"name": "Rome"}, "rest": ',
        '{"outer": {"name": "Rome"}, "rest": "cut',
        "[" * 100_000,
        '{"name": "\\ud800"}',
    ],
)
async def test_what_does_not_fit_ends_in_none_after_all_attempts(answer: str) -> None:
    found, requests = await ask(answer, attempts=3)
    assert found is None
    assert len(requests) == 3


async def test_a_bad_answer_is_sent_back_with_what_is_wrong() -> None:
    heard: list[Exception] = []
    found, requests = await ask(
        ['{"people": "many"}', '{"name": "Rome", "people": 3}'], on_error=heard.append
    )
    assert found == ROME
    *first, answer, complaint = requests[1].messages
    assert first == requests[0].messages
    assert (answer.role, answer.content) == ("assistant", '{"people": "many"}')
    assert "name: Field required" in complaint.content
    assert "people: " in complaint.content
    assert len(heard) == 1


async def test_any_error_of_the_provider_ends_in_none() -> None:
    heard: list[Exception] = []

    def answer(request: LLMRequest) -> str:
        raise RuntimeError("not recorded")

    found, requests = await ask(answer, on_error=heard.append)
    assert found is None
    assert len(requests) == 1
    assert str(heard[0]) == "not recorded"
    assert (await ask(LLMResponse(None)))[0] is None  # type: ignore[arg-type]  # a provider that is broken


async def test_without_a_model_there_is_no_answer() -> None:
    assert await structured_llm(Context(), schema=City, user="x") is None


async def test_equal_arguments_make_equal_requests() -> None:
    asked = [(await ask("nonsense", system="Be brief.", temperature=0.1, max_tokens=5))[1] for _ in range(2)]
    assert asked[0] == asked[1]
    request = asked[0][0]
    assert (request.temperature, request.max_tokens) == (0.1, 5)
    assert request.messages[0].content.startswith("Be brief.")
    assert json.dumps(City.model_json_schema(), sort_keys=True) in request.messages[0].content
    assert request.messages[1].content == "Which city?"
    assert len(request.prompt_hash) == 64
    assert request.prompt_hash != asked[0][1].prompt_hash
    other = (await ask("nonsense", system="Be long."))[1][0]
    assert other.prompt_hash != request.prompt_hash


async def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(ValueError, match="attempts=1 or more"):
        await ask("x", attempts=0)
    with pytest.raises(TypeError, match="derives from BaseModel"):
        await ask("x", dict)  # type: ignore[arg-type]


def test_a_source_has_a_stable_id() -> None:
    source = SourceRef(source_id="policy.txt", locator="page 3")
    assert (source.metadata, source.score, source.title, source.excerpt, source.query_id) == (
        {},
        None,
        "",
        "",
        "",
    )
    same = SourceRef(source_id="policy.txt", locator="page 3", score=0.5, query_id="q", metadata={"a": 1})
    assert same.stable_id() == source.stable_id()
    assert SourceRef(source_id="a", locator="b").stable_id() == "source:788bd6ec3fe0d9871de7a745e71749d4"
    others = [SourceRef(source_id="policy.txtp", locator="age 3"), SourceRef(source_id="", locator="page 3")]
    assert len({source.stable_id(), *(other.stable_id() for other in others)}) == 3


def test_a_source_is_an_artifact_like_any_other() -> None:
    context = Context()
    source = SourceRef(source_id="a", locator="b", metadata={"page": 3})
    context.create(source, id=source.stable_id())
    found = Context.from_dict(context.to_dict()).get(source.stable_id())
    assert found is not None
    assert found.data == source
