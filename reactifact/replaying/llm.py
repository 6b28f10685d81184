"""Models that record what they are asked, give recorded answers again, or only note their calls.

Owns `ReplayLLM`, `ReplayMiss` and `NotingLLM`. Each notes its calls (model, hash of the request, hash
of the answer) on the commit of the execution that made them, so that an audit can name them. The file
of a recording is `recording`'s.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Literal

from ..authoring.providers import LLMProvider, LLMRequest, LLMResponse, LLMResponseChunk
from ..context.scope import note_call
from ..threads import in_thread
from . import recording as file

Mode = Literal["replay", "record"]


class ReplayMiss(RuntimeError):
    """A model call that the recording does not hold, or not as often as it was made."""


class NotingLLM(LLMProvider):
    """A model whose calls are noted on the commits they lead to; nothing else is kept.

    `model` names it where neither the request (`extra["model"]`) nor `inner.model` does.
    """

    def __init__(self, inner: Any, *, model: str = "") -> None:
        self.inner = inner
        self._model = model

    @property
    def model(self) -> str:
        """The name of the model, for prices and for audits."""
        return self._model or str(getattr(self.inner, "model", None) or "")

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Ask the model and note the call."""
        key = file.request_key(request, self._model)
        response: LLMResponse = await self.inner.complete(request)
        self._note(request, key, response.text)
        return response

    async def stream(self, request: LLMRequest) -> AsyncIterator[LLMResponseChunk]:
        """Pass the model's chunks on, and note the call when the last has come."""
        key = file.request_key(request, self._model)
        chunks = self.inner.stream(request)
        if inspect.isawaitable(chunks):
            chunks = await chunks
        parts: list[str] = []
        try:
            async for chunk in chunks:
                parts.append(chunk.text)
                yield chunk
            self._note(request, key, "".join(parts))
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()

    async def aclose(self) -> None:
        """Close the model, where it can be closed."""
        close = getattr(self.inner, "aclose", None) or getattr(self.inner, "close", None)
        if close is not None:
            result = close()
            if inspect.isawaitable(result):
                await result

    def _note(self, request: LLMRequest, key: str, text: str) -> None:
        note_call(
            model=str(request.extra.get("model") or self.model),
            request=key,
            response=file.response_hash(text),
        )


class ReplayLLM(NotingLLM):
    """A model that records its completions in a file of JSON lines, or answers from one.

    `mode="record"` asks `inner` and appends one line a completion to `recording`, whose folder is made.
    `mode="replay"` asks nobody: equal requests get the recorded answers in the order in which they were
    given. A request is its messages, temperature, `max_tokens`, `stop`, `response_format`, `extra` and
    the `model` given here; headers, and values of `extra` under names such as `api_key`, are neither
    compared nor written. Streaming is passed through unrecorded, and refused on replay.

    Raises `ValueError` for recording without `inner` and for a file that is no recording,
    `FileNotFoundError` for a replay without one, `ReplayMiss` for a call that is not (or no longer)
    recorded.
    """

    def __init__(
        self,
        recording: str | os.PathLike[str],
        *,
        mode: Mode = "replay",
        inner: Any = None,
        model: str = "",
    ) -> None:
        if mode not in ("replay", "record"):
            raise ValueError(f"mode={mode!r}: choose 'record' or 'replay'")
        if mode == "record" and inner is None:
            raise ValueError("mode='record' needs the model to record: pass inner=")
        super().__init__(inner, model=model)
        self.recording = os.fspath(recording)
        self.mode: Mode = mode
        self._lock = threading.Lock()
        self._answers: dict[str, deque[LLMResponse]] = {}
        self._recorded: dict[str, int] = {}
        if mode == "replay":
            for key, _, response in file.load(self.recording):
                self._answers.setdefault(key, deque()).append(response)
                self._recorded[key] = self._recorded.get(key, 0) + 1

    @property
    def remaining(self) -> int:
        """How many recorded answers were not asked for yet; 0 while recording."""
        return sum(len(answers) for answers in self._answers.values())

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Return the answer: the model's, which is recorded, or the next recorded one."""
        key = file.request_key(request, self._model)  # refuses a request that could not be found again
        if self.mode == "replay":
            response = self._next(request, key)
        else:
            response = await self.inner.complete(request)
            await in_thread(self._append, file.line_of(request, self._model, response))
        self._note(request, key, response.text)
        return response

    async def stream(self, request: LLMRequest) -> AsyncIterator[LLMResponseChunk]:
        """Pass the model's chunks on unrecorded. Raises `ReplayMiss` on replay."""
        if self.mode == "replay":
            raise ReplayMiss(
                f"a streamed answer was asked for, and {self.recording} holds none: streams are passed "
                f"through unrecorded; use complete() in what is to be replayed"
            )
        async for chunk in super().stream(request):
            yield chunk

    def _append(self, line: bytes) -> None:
        with self._lock:
            file.append(self.recording, line)

    def _next(self, request: LLMRequest, key: str) -> LLMResponse:
        with self._lock:
            answers = self._answers.get(key)
            if answers:
                found = answers.popleft()
                return LLMResponse(found.text, None, found.finish_reason, dict(found.usage))
        last = request.messages[-1].content if request.messages else ""
        about = f"{key[:12]} (it ends in {last[-60:]!r})"
        if key in self._recorded:
            raise ReplayMiss(
                f"the call {about} is recorded {self._recorded[key]} times in {self.recording}, and was made "
                f"once more: the run differs from the recorded one; record it again"
            )
        raise ReplayMiss(
            f"the call {about} is not recorded in {self.recording}: prompt, model or parameters differ "
            f"from those of the recorded run; record it again with mode='record'"
        )
