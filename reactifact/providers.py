"""What a language model and an embedder look like to an agent, and fakes of both for tests.

Owns the request and response types, the two abstract providers and `FakeLLM` / `FakeEmbedder`. It
talks to no service: real providers are the application's, behind these interfaces.
"""

from __future__ import annotations

import hashlib
import math
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "EmbeddingProvider",
    "FakeEmbedder",
    "FakeLLM",
    "LLMProvider",
    "LLMRequest",
    "LLMResponse",
    "LLMResponseChunk",
    "Message",
]


ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation. Raises `ValueError` for a role that does not exist."""

    role: str
    content: str

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"{self.role!r} is not a role of a message: use one of {', '.join(ROLES)}")

    @classmethod
    def system(cls, text: str) -> Message:
        """Return an instruction to the model."""
        return cls("system", text)

    @classmethod
    def user(cls, text: str) -> Message:
        """Return what the user says."""
        return cls("user", text)

    @classmethod
    def assistant(cls, text: str) -> Message:
        """Return what the model said."""
        return cls("assistant", text)

    @classmethod
    def tool(cls, text: str) -> Message:
        """Return what a tool answered."""
        return cls("tool", text)


@dataclass
class LLMRequest:
    """What a model is asked. `max_tokens` bounds the completion; `extra` is the provider's own."""

    messages: list[Message]
    temperature: float | None = None
    max_tokens: int | None = None
    stop: list[str] = field(default_factory=list)
    response_format: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    prompt_hash: str = ""


@dataclass
class LLMResponse:
    """What a model answered. `usage` counts tokens as `prompt_tokens` and `completion_tokens`."""

    text: str
    raw: Any = None
    finish_reason: str | None = None
    usage: dict[str, int] = field(default_factory=dict)


@dataclass
class LLMResponseChunk:
    """A piece of an answer. `usage` stands on the chunks that report tokens, often only the last."""

    text: str
    finish_reason: str | None = None
    usage: dict[str, int] | None = None


class LLMProvider(ABC):
    """A language model."""

    @abstractmethod
    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Return the whole answer."""

    async def stream(self, request: LLMRequest) -> AsyncIterator[LLMResponseChunk]:
        """Yield the answer in pieces. A provider that cannot stream yields one, the whole."""
        response = await self.complete(request)
        yield LLMResponseChunk(response.text, response.finish_reason, response.usage or None)


class EmbeddingProvider(ABC):
    """A model that turns texts into vectors."""

    @abstractmethod
    async def embed(self, texts: list[str]) -> list[list[float]]:
        """Return one vector for each text, in order."""


Reply = str | LLMResponse
FakeResponse = Reply | Iterable[Reply] | Callable[[LLMRequest], Reply]


class FakeLLM(LLMProvider):
    """A model for tests. It asks nobody, and keeps what it was asked in `requests`.

    `response` is the one answer, several to give in order, or a function of the request; an answer
    is a text or an `LLMResponse`. `usage` is reported with each text. Raises `LookupError` when
    asked more often than it has answers in order.
    """

    def __init__(self, response: FakeResponse = "ok", usage: Mapping[str, int] | None = None) -> None:
        self.requests: list[LLMRequest] = []
        self._usage = dict(usage or {})
        self._answer: Callable[[LLMRequest], Reply]
        if isinstance(response, str | LLMResponse):
            self._answer = lambda request: response
        elif callable(response):
            self._answer = response
        else:
            self._answer = _in_order(list(response))

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Return the next answer."""
        self.requests.append(request)
        answer = self._answer(request)
        if isinstance(answer, LLMResponse):
            return answer
        if not isinstance(answer, str):
            raise TypeError(
                f"the response function of FakeLLM returned {type(answer).__name__}: "
                f"return a text or an LLMResponse"
            )
        return LLMResponse(answer, finish_reason="stop", usage=dict(self._usage))

    async def stream(self, request: LLMRequest) -> AsyncIterator[LLMResponseChunk]:
        """Yield the next answer word by word; the last chunk carries the usage."""
        response = await self.complete(request)
        *words, last = re.findall(r"\S+\s*|\s+", response.text) or [""]
        for word in words:
            yield LLMResponseChunk(word)
        yield LLMResponseChunk(last, response.finish_reason, response.usage or None)

    def __repr__(self) -> str:
        return f"FakeLLM({len(self.requests)} requests so far)"


def _in_order(answers: list[Reply]) -> Callable[[LLMRequest], Reply]:
    given = 0

    def answer(request: LLMRequest) -> Reply:
        nonlocal given
        if given == len(answers):
            raise LookupError(
                f"FakeLLM has {len(answers)} answers and was asked once more: pass as many as the "
                f"test needs, or a function of the request"
            )
        given += 1
        return answers[given - 1]

    return answer


class FakeEmbedder(EmbeddingProvider):
    """Unit vectors of `dim` numbers that depend on the text alone, in every process."""

    def __init__(self, dim: int = 8) -> None:
        if dim < 1:
            raise ValueError(f"a vector of {dim} numbers is none: pass dim=1 or more")
        self.dim = dim

    async def embed(self, texts: list[str]) -> list[list[float]]:
        """Return one vector for each text. Raises `TypeError` for a single text."""
        if isinstance(texts, str):
            raise TypeError("embed takes a list of texts: pass [text]")
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        # the halves keep every number off zero, so that no vector is without a direction
        digest = hashlib.shake_256(text.encode()).digest(4 * self.dim)
        words = (int.from_bytes(digest[at : at + 4], "big") for at in range(0, len(digest), 4))
        raw = [(word + 0.5) / 2**31 - 1 for word in words]
        length = math.hypot(*raw)
        return [number / length for number in raw]

    def __repr__(self) -> str:
        return f"FakeEmbedder(dim={self.dim})"
