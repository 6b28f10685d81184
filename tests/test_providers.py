"""The model protocol, and the fakes that stand in for models in tests."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from reactifact.providers import (
    EmbeddingProvider,
    FakeEmbedder,
    FakeLLM,
    LLMProvider,
    LLMRequest,
    LLMResponse,
    LLMResponseChunk,
    Message,
)

VECTOR_OF_TEA = [0.980313217546, -0.197448716138]


def asking(text: str = "hello") -> LLMRequest:
    return LLMRequest([Message.user(text)])


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_each_role_has_a_factory(role: str) -> None:
    assert getattr(Message, role)("text") == Message(role, "text")


def test_another_role_is_refused() -> None:
    with pytest.raises(ValueError, match="'robot' is not a role"):
        Message("robot", "text")


def test_a_request_has_defaults_of_its_own() -> None:
    first, second = asking(), asking()
    assert (first.temperature, first.max_tokens, first.response_format) == (None, None, None)
    assert (first.stop, first.headers, first.extra, first.prompt_hash) == ([], {}, {}, "")
    first.stop.append("\n")
    first.extra["seed"] = 1
    assert (second.stop, second.extra) == ([], {})
    response = LLMResponse("text")
    assert (response.raw, response.finish_reason, response.usage) == (None, None, {})
    chunk = LLMResponseChunk("text")
    assert (chunk.finish_reason, chunk.usage) == (None, None)


def test_the_providers_are_abstract() -> None:
    kinds: list[Any] = [LLMProvider, EmbeddingProvider]
    for kind in kinds:
        with pytest.raises(TypeError, match="abstract"):
            kind()


async def streamed(llm: LLMProvider, request: LLMRequest) -> list[LLMResponseChunk]:
    return [chunk async for chunk in llm.stream(request)]


@pytest.mark.anyio
async def test_a_provider_that_cannot_stream_yields_the_whole() -> None:
    class Plain(LLMProvider):
        async def complete(self, request: LLMRequest) -> LLMResponse:
            return LLMResponse("whole answer", finish_reason="stop", usage={"prompt_tokens": 2})

    whole = LLMResponseChunk("whole answer", "stop", {"prompt_tokens": 2})
    assert await streamed(Plain(), asking()) == [whole]


@pytest.mark.anyio
async def test_one_answer_is_given_every_time() -> None:
    llm = FakeLLM(response="yes", usage={"prompt_tokens": 3, "completion_tokens": 1})
    first, second = await llm.complete(asking("a")), await llm.complete(asking("b"))
    assert first == second == LLMResponse("yes", None, "stop", {"prompt_tokens": 3, "completion_tokens": 1})
    first.usage["prompt_tokens"] = 0
    assert second.usage["prompt_tokens"] == 3
    assert [request.messages[0].content for request in llm.requests] == ["a", "b"]


@pytest.mark.anyio
async def test_several_answers_come_in_order_and_run_out() -> None:
    whole = LLMResponse("two", raw={"id": 1})
    llm = FakeLLM(["one", whole])
    assert (await llm.complete(asking())).text == "one"
    assert await llm.complete(asking()) is whole
    with pytest.raises(LookupError, match="has 2 answers and was asked once more"):
        await llm.complete(asking())


@pytest.mark.anyio
async def test_a_function_answers_the_request() -> None:
    llm = FakeLLM(lambda request: request.messages[-1].content.upper())
    assert (await llm.complete(asking("tea"))).text == "TEA"
    wrong: Any = lambda request: 3  # noqa: E731
    with pytest.raises(TypeError, match="returned int"):
        await FakeLLM(wrong).complete(asking())


@pytest.mark.anyio
@pytest.mark.parametrize("text", ["", "one", "  two words\n", "a b\tc  d"])
async def test_a_stream_adds_up_to_the_answer(text: str) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    *words, last = await streamed(FakeLLM(text, usage), asking())
    assert "".join(chunk.text for chunk in [*words, last]) == text
    assert all((chunk.usage, chunk.finish_reason) == (None, None) for chunk in words)
    assert (last.usage, last.finish_reason) == (usage, "stop")


@pytest.mark.anyio
async def test_a_stream_comes_in_pieces() -> None:
    assert [chunk.text for chunk in await streamed(FakeLLM("one two three"), asking())] == [
        "one ",
        "two ",
        "three",
    ]


def test_stream_is_an_async_iterator() -> None:
    assert isinstance(FakeLLM().stream(asking()), AsyncIterator)


@pytest.mark.anyio
@pytest.mark.parametrize("dim", [1, 2, 8, 300])
async def test_fake_vectors_are_unit_vectors_that_depend_on_the_text_alone(dim: int) -> None:
    first, second, other = await FakeEmbedder(dim=dim).embed(["tea", "tea", "coffee or milk"])
    assert first == second == (await FakeEmbedder(dim=dim).embed(["tea"]))[0]
    assert len(first) == dim
    assert math.hypot(*first) == pytest.approx(1)
    assert dim == 1 or first != other


@pytest.mark.anyio
async def test_fake_vectors_are_the_same_in_every_process() -> None:
    (vector,) = await FakeEmbedder(dim=2).embed(["tea"])
    assert vector == pytest.approx(VECTOR_OF_TEA)


@pytest.mark.anyio
async def test_a_single_text_is_refused() -> None:
    with pytest.raises(TypeError, match=r"pass \[text\]"):
        await FakeEmbedder().embed("tea")  # type: ignore[arg-type]  # the mistake that is tested


def test_a_vector_without_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="dim=1 or more"):
        FakeEmbedder(dim=0)
