"""The public path of models and embedders."""

from __future__ import annotations

from .authoring.providers import (
    EmbeddingProvider,
    FakeEmbedder,
    FakeLLM,
    LLMProvider,
    LLMRequest,
    LLMResponse,
    LLMResponseChunk,
    Message,
)

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
