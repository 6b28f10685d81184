"""JSON and names as people write them, and what is wrong with them, by line and field."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote

from ....errors import InvalidName
from ... import canonical
from ...names import decode_name

_MARKER = re.compile(r"^(<{7}|={7}|>{7})( |$)", re.MULTILINE)


class Refused(Exception):
    """A file cannot be taken as it stands; `where` is the field, `line` counts from 1."""

    def __init__(self, reason: str, where: str = "", line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.where = where
        self.line = line


def read_json(data: bytes) -> Any:
    """Return what JSON of any formatting says: with a byte order mark, CRLF, indented or not.

    Raises `Refused`, naming the line, for what is not JSON, for a key that stands twice in an object,
    and where git left the marks of a conflict.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Refused("it is not UTF-8 (its first bytes say UTF-16): save it as UTF-8", line=1)
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Refused(f"it is not UTF-8: byte 0x{data[error.start]:02x}", line=line) from error
    marker = _MARKER.search(text)
    if marker is not None:
        line = text.count("\n", 0, marker.start()) + 1
        raise Refused(f"a conflict was left open: {marker[0]!r}", line=line)
    try:
        return _JSON.decode(text)
    except json.JSONDecodeError as error:
        raise Refused(f"it is not JSON: {error.msg}", line=error.lineno) from error
    except RecursionError as error:
        raise Refused("its JSON is nested too deeply") from error
    except _Twice as error:
        raise Refused(f"{error.name!r} stands twice in one object", error.name) from error
    except ValueError as error:
        raise Refused(f"it is not JSON: {error}") from error


class _Twice(Exception):
    def __init__(self, name: str) -> None:
        self.name = name


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _Twice(name)
            seen.add(name)
    return found


_JSON = canonical.decoder(object_pairs_hook=_once)


def line_of(data: bytes, where: str) -> int | None:
    """Return the line of a field, counted from 1, as far as its names lead there."""
    text = data.decode("utf-8", "replace")
    place = -1
    for name in re.findall(r"[^.\[\]]+", where):
        if name.isdigit():
            continue
        found = re.compile(rf'"{re.escape(name)}"\s*:').search(text, place + 1)
        if found is None:
            break
        place = found.start()
    return None if place < 0 else text.count("\n", 0, place) + 1


def id_in_name(name: str, suffix: str = "") -> str:
    """Return the text behind a name: as we write it, else as a person does."""
    try:
        found = decode_name(name, suffix=suffix)
    except InvalidName:
        found = unquote(name.removesuffix(suffix))
    if not found:
        raise Refused(f"no id can be read from the name {name!r}")
    return found


def end_of_link(link: Any, name: str, index: int) -> str:
    value = link.get(name) if isinstance(link, dict) else None
    if not isinstance(value, str) or not value:
        raise Refused(f"link {index + 1} names no {name}", f"links[{index}].{name}")
    return value
