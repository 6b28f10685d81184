"""What produces may use besides artifacts: models, clocks, clients, anything registered.

Owns `RuntimeResources`, `ResourceKey`, `ResourceScope`, and `Allowance`: what the turns in progress
may use, as their produces see it. Counting and enforcing it is the runtime's.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, TypeVar, overload

from pydantic import BaseModel

from .clock import SYSTEM_CLOCK, Clock
from .errors import BudgetExceeded
from .guards import Access, Quota, check, redacted

__all__ = ["ResourceKey", "ResourceScope", "RuntimeResources"]


T = TypeVar("T")


class ResourceKey(Generic[T]):
    """A name for a resource; two keys are the same only if they are the same object."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"ResourceKey({self.name!r})"


@dataclass(eq=False, slots=True)
class Allowance:
    """What one turn may use: its budget, its deadline on the clock, and what it used so far."""

    budget: Any
    deadline: float | None
    tracker: Any


# The turns that the present code runs in, the outermost first. Several turns may share resources.
_turns: ContextVar[tuple[Allowance, ...]] = ContextVar("reactifact_allowances", default=())


def take_tool_call(name: str) -> None:
    """Count a call of a tool for every turn around it. Raises `BudgetExceeded`, counting nothing."""
    turns = [turn for turn in _turns.get() if turn.budget is not None]
    for turn in turns:
        limit = turn.budget.max_tool_calls
        if limit is not None and turn.tracker.tool_calls >= limit:
            raise BudgetExceeded(
                f"tool {name!r} was not called: the turn's budget of max_tool_calls={limit} is used up"
            )
    for turn in turns:
        turn.tracker.tool_calls += 1


_OF_THE_TURN = ("budget", "budget_deadline", "budget_tracker")
_INTERNAL = ("additional", "_typed", "_in_progress")
_WHO_SETS = "the runtime keeps it; choose another name, or pass budget= to the Runtime or to arun"

_TRACE_TRUNCATE = 1500

_NOT_DONE = {
    "sources": "nothing looks into a registry of sources; register yours under its type",
    "context_builder": "nothing asks it; call yours in the produce",
    "verification_threshold": "nothing is verified against it; compare in the produce",
    "trace_truncate": "there are no traces; read the log",
}
"""The arguments that are taken for the sake of the signature, and why a value is refused."""


class RuntimeResources:
    """The resources of a context.

    The named ones are attributes; further ones are reached by name (`set`, `get("name")`) or by
    type or `ResourceKey` (`register`, `get`, `require`). `id_factory(type name)` makes ids;
    `clock` is what the runtime reads the time from; `principal` is the author of direct changes; `metrics`
    is a meter of OpenTelemetry (extra `otel`), by which turns, executions and deliveries are measured.
    `budget`, `budget_deadline` and `budget_tracker` are those of the turn that asks. `authorizer`,
    `guardrails` (one or several), `redactor` and `quota` stand before each write and each send: see
    `guards`. What the library does not do (`sources` ...) is refused with a `ValueError`, and not ignored.
    """

    def __init__(
        self,
        llm: Any = None,
        embedder: Any = None,
        sources: Any = None,
        context_builder: Any = None,
        verification_threshold: float | None = None,
        redactor: Any = None,
        trace_truncate: int = _TRACE_TRUNCATE,
        id_factory: Callable[[str], str] | None = None,
        pricer: Callable[[str, int, int], float] | None = None,
        metrics: Any = None,
        principal: Any = None,
        authorizer: Any = None,
        guardrails: Any = None,
        quota: Any = None,
        **additional: Any,
    ) -> None:
        self.llm = llm
        self.embedder = embedder
        self.sources = sources
        self.context_builder = context_builder
        self.verification_threshold = verification_threshold
        self.redactor = redactor
        self.trace_truncate = trace_truncate
        self.id_factory = id_factory
        self.pricer = pricer
        self.metrics = metrics
        self.principal = principal
        self.authorizer = authorizer
        self.guardrails = guardrails
        self.quota = quota
        reserved = sorted(additional.keys() & {*_OF_THE_TURN, *_INTERNAL})
        if reserved:
            raise ValueError(f"{', '.join(reserved)} cannot be passed as a resource: {_WHO_SETS}")
        self.additional: dict[str, Any] = dict(additional)
        self._typed: dict[Any, Any] = {}
        self._in_progress: list[Allowance] = []

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _NOT_DONE and value is not None and (name, value) != ("trace_truncate", _TRACE_TRUNCATE):
            raise ValueError(
                f"{name}= is not supported: {_NOT_DONE[name]} (an object of your own goes under another name)"
            )
        if name in ("authorizer", "redactor") and value is not None and not callable(value):
            raise TypeError(f"{name}= is {value!r}: pass a function (see reactifact.guards)")
        if name == "quota" and value is not None and not isinstance(value, Quota):
            raise TypeError(f"quota= is {value!r}: pass a reactifact.guards.Quota")
        if name == "guardrails" and value is not None:
            value = (value,) if callable(value) else tuple(value)
            if not all(callable(one) for one in value):
                raise TypeError("guardrails= holds something that is no function (see reactifact.guards)")
        super().__setattr__(name, value)

    # -- guard rails ---------------------------------------------------------------------------

    @property
    def guards_access(self) -> bool:
        """Whether anybody is asked about writes and sends."""
        return self.authorizer is not None or bool(self.guardrails)

    def check(
        self, verb: str, artifact_id: str, data: BaseModel | None, current: BaseModel | None, author: str
    ) -> None:
        """Ask authorizer and guardrails about an access. Raises `NotAuthorized`, `GuardrailViolation`."""
        access = Access(verb, artifact_id, data, current, author, self.principal)
        check(access, self.authorizer, self.guardrails or ())

    def redact(self, value: Any) -> Any:
        """Return a text or a model as the redactor leaves it."""
        if self.redactor is None:
            return value
        return self.redactor(value) if isinstance(value, str) else redacted(value, self.redactor)

    @property
    def clock(self) -> Clock:
        """The clock of the runtime: the one passed as `clock=`, else the machine's."""
        found: Clock = self.additional.get("clock") or SYSTEM_CLOCK
        return found

    # -- the turns in progress -----------------------------------------------------------------

    def allowances(self) -> tuple[Allowance, ...]:
        """Return those of the turns on these resources that the present code runs in.

        The outermost first. Code outside of any turn's tasks (an older worker task that serves a
        produce) is taken to belong to the turn in progress, if there is one only.
        """
        own = tuple(turn for turn in _turns.get() if turn in self._in_progress)
        if own or len(self._in_progress) != 1:
            return own
        return tuple(self._in_progress)

    def allow(self, allowance: Allowance) -> Token[tuple[Allowance, ...]]:
        """Let a turn begin under an allowance; give the token to `end`."""
        self._in_progress.append(allowance)
        return _turns.set((*_turns.get(), allowance))

    def end(self, allowance: Allowance, token: Token[tuple[Allowance, ...]]) -> None:
        """Let a turn end that began under an allowance."""
        self._in_progress.remove(allowance)
        _turns.reset(token)

    @property
    def _innermost(self) -> Allowance | None:
        turns = self.allowances()
        return turns[-1] if turns else None

    @property
    def budget(self) -> Any:
        """The budget of the turn, `None` outside of one or without a budget."""
        turn = self._innermost
        return None if turn is None else turn.budget

    @property
    def budget_deadline(self) -> float | None:
        """When the turn is cancelled, in seconds of `clock.monotonic()`; `None` for never."""
        turn = self._innermost
        return None if turn is None else turn.deadline

    @property
    def budget_tracker(self) -> Any:
        """What the turn used so far, `None` outside of one."""
        turn = self._innermost
        return None if turn is None else turn.tracker

    # -- by name and by type -------------------------------------------------------------------

    def set(self, name: str, value: Any) -> None:
        """Set a named resource. Raises `ValueError` for one that the runtime sets."""
        if name in _OF_THE_TURN or name in _INTERNAL:
            raise ValueError(f"{name} cannot be set as a resource: {_WHO_SETS}")
        if name in self.__dict__:
            setattr(self, name, value)
        else:
            self.additional[name] = value

    def register(self, key: Any, value: T) -> T:
        """Register a resource under a type or a `ResourceKey`, and return it.

        Raises `TypeError` for a name: that is what `set` is for.
        """
        if isinstance(key, str):
            raise TypeError(f"register takes a type or a ResourceKey: use set({key!r}, ...) for a name")
        self._typed[key] = value
        return value

    @overload
    def get(self, key: ResourceKey[T]) -> T | None: ...
    @overload
    def get(self, key: Any) -> Any: ...
    def get(self, key: Any) -> Any:
        """Return the resource under a name, a type or a key, or `None`."""
        if isinstance(key, str):
            if key in self.additional:
                return self.additional[key]
            if key in _INTERNAL:
                return None
            return getattr(self, key) if key in _OF_THE_TURN else self.__dict__.get(key)
        return self._typed.get(key)

    @overload
    def require(self, key: ResourceKey[T]) -> T: ...
    @overload
    def require(self, key: Any) -> Any: ...
    def require(self, key: Any) -> Any:
        """Return the resource under a key. Raises `LookupError` naming it when there is none."""
        if not self.has(key):
            name = key if isinstance(key, str) else getattr(key, "name", getattr(key, "__name__", key))
            raise LookupError(
                f"no resource {name!r} is registered: pass it to RuntimeResources or register it"
            )
        return self.get(key)

    def has(self, key: Any) -> bool:
        """Tell whether there is a resource under a name, a type or a key."""
        return self.get(key) is not None

    @property
    def registered(self) -> tuple[Any, ...]:
        """The types and keys under which resources are registered, in their order."""
        return tuple(self._typed)

    def typed_values(self) -> list[Any]:
        """Return the resources registered under types and keys."""
        return list(self._typed.values())

    async def aclose(self) -> None:
        """Close the LLM and the embedder, where they can be closed.

        Both are closed even if one fails; the first failure is raised.
        """
        try:
            await _close(self.llm)
        finally:
            if self.embedder is not self.llm:
                await _close(self.embedder)

    @classmethod
    def scope(cls, factory: Callable[[], RuntimeResources | Awaitable[RuntimeResources]]) -> ResourceScope:
        """Return an async context manager that makes resources and closes them on exit."""
        return ResourceScope(factory)

    def __repr__(self) -> str:
        named = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        named |= {**named.pop("additional"), **{str(key): value for key, value in self._typed.items()}}
        shown = [name for name, value in named.items() if value is not None and name != "trace_truncate"]
        return f"RuntimeResources({', '.join(shown)})"


async def _close(resource: Any) -> None:
    close = getattr(resource, "aclose", None) or getattr(resource, "close", None)
    if close is not None:
        result = close()
        if inspect.isawaitable(result):
            await result


class ResourceScope:
    """Resources for the length of an `async with`."""

    def __init__(self, factory: Callable[[], Any]) -> None:
        self._factory = factory
        self._resources: RuntimeResources | None = None

    async def __aenter__(self) -> RuntimeResources:
        made = self._factory()
        self._resources = await made if inspect.isawaitable(made) else made
        assert self._resources is not None
        return self._resources

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._resources is not None:
            await self._resources.aclose()

    def __repr__(self) -> str:
        return f"ResourceScope({self._factory!r})"
