"""Guard rails: who may write, what may be written or sent, what is taken out of it, and how much of it.

Owns `Access`, `Quota`, and the checks that stand before each write and each send. They are resources of a
context (`RuntimeResources(authorizer=, guardrails=, redactor=, quota=)`); where they are asked is decided by
the context, the executions, the drain, and what merges, reverts and undoes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import BaseModel

from .clock import Clock
from .errors import GuardrailViolation, NotAuthorized, QuotaExceeded

__all__ = ["Access", "Authorizer", "Guardrail", "Quota", "Redactor"]

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Access:
    """One write or one send, before it is done.

    `verb` is create, update, delete, link, unlink or send. `data` is what is to be written, or the action to
    be sent, `None` for the other verbs; `current` what stands under the id now. `author` is the agent that
    writes, of a direct change the principal's name; `principal` is that of the resources.
    """

    verb: str
    artifact_id: str
    data: BaseModel | None
    current: BaseModel | None
    author: str
    principal: Any

    def __str__(self) -> str:
        kind = self.data if self.data is not None else self.current
        what = "" if kind is None else f"{type(kind).__name__} "
        return f"{self.verb} {what}{self.artifact_id!r} by {self.author!r}"


Authorizer = Callable[[Access], bool | str]
"""Tells whether a write or a send is allowed: `True`, or `False` or a text that says why not."""

Guardrail = Callable[[Access], str | None]
"""Looks at what is to be written or sent: returns why it must not be, `None` where it may."""

Redactor = Callable[[str], str]
"""Returns a text with what must not be stored taken out. Once redacted, a text stays as it is."""


def check(access: Access, authorizer: Authorizer | None, guardrails: Iterable[Guardrail]) -> None:
    """Ask about one access. Raises `NotAuthorized`, `GuardrailViolation`, and what a guard raises."""
    if authorizer is not None:
        answer: Any = authorizer(access)
        if answer is not True:
            why = f": {answer}" if isinstance(answer, str) else ""
            if not isinstance(answer, bool | str):
                _close(answer)
                raise TypeError(
                    f"the authorizer answered {type(answer).__name__} about {access}: it returns True, False "
                    f"or a text that says why not, and is no async function"
                )
            raise NotAuthorized(f"not authorized: {access}{why}")
    for guard in guardrails:
        fault: Any = guard(access)
        if fault is not None:
            name = getattr(guard, "__name__", type(guard).__name__)
            if not isinstance(fault, str):
                _close(fault)
                raise TypeError(
                    f"guardrail {name} answered {type(fault).__name__} about {access}: it returns None or a "
                    f"text that says what is wrong, and is no async function"
                )
            raise GuardrailViolation(f"guardrail {name} refuses to {access}: {fault}")


def _close(answer: Any) -> None:
    """Close a coroutine that nobody is going to wait for."""
    if isinstance(answer, Coroutine):
        answer.close()


def redacted(data: M, redactor: Redactor) -> M:
    """Return a model with every text in it redacted, validated; the model itself where nothing changes."""
    values = {name: getattr(data, name) for name in type(data).model_fields}
    values.update(data.model_extra or {})
    changed = {name: _redacted(value, redactor) for name, value in values.items()}
    if all(changed[name] is value for name, value in values.items()):
        return data
    return type(data).model_validate(changed, by_alias=False, by_name=True)


def redacted_data(value: Any, redactor: Redactor) -> Any:
    """Return JSON data with every text in it redacted, but for the names in it."""
    return _redacted(value, redactor)


def _redacted(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, str):
        if type(value) is not str:  # a member of an enum is no text of anybody's
            return value
        found: Any = redactor(value)
        if not isinstance(found, str):
            raise TypeError(f"the redactor returned {type(found).__name__} for a text: it returns a text")
        return value if found == value else found
    if isinstance(value, BaseModel):
        return redacted(value, redactor)
    if isinstance(value, dict):
        items = {key: _redacted(item, redactor) for key, item in value.items()}
        return value if all(items[key] is item for key, item in value.items()) else items
    if isinstance(value, list | tuple | set | frozenset) and type(value) in (list, tuple, set, frozenset):
        parts = [_redacted(item, redactor) for item in value]
        same = all(new is old for new, old in zip(parts, value, strict=True))
        return value if same else type(value)(parts)
    return value


class Quota:
    """How much all turns on the resources that hold it may do in a span of time, over all turns together.

    `runs` counts executions, `tokens` and `cost` what `resources.llm` reports (for `cost` a pricer is
    needed), `sends` deliveries. `per` is the length of a span; the first begins with the first use, and the
    next with the first use after its end. `None` stands for no limit. The counts are kept in this process,
    and one quota may be shared by several resources and threads.

    A turn whose runs, tokens or cost are used up starts nothing more and ends as
    `RunOutcome.QUOTA_EXCEEDED`, with its events still queued. A model is not called any more
    (`QuotaExceeded`), and an action is not sent: it stays pending.
    """

    def __init__(
        self,
        *,
        per: timedelta,
        runs: int | None = None,
        tokens: int | None = None,
        cost: float | None = None,
        sends: int | None = None,
    ) -> None:
        self.limits = {"runs": runs, "tokens": tokens, "cost": cost, "sends": sends}
        if per <= timedelta(0):
            raise ValueError(f"per={per!r} is no span of time: pass a timedelta above 0")
        for name, limit in self.limits.items():
            if limit is not None and limit < 0:
                raise ValueError(f"{name}={limit!r} is below 0: pass how much is allowed, None for no limit")
        self.per = per
        self.used: dict[str, float] = dict.fromkeys(self.limits, 0)
        self._since: float | None = None
        self._lock = threading.Lock()

    def _turn_over(self, clock: Clock) -> None:
        now = clock.monotonic()
        if self._since is None or now - self._since >= self.per.total_seconds():
            self._since = now
            self.used = dict.fromkeys(self.limits, 0)

    def exceeded(self, clock: Clock, *names: str) -> str | None:
        """Return the first of some counts that is used up, or `None`."""
        with self._lock:
            self._turn_over(clock)
            for name in names:
                limit = self.limits[name]
                if limit is not None and self.used[name] >= limit:
                    return name
            return None

    def require(self, clock: Clock, *names: str) -> None:
        """Raise `QuotaExceeded` where one of some counts is used up."""
        name = self.exceeded(clock, *names)
        if name is not None:
            raise QuotaExceeded(
                f"the quota of {self.limits[name]} {name} in {self.per} is used up: wait for the next span, "
                f"or raise it"
            )

    def take(self, clock: Clock, name: str) -> bool:
        """Count one more of something, unless it is used up; return whether it was counted."""
        with self._lock:
            self._turn_over(clock)
            limit = self.limits[name]
            if limit is not None and self.used[name] >= limit:
                return False
            self.used[name] += 1
            return True

    def count(self, clock: Clock, **used: float) -> None:
        """Count what was used."""
        with self._lock:
            self._turn_over(clock)
            for name, amount in used.items():
                self.used[name] += amount

    def __repr__(self) -> str:
        limits = ", ".join(f"{name}={limit!r}" for name, limit in self.limits.items() if limit is not None)
        return f"Quota(per={self.per!r}, {limits})"
