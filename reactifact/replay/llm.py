"""Recorded model calls: recording them, replaying them in order, and the file they stand in."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
import threading
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from .._context.working_copy import note_call
from .._store import canonical
from .._store._backends.bundle import BundleBackend, is_bundle
from .._store._backends.files import write_all
from .._store.object_db import Database
from .._store.trees import lookup
from ..providers import LLMProvider, LLMRequest, LLMResponse, LLMResponseChunk
from ..threads import in_thread

# -- what a bundle carries beside the history --


REPORT_REF = "refs/reactifact/report"
RECORDING_FILE = "recording.jsonl"
VERSIONS_FILE = "versions.json"


def bundled_recording(database: Database) -> bytes | None:
    """Return the recording that an opened bundle carries, or `None`."""
    return _file(database, RECORDING_FILE)


def bundled_versions(database: Database) -> dict[str, Any] | None:
    """Return the versions noted in an opened bundle, or `None` for what is not a bundle of ours."""
    data = _file(database, VERSIONS_FILE)
    found: Any = None if data is None else canonical.decode(data)
    return found if isinstance(found, dict) else None


def _file(database: Database, name: str) -> bytes | None:
    commit = database.backend.refs(REPORT_REF).get(REPORT_REF)
    if commit is None:
        return None
    entry = lookup(database, database.commit(commit).tree, (name,))
    return None if entry is None else database.read(entry.oid).data


# -- the file of a recording: model calls as JSON lines, appended one by one --


FORMAT = 1

_SECRET = re.compile(
    r"(^|[_.-])(api[_.-]?key|apikey|authorization|cookie|credentials?|passw(or)?d|secret([_.-]?key)?"
    r"|private[_.-]?key|(access|auth|bearer|refresh|session|id)[_.-]?token)$|^(token|key|auth|headers)$",
    re.IGNORECASE,
)


class Call(NamedTuple):
    """One recorded call: the key of its request, the model that was asked, what was answered."""

    key: str
    model: str
    response: LLMResponse


def request_record(request: LLMRequest, model: str) -> dict[str, Any]:
    """Return everything of a request that makes an answer its own, as plain JSON types.

    Raises `TypeError`, naming the field, for what has no JSON form.
    """
    return {
        "model": model,
        "messages": [{"role": m.role, "content": m.content} for m in request.messages],
        "temperature": request.temperature,
        "max_tokens": request.max_tokens,
        "stop": list(request.stop),
        "response_format": _plain(request.response_format, "response_format"),
        "extra": _plain(request.extra, "extra"),
    }


def request_key(request: LLMRequest, model: str) -> str:
    """Return the sha256 of a request's record: equal for equal requests to the same model."""
    return _key(request_record(request, model))


def _key(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical.encode(record)).hexdigest()


def response_hash(text: str) -> str:
    """Return the sha256 of an answer's text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _plain(value: Any, where: str) -> Any:
    """Return a value as plain JSON types, without what stands under the name of a secret."""
    if isinstance(value, type) and issubclass(value, BaseModel):
        return {"name": value.__name__, "schema": value.model_json_schema()}
    if isinstance(value, BaseModel):
        return _plain(value.model_dump(mode="json"), where)
    if isinstance(value, Mapping):
        plain = {}
        for name, item in value.items():
            if not isinstance(name, str):
                raise TypeError(f"{where} of a model request has the key {name!r}: keys are texts")
            if not _SECRET.search(name):
                plain[name] = _plain(item, f"{where}.{name}")
        return plain
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(
        f"{where} of a model request holds a {type(value).__name__}, which has no JSON form, so that the "
        f"call could not be found again: pass plain JSON types or a pydantic model"
    )


def line_of(request: LLMRequest, model: str, response: LLMResponse) -> bytes:
    """Return the line of one call. The provider's raw answer and the headers are not in it."""
    record = request_record(request, model)
    line = {
        "format": FORMAT,
        "key": _key(record),
        "request": record,
        "response": {
            "text": response.text,
            "finish_reason": response.finish_reason,
            "usage": _usage(response.usage),
        },
    }
    return json.dumps(line, sort_keys=True, allow_nan=False).encode() + b"\n"


def _usage(usage: Any) -> dict[str, int]:
    if not isinstance(usage, Mapping):  # the object of some provider's library
        usage = {name: getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens")}
    return {str(name): value for name, value in usage.items() if isinstance(value, int)}


def append(path: str, line: bytes) -> None:
    """Append a line; what a crash left of an unfinished one is cut off first. Makes parent folders."""
    folder = os.path.dirname(path)
    if folder:
        os.makedirs(folder, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            data = os.pread(descriptor, size, 0)
            end = data.rfind(b"\n") + 1
            if _is_whole(data[end:]):
                line = b"\n" + line
            else:
                os.ftruncate(descriptor, end)
        write_all(descriptor, line)
    finally:
        os.close(descriptor)


def _is_whole(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def load(path: str | os.PathLike[str]) -> list[Call]:
    """Return the calls of a recording in order; a last line that a crash cut off is left out.

    Of a bundle it is the recording that it carries. Raises `FileNotFoundError`, and `ValueError`,
    naming the line, for what is not a recording.
    """
    if is_bundle(path):
        enclosed = bundled_recording(Database(BundleBackend(path)))
        if enclosed is None:
            raise ValueError(f"the bundle {os.fspath(path)!r} carries no recording of model calls")
        return parse(enclosed, os.fspath(path))
    with open(path, "rb") as file:
        data = file.read()
    return parse(data, os.fspath(path))


def parse(data: bytes, name: str | bytes) -> list[Call]:
    """Return the calls in the bytes of a recording."""
    *lines, tail = data.split(b"\n")
    if _is_whole(tail):
        lines.append(tail)
    calls = []
    for number, text in enumerate(lines, start=1):
        try:
            line: Any = json.loads(text)
            said = line["response"]
            answer = LLMResponse(said["text"], None, said["finish_reason"], dict(said["usage"]))
            key, model = line["key"], line["request"]["model"]
            if line["format"] > FORMAT:
                raise ValueError(f"format {line['format']} is newer than {FORMAT}, which is read here")
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"line {number} of {name!r} is not a recorded model call ({error}); "
                f"give a file that ReplayLLM(mode='record') wrote"
            ) from error
        calls.append(Call(key, model, answer))
    return calls


# -- models that record what they are asked, give recorded answers again, or only note their calls --


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
        key = request_key(request, self._model)
        response: LLMResponse = await self.inner.complete(request)
        self._note(request, key, response.text)
        return response

    async def stream(self, request: LLMRequest) -> AsyncIterator[LLMResponseChunk]:
        """Pass the model's chunks on, and note the call when the last has come."""
        key = request_key(request, self._model)
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
            response=response_hash(text),
        )

    def __repr__(self) -> str:
        return f"NotingLLM({self.inner!r})"


class ReplayLLM(NotingLLM):
    """A model that records its completions in a file of JSON lines, or answers from one.

    `mode="record"` asks `inner` and appends one line a completion to `recording`, whose folder is made.
    `mode="replay"` asks nobody: equal requests get the recorded answers in the order in which they were
    given. A request is its messages, temperature, `max_tokens`, `stop`, `response_format`, `extra` and
    the `model` given here; headers, and values of `extra` under names such as `api_key`, are neither
    compared nor written. Streaming is passed through unrecorded, and refused on replay.

    Raises `ValueError` for recording without `inner` and for a file that is not a recording,
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
            for key, _, response in load(self.recording):
                self._answers.setdefault(key, deque()).append(response)
                self._recorded[key] = self._recorded.get(key, 0) + 1

    @property
    def remaining(self) -> int:
        """How many recorded answers were not asked for yet; 0 while recording."""
        return sum(len(answers) for answers in self._answers.values())

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Return the answer: the model's, which is recorded, or the next recorded one."""
        key = request_key(request, self._model)  # refuses a request that could not be found again
        if self.mode == "replay":
            response = self._next(request, key)
        else:
            response = await self.inner.complete(request)
            await in_thread(self._append, line_of(request, self._model, response))
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
            append(self.recording, line)

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

    def __repr__(self) -> str:
        return f"ReplayLLM({self.recording!r}, mode={self.mode!r})"
