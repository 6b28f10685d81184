"""The file of a recording: model calls as JSON lines, appended one by one.

Owns the line format, what of a request makes its key, and the reading of a file that a crash cut
off. Headers and values under names of secrets are in neither the key nor the file. Asking a model,
and giving recorded answers, is `llm`'s.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from ..authoring.providers import LLMRequest, LLMResponse
from ..store import canonical
from ..store.bundle import BundleBackend, is_bundle
from ..store.database import Database
from ..store.files import write_all
from .enclosed import bundled_recording

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
    naming the line, for what is no recording.
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
                f"line {number} of {name!r} is no recorded model call ({error}); "
                f"give a file that ReplayLLM(mode='record') wrote"
            ) from error
        calls.append(Call(key, model, answer))
    return calls
