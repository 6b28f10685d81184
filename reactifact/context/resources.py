"""What produces may use besides artifacts: models, clocks, clients, anything registered.

Owns `RuntimeResources`, `ResourceKey` and `ResourceScope`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Generic, TypeVar

from ..clock import SYSTEM_CLOCK, Clock

T = TypeVar("T")


class ResourceKey(Generic[T]):
    """A name for a resource; two keys are the same only if they are the same object."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"ResourceKey({self.name!r})"


class RuntimeResources:
    """The resources of a context.

    The named ones are attributes; further ones are reached by name (`set`, `get("name")`) or by
    type or `ResourceKey` (`register`, `get`, `require`). `id_factory(type name)` makes ids;
    `clock` is what the runtime reads the time from; `principal` is the author of direct changes.
    """

    def __init__(
        self,
        llm: Any = None,
        embedder: Any = None,
        sources: Any = None,
        context_builder: Any = None,
        verification_threshold: float | None = None,
        redactor: Any = None,
        trace_truncate: int = 1500,
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
        self.budget: Any = None
        self.budget_deadline: float | None = None
        self.budget_tracker: Any = None
        self.additional: dict[str, Any] = dict(additional)
        self._typed: dict[Any, Any] = {}

    @property
    def clock(self) -> Clock:
        """The clock of the runtime: the one passed as `clock=`, else the machine's."""
        found: Clock = self.additional.get("clock") or SYSTEM_CLOCK
        return found

    def set(self, name: str, value: Any) -> None:
        """Set a named resource."""
        if name in self.__dict__ and name not in ("additional", "_typed"):
            setattr(self, name, value)
        else:
            self.additional[name] = value

    def register(self, key: Any, value: T) -> T:
        """Register a resource under a type or a `ResourceKey`, and return it."""
        self._typed[key] = value
        return value

    def get(self, key: Any) -> Any:
        """Return the resource under a name, a type or a key, or `None`."""
        if isinstance(key, str):
            if key in self.additional:
                return self.additional[key]
            return self.__dict__.get(key)
        return self._typed.get(key)

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

    def registered(self) -> list[Any]:
        """Return the types and keys under which resources are registered."""
        return list(self._typed)

    def typed_values(self) -> list[Any]:
        """Return the resources registered under types and keys."""
        return list(self._typed.values())

    async def aclose(self) -> None:
        """Close the LLM and the embedder, where they can be closed."""
        for resource in (self.llm, self.embedder):
            close = getattr(resource, "aclose", None) or getattr(resource, "close", None)
            if close is not None:
                result = close()
                if inspect.isawaitable(result):
                    await result

    @classmethod
    def scope(cls, factory: Callable[[], RuntimeResources | Awaitable[RuntimeResources]]) -> ResourceScope:
        """Return an async context manager that makes resources and closes them on exit."""
        return ResourceScope(factory)


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
