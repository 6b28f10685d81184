"""The callbacks of the memory recipes on a language model.

They ask `context.resources.llm`. Where there is none, or it fails, they return `None`, and the
recipe falls back to its offline text.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from .._context.context import Context
from ..artifacts import Artifact
from ..errors import told
from ..logging import get_logger
from ..providers import LLMRequest, LLMResponse, Message
from ..structured import OnError, prompt_hash
from .memory import render_lines

log = get_logger("reactifact.recipes")

Render = Callable[[list[Artifact[Any]]], str]


def llm_summarizer(
    system: str,
    *,
    attempts: int = 2,
    temperature: float | None = None,
    max_tokens: int | None = None,
    on_error: OnError | None = None,
) -> Callable[[Context, str], Awaitable[str | None]]:
    """Return a `summarize` for `WindowSummarizer`: the model gets `system` and the rendered messages.

    It is asked up to `attempts` times until it answers with some text; `on_error` hears of every
    failure. Raises `ValueError` for fewer attempts than 1.
    """
    ask = _Asker(system, attempts, temperature, max_tokens, on_error)

    async def summarize(context: Context, text: str) -> str | None:
        return await ask(context, text)

    return summarize


def llm_digest_summarizer(
    system: str,
    *,
    render: Render = render_lines,
    attempts: int = 2,
    temperature: float | None = None,
    max_tokens: int | None = None,
    on_error: OnError | None = None,
) -> Callable[[Context, str, Sequence[Artifact[Any]]], Awaitable[str | None]]:
    """Return a `summarize` for `RollingDigestSummarizer`: the digest so far and what is folded into it.

    The options are those of `llm_summarizer`; `render` makes one text of the messages.
    """
    ask = _Asker(system, attempts, temperature, max_tokens, on_error)

    async def summarize(context: Context, previous: str, stale: Sequence[Artifact[Any]]) -> str | None:
        so_far = f"The digest so far:\n{previous}\n\n" if previous else ""
        return await ask(context, f"{so_far}New messages:\n{render(list(stale))}")

    return summarize


class _Asker:
    """Asks for a plain text, and ends in `None` whatever goes wrong with the model."""

    def __init__(
        self,
        system: str,
        attempts: int,
        temperature: float | None,
        max_tokens: int | None,
        on_error: OnError | None,
    ) -> None:
        if attempts < 1:
            raise ValueError(f"a model that is asked {attempts} times never answers: pass attempts=1 or more")
        self.system = system
        self.attempts = attempts
        self.temperature = temperature
        self.max_tokens = max_tokens
        self.on_error = on_error

    async def __call__(self, context: Context, user: str) -> str | None:
        llm = context.resources.llm
        if llm is None:
            return None
        for _ in range(self.attempts):
            try:
                response: LLMResponse = await llm.complete(self._request(user))
                text = response.text.strip()
                if text:
                    return text
                raise ValueError("the model answered with an empty text")
            except Exception as error:  # a provider may raise anything; the recipe goes on without it
                log.warning("summary failed", extra={"error": told(error)})
                if self.on_error is not None:
                    self.on_error(error)
        return None

    def _request(self, user: str) -> LLMRequest:
        messages = [Message.system(self.system), Message.user(user)]
        return LLMRequest(
            messages,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            prompt_hash=prompt_hash(messages),
        )
