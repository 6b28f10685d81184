"""Produces that keep a conversation short: window summaries, pruning, a rolling digest; finding inputs."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from pydantic import BaseModel

from .._context.context import Context
from ..artifacts import Artifact
from ..errors import told
from ..logging import get_logger
from ..produce import Produce, ProduceCall, Types, as_types
from ..providers import LLMRequest, LLMResponse, Message
from ..structured import OnError, prompt_hash
from ..types.codec import dump

# -- artifacts as text for the memory recipes --


OFFLINE = "(offline memory)"
"""What a text begins with that no model has written."""

_LONGEST_LINE = 200
_TEXT_FIELDS = ("text", "content", "summary")


def created_at(artifact: Artifact[Any]) -> datetime:
    """Return when an artifact was created: the default order of messages."""
    return artifact.created_at


def text_of(artifact: Artifact[Any]) -> str:
    """Return what an artifact says: its `text`, `content` or `summary`, else its fields as JSON."""
    for name in _TEXT_FIELDS:
        found = getattr(artifact.data, name, None)
        if isinstance(found, str):
            return found
    return json.dumps(dump(artifact.data), ensure_ascii=False, sort_keys=True)


def render_lines(artifacts: Iterable[Artifact[Any]]) -> str:
    """Return one line an artifact, headed by its `role`, `author` or `sender` where it has one."""
    return "\n".join(_line(artifact) for artifact in artifacts)


def _line(artifact: Artifact[Any]) -> str:
    said = " ".join(text_of(artifact).split())
    for name in ("role", "author", "sender"):
        who = getattr(artifact.data, name, None)
        if isinstance(who, str) and who:
            return f"{who}: {said}"
    return said


def offline_summary(text: str) -> str:
    """Return a summary that needs no model: the lines of the text, each cut to a bounded length."""
    return f"{OFFLINE} " + " | ".join(_cut(line) for line in text.splitlines() if line.strip())


def offline_digest(previous: str, stale: Iterable[Artifact[Any]]) -> str:
    """Return the digest so far with an offline part appended."""
    part = offline_summary(render_lines(stale))
    return f"{previous}\n{part}" if previous else part


def _cut(line: str) -> str:
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 3]}..."


# -- memory of a conversation: summaries of windows, a bound on messages, a digest that rolls --


M = TypeVar("M", bound=BaseModel)

OrderKey = Callable[[Artifact[Any]], Any]
Summarize = Callable[[Context, str], Awaitable[str | None]]
SummarizeStale = Callable[[Context, str, list[Artifact[Any]]], Awaitable[str | None]]


def _summary_id(round_number: int) -> str:
    return f"summary:{round_number}"


class WindowSummarizer(Produce[M]):
    """Writes a summary of the last `window` messages each time `every` more have come.

    When the number of messages is a multiple of `every`, `await summarize(context, text)` gets the
    last `window` of them in the order of `order_key`, rendered; `build(round, text)` makes the
    summary of what it returns, or of `fallback(text)` where that is `None`. Its id is
    `id_of(round)`, `summary:<round>` unless given; a round that exists is not done again. Subclasses
    of `message_type` count, artifacts of `artifact_type` do not.

    Let the agent consume its messages with `debounce=True` where several come at once: else each
    asks the model. Counting and deleting exclude each other: with messages that are also dropped,
    use `RollingDigestSummarizer`.
    """

    def __init__(
        self,
        message_type: type[BaseModel],
        artifact_type: type[M],
        *,
        summarize: Summarize,
        build: Callable[[int, str], M],
        window: int = 8,
        every: int = 4,
        render: Callable[[list[Artifact[Any]]], str] = render_lines,
        fallback: Callable[[str], str] = offline_summary,
        order_key: OrderKey = created_at,
        id_of: Callable[[int], str] = _summary_id,
    ) -> None:
        super().__init__(artifact_type)
        self.message_types = _message_types(message_type, artifact_type)
        self.window = _at_least(1, window, "window")
        self.every = _at_least(1, every, "every")
        self.summarize = summarize
        self.build = build
        self.render = render
        self.fallback = fallback
        self.order_key = order_key
        self.id_of = id_of

    async def produce(self, call: ProduceCall[Any]) -> None:
        """Write the summary of the round that has just become full."""
        messages = _messages(call.context, self.message_types, self.order_key, self.artifact_type)
        round_number, rest = divmod(len(messages), self.every)
        if rest or not messages:
            return
        summary_id = self.id_of(round_number)
        if call.context.get(summary_id) is not None:
            return
        text = self.render(messages[-self.window :])
        summary = await self.summarize(call.context, text)
        if summary is None:
            summary = self.fallback(text)
        call.effects.create_once(self.build(round_number, summary), id=summary_id)


class WindowPruner(Produce[M]):
    """Deletes all but the last `keep` messages, in the order of `order_key`.

    Only the artifacts go: their earlier states stay in the history until it is compacted.
    """

    def __init__(self, message_type: type[M], *, keep: int = 8, order_key: OrderKey = created_at) -> None:
        super().__init__(message_type)
        self.message_types = _message_types(message_type, None)
        self.keep = _at_least(0, keep, "keep")
        self.order_key = order_key

    async def produce(self, call: ProduceCall[Any]) -> None:
        """Delete the oldest messages beyond `keep`."""
        messages = _messages(call.context, self.message_types, self.order_key, None)
        for message in messages[: max(0, len(messages) - self.keep)]:
            call.effects.delete(message)


class RollingDigestSummarizer(Produce[M]):
    """Folds old messages into one digest and deletes them.

    When there are more than `trigger` messages, of one type or several together in the order of
    `order_key`, all but the last `window` are folded: `await summarize(context, previous_text,
    stale)` gets the digest so far (empty before the first) and the messages that go, and
    `build(text)` makes the digest of what it returns, or of `fallback(previous_text, stale)` where
    that is `None`. There is one digest, under `digest_id`. It is written and the messages are
    deleted in one commit.

    Let the agent consume its messages with `debounce=True` where several come at once: else each
    asks the model.
    """

    def __init__(
        self,
        message_type: Types,
        artifact_type: type[M],
        *,
        summarize: SummarizeStale,
        build: Callable[[str], M],
        window: int = 8,
        trigger: int = 12,
        fallback: Callable[[str, list[Artifact[Any]]], str] = offline_digest,
        digest_text: Callable[[Artifact[M]], str] = text_of,
        order_key: OrderKey = created_at,
        digest_id: str = "digest",
    ) -> None:
        super().__init__(artifact_type)
        self.message_types = _message_types(message_type, artifact_type)
        self.window = _at_least(0, window, "window")
        self.trigger = _at_least(0, trigger, "trigger")
        self.summarize = summarize
        self.build = build
        self.fallback = fallback
        self.digest_text = digest_text
        self.order_key = order_key
        self.digest_id = digest_id

    async def produce(self, call: ProduceCall[Any]) -> None:
        """Fold what is older than the window, when there is enough of it."""
        messages = _messages(call.context, self.message_types, self.order_key, self.artifact_type)
        stale = messages[: max(0, len(messages) - self.window)]
        if len(messages) <= self.trigger or not stale:
            return
        digest = call.context.get(self.digest_id)
        previous = "" if digest is None else self.digest_text(digest)
        text = await self.summarize(call.context, previous, list(stale))
        if text is None:
            text = self.fallback(previous, list(stale))
        call.effects.upsert(self.build(text), id=self.digest_id)
        for message in stale:
            call.effects.delete(message)


def _message_types(given: Types, artifact_type: type[BaseModel] | None) -> tuple[type[BaseModel], ...]:
    kinds = as_types(given)
    if not kinds:
        raise ValueError("there is no type of messages: name at least one")
    if artifact_type is not None and any(issubclass(kind, artifact_type) for kind in kinds):
        raise ValueError(
            f"{artifact_type.__name__} is a type of messages and of what is written about them: "
            f"a summary would be summed up itself; give it a type of its own"
        )
    return kinds


def _at_least(least: int, number: int, name: str) -> int:
    if number < least:
        raise ValueError(f"{name}={number} is too small: pass {least} or more")
    return number


def _messages(
    context: Context,
    kinds: Sequence[type[BaseModel]],
    order_key: OrderKey,
    excluded: type[BaseModel] | None,
) -> list[Artifact[Any]]:
    """Return the live messages in order; equal keys stand in order of creation."""
    found = context.view(tuple(kinds)).artifacts
    if excluded is not None:
        found = [artifact for artifact in found if not isinstance(artifact.data, excluded)]
    return sorted(found, key=order_key)


# -- picking artifacts out of the inputs of a call by their type --


def find(inputs: Iterable[Artifact[Any]], model: type[M]) -> Artifact[M] | None:
    """Return the first artifact of a type (subclasses included), or `None`."""
    return next((artifact for artifact in inputs if isinstance(artifact.data, model)), None)


def find_all(inputs: Iterable[Artifact[Any]], model: type[M]) -> list[Artifact[M]]:
    """Return all artifacts of a type (subclasses included), in the order of the inputs."""
    return [artifact for artifact in inputs if isinstance(artifact.data, model)]


# -- the callbacks on a language model --
#
# They ask `context.resources.llm`. Where there is none, or it fails, they return `None`, and the recipe falls
# back to its offline text.

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
