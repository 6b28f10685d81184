"""Structured logging: fields that are bound to the running code and stand on every record made there.

Owns the bound fields, the adapter that puts them on records, the two formatters and the handler of
the `reactifact` logger. It configures no logger but that one, and that one only when asked.

While a turn runs, the runtime binds `run_id`, `session_id`, `branch`, `agent`, `generation` and
`request_id`; a drain binds session and branch, and for each send the agent that planned it, `action_kind`
and `action_key`.
A record gets the bound fields in one of three ways, so that an application decides how far it goes:

- loggers from `get_logger` put them on the record itself, whoever handles it;
- `JSONFormatter` and `HumanFormatter` add them to any record, such as one of
  `logging.getLogger("myapp")`, when they format it in the thread that made it;
- `install_context_filter(handler)` lets a handler with a formatter of its own, or one that hands its
  records to another thread, put them on every record it gets.

There is no record factory: fields put on a record that early make `logging` refuse a call that passes
an `extra` of the same name.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable, Mapping, MutableMapping
from contextvars import ContextVar, Token
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TextIO

__all__ = [
    "RUN_FIELDS",
    "ContextFilter",
    "HumanFormatter",
    "JSONFormatter",
    "bind",
    "configure_logging",
    "current_context",
    "get_logger",
    "install_context_filter",
]


ROOT = "reactifact"

RUN_FIELDS = ("run_id", "session_id", "agent", "generation", "request_id")
"""What the runtime binds to a turn. A foreign format string that names them needs a value for records made
outside of a run: `logging.Formatter(fmt, defaults=dict.fromkeys(RUN_FIELDS, ""))`."""

_EMPTY: Mapping[str, Any] = MappingProxyType({})
_bound: ContextVar[Mapping[str, Any]] = ContextVar("reactifact_log_fields", default=_EMPTY)

# What every record has: the rest of its attributes is what a call or a filter added.
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}

# Silent until configured: without a handler of its own, warnings would go to stderr by default.
logging.getLogger(ROOT).addHandler(logging.NullHandler())


# -- bound fields ------------------------------------------------------------------------------


class bind:  # noqa: N801 - reads as the verb of a with statement; a generator costs thrice as much
    """Put fields on every record that is made inside the block, in the tasks it starts too.

    Blocks nest; the inner value of a name wins. Raises `ValueError` for a name that log records
    have already, such as `name` or `msg`.
    """

    def __init__(self, **fields: Any) -> None:
        if not _STANDARD.isdisjoint(fields):
            taken = ", ".join(sorted(fields.keys() & _STANDARD))
            raise ValueError(f"cannot bind {taken}: log records have attributes of that name; choose another")
        self._fields = fields
        self._tokens: list[Token[Mapping[str, Any]]] = []  # a stack: one object may be entered again

    def __enter__(self) -> None:
        self._tokens.append(_bound.set(MappingProxyType({**_bound.get(), **self._fields})))

    def __exit__(self, *_: object) -> None:
        _bound.reset(self._tokens.pop())

    def __repr__(self) -> str:
        return f"bind({', '.join(f'{name}={value!r}' for name, value in self._fields.items())})"


def current_context() -> Mapping[str, Any]:
    """Return the fields that are bound here (read-only); an empty mapping outside of any `bind`."""
    return _bound.get()


class ContextAdapter(logging.LoggerAdapter[logging.Logger]):
    """A logger that puts the bound fields on each record; a call's own `extra` wins."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logger, {})

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the bound fields to the call."""
        return msg, {**kwargs, "extra": {**_bound.get(), **(kwargs.get("extra") or {})}}


def get_logger(name: str) -> ContextAdapter:
    """Return the logger of this name, adding the bound fields to each record."""
    return ContextAdapter(logging.getLogger(name))


class ContextFilter(logging.Filter):
    """Lets every record pass and puts the bound fields on it, as attributes, where it has none."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Complete the record."""
        for name, value in _bound.get().items():
            record.__dict__.setdefault(name, value)
        return True

    def __repr__(self) -> str:
        return "ContextFilter()"


def install_context_filter(*handlers: logging.Handler) -> Callable[[], None]:
    """Let handlers put the bound fields on every record they get, and return what takes it back.

    Without arguments: the handlers that the root logger has now. Handlers filter in the thread that
    logs, before they format or queue, so this holds for a `QueueHandler` too.
    """
    chosen = handlers or tuple(logging.getLogger().handlers)
    added = ContextFilter()
    for handler in chosen:
        handler.addFilter(added)

    def remove() -> None:
        for handler in chosen:
            handler.removeFilter(added)

    return remove


# -- formatting --------------------------------------------------------------------------------


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return the bound fields and what was added to a record; what stands on the record wins.

    In another thread than the one that made the record, nothing is bound that belongs to it.
    """
    bound = _bound.get() if record.thread == threading.get_ident() else _EMPTY
    added = {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
    return {**bound, **added}


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class JSONFormatter(logging.Formatter):
    """One JSON object a line.

    `timestamp` (ISO 8601, UTC), `level`, `logger`, `message`, the extra and bound fields beside
    them, `exc` and `stack` where there are any. A field named like one of these gets a `_` appended;
    a value that JSON cannot hold is written as text.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        line: dict[str, Any] = {
            "timestamp": _timestamp(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exc"] = self.formatException(record.exc_info)
        elif record.exc_text:
            line["exc"] = record.exc_text
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        own = frozenset(line)
        for name, value in fields_of(record).items():
            line[f"{name}_" if name in own else name] = value
        try:
            return _dumps(line)
        except (TypeError, ValueError, RecursionError):
            return _dumps({name: _plain(value) for name, value in line.items()})

    def __repr__(self) -> str:
        return "JSONFormatter()"


def _dumps(value: Any) -> str:
    return json.dumps(value, default=str, allow_nan=False)


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold: itself, else its text (NaN, odd keys, cycles)."""
    try:
        _dumps(value)
    except (TypeError, ValueError, RecursionError):
        return repr(value)
    return value


class HumanFormatter(logging.Formatter):
    """Time, level, logger and message, then the extra and bound fields as `[key=value ...]`."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """Return the time of a record, in UTC."""
        return _timestamp(record)

    def usesTime(self) -> bool:  # noqa: N802
        """Say that the time is shown."""
        return True

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Return the first line; a traceback follows it."""
        text = f"{record.asctime} {record.levelname} {record.name}: {record.message}"
        fields = " ".join(f"{name}={_readable(value)}" for name, value in fields_of(record).items())
        return f"{text} [{fields}]" if fields else text

    def __repr__(self) -> str:
        return "HumanFormatter()"


def _readable(value: Any) -> str:
    """Return a value as text, quoted where it would otherwise run into its neighbours."""
    text = str(value)
    is_clear = text.isprintable() and not any(mark in text for mark in ' "[]=')
    return text if is_clear and text else json.dumps(text)


# -- the handler of the `reactifact` logger ----------------------------------------------------


class _Handler(logging.StreamHandler[TextIO]):
    """The handler that `configure_logging` adds, so that it finds its own again."""


def configure_logging(
    level: int | str = "INFO", *, json: bool = False, stream: TextIO | None = None
) -> logging.Logger:
    """Let the `reactifact` logger write to `stream` (`None`: stderr) and return it.

    Each call replaces what the one before it set. Records no longer propagate to the root logger,
    so that none is written twice. Raises `ValueError` for a level that `logging` does not know.
    """
    logger = logging.getLogger(ROOT)
    logger.setLevel(_level(level))
    handler = _Handler(stream)
    handler.setFormatter(JSONFormatter() if json else HumanFormatter())
    for old in [found for found in logger.handlers if isinstance(found, _Handler)]:
        logger.removeHandler(old)
        old.flush()
    logger.addHandler(handler)
    logger.propagate = False
    return logger


def _level(level: int | str) -> int:
    if isinstance(level, int):
        return level
    names = logging.getLevelNamesMapping()
    if level.upper() not in names:
        raise ValueError(f"{level!r} is not a log level: pass a number or one of {', '.join(names)}")
    return names[level.upper()]


# -- hints: what a newcomer would otherwise miss -----------------------------------------------


HINTS = "reactifact.hints"


class _HintHandler(logging.Handler):
    """Writes hints to stderr, unless some handler of the application writes them there already."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the text of a hint as a line."""
        if not any(_is_on_terminal(handler) for handler in _handlers_of(HINTS)):
            print(record.getMessage(), file=sys.stderr)


def _handlers_of(name: str) -> list[logging.Handler]:
    """Return the handlers that get the records of a logger."""
    found: list[logging.Handler] = []
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        found += logger.handlers
        logger = logger.parent if logger.propagate else None
    return found


def _is_on_terminal(handler: logging.Handler) -> bool:
    stream = getattr(handler, "stream", None)
    return stream is not None and stream in (sys.stderr, sys.stdout, sys.__stderr__, sys.__stdout__)


logging.getLogger(HINTS).addHandler(_HintHandler())


def hint(text: str) -> None:
    """Log a hint, a warning of the logger `reactifact.hints`: it is seen on stderr without any logging.

    `logging.getLogger("reactifact.hints").setLevel("ERROR")` turns them off for a process.
    """
    logging.getLogger(HINTS).warning(text)
