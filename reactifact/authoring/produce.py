"""What an agent does: `Produce`, the `@produce` decorator and the call they are handed.

Owns the declaration of what may be created and of what a produce reacts to. Running it is the
agent's and the runtime's.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel

from ..context import Context
from ..context.artifacts import Artifact
from ..context.events import Event, EventType
from ..context.operations import Patch
from .effects import Effects, current_effects
from .request import current_request
from .retries import Errors, Retries, run_with_retries

M = TypeVar("M", bound=BaseModel)

Types = type[BaseModel] | Iterable[type[BaseModel]]
Function = Callable[["ProduceCall"], Any]


def _required_effects() -> Effects:
    effects = current_effects()
    if effects is None:
        raise RuntimeError(
            "effects are there only while a produce runs: use the context for changes outside of a run"
        )
    return effects


@dataclass(frozen=True)
class ProduceCall:
    """What a produce is handed: the context, the agent's inputs, the event and its artifact."""

    context: Context
    inputs: Sequence[Artifact[Any]]
    event: Event | None
    trigger: Artifact[Any] | None

    @property
    def effects(self) -> Effects:
        """The effects of this execution. Raises `RuntimeError` outside of a run."""
        return _required_effects()

    @property
    def request(self) -> Mapping[str, Any]:
        """What `arun(request=)` was given; empty when nothing was."""
        return current_request()


def as_types(given: Types | None) -> tuple[type[BaseModel], ...]:
    """Return one type or several as a tuple. Raises `TypeError` for what is no model class."""
    if given is None:
        return ()
    types: tuple[Any, ...] = (given,) if isinstance(given, type) else tuple(given)
    for kind in types:
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
            raise TypeError(f"{kind!r} is no artifact type: pass a class that derives from BaseModel")
    return types


class Produce(Generic[M]):
    """One piece of an agent's work.

    Subclass it and write `async def produce(self, call)`, or use `@produce`. A bare `Produce(X)`
    does nothing and only widens what the agent may create.

    With `retries` it is tried again inside its execution, that many times at most, after an error of
    `retry_on`: first after `backoff` seconds of the clock, then after twice that and so on, up to a
    minute, plus a random share of at most `jitter` of the wait. What a failed try has planned and
    changed is dropped first. A cancellation is never tried again.
    """

    artifact_type: type[BaseModel] | None = None
    also_creates: Types | None = None
    reacts_to: Types | None = None
    retries: int = 0
    retry_on: Errors = (Exception,)
    backoff: float = 0.5
    jitter: float = 0.0

    def __init__(
        self,
        artifact_type: type[BaseModel] | None = None,
        *,
        also_creates: Types | None = None,
        reacts_to: Types | None = None,
        retries: int | None = None,
        retry_on: Errors | None = None,
        backoff: float | None = None,
        jitter: float | None = None,
    ) -> None:
        cls = type(self)
        kind = artifact_type if artifact_type is not None else cls.artifact_type
        if kind is None:
            raise ValueError(
                f"{cls.__name__} has no artifact type: pass one, set artifact_type on the class, "
                f"or derive from Produce[YourModel]"
            )
        self.artifact_type = as_types(kind)[0]
        self.also_creates = (*as_types(also_creates), *as_types(cls.also_creates))
        wanted = reacts_to if reacts_to is not None else cls.reacts_to
        self.reacts_to = as_types(wanted) or None
        is_bare = cls is Produce or cls.__dict__.get("_is_parametrised", False)
        self.name: str = f"Produce[{self.artifact_type.__name__}]" if is_bare else cls.__name__
        self.retries = cls.retries if retries is None else retries
        self.retry_on = cls.retry_on if retry_on is None else retry_on
        self.backoff = cls.backoff if backoff is None else backoff
        self.jitter = cls.jitter if jitter is None else jitter
        self.retry_policy()  # what is wrong with it shows here, not after the first error

    if not TYPE_CHECKING:

        def __class_getitem__(cls, item: Any) -> Any:
            if item is Any or not isinstance(item, type):  # Any is a class to Python 3.11
                return super().__class_getitem__(item)
            made = type(f"Produce[{item.__name__}]", (cls,), {"artifact_type": item})
            made._is_parametrised = True
            return made

    @property
    def creates(self) -> tuple[type[BaseModel], ...]:
        """Every type the produce may create."""
        return (*as_types(self.artifact_type), *as_types(self.also_creates))

    @property
    def effects(self) -> Effects:
        """The effects of the running execution. Raises `RuntimeError` outside of a run."""
        return _required_effects()

    async def produce(self, call: ProduceCall) -> Any:
        """Do the work; override this. A bare produce does nothing."""

    def accepts(self, event: Event | None, trigger: Artifact[Any] | None) -> bool:
        """Tell whether the produce runs for an event."""
        if self.reacts_to is None:
            return True
        if event is None or event.artifact_type not in as_types(self.reacts_to):
            return False
        return trigger is not None or event.type == EventType.ARTIFACT_DELETED

    def retry_policy(self) -> Retries:
        """Return how the produce is tried again. Raises `ValueError` and `TypeError`."""
        return Retries.checked(self.name, self.retries, self.retry_on, self.backoff, self.jitter)

    async def run(self, call: ProduceCall) -> None:
        """Run the produce and plan what it returns: a model, models, or a patch."""
        effects = _required_effects()
        if not self.retries:
            plan_result(effects, await self.produce(call))
            return

        async def once() -> None:
            plan_result(effects, await self.produce(call))

        await run_with_retries(once, self.retry_policy(), call.context, effects, call.inputs)


def plan_result(effects: Effects, result: Any) -> None:
    """Plan what a produce returned. Raises `TypeError` for anything but models and patches."""
    if result is None:
        return
    if isinstance(result, Patch):
        effects.extend(result)
    elif isinstance(result, BaseModel):
        effects.create(result)
    elif isinstance(result, list | tuple):
        for item in result:
            plan_result(effects, item)
    else:
        raise TypeError(
            f"a produce returned {type(result).__name__}: return a model, a list of models, a Patch or None"
        )


class FunctionProduce(Produce[Any]):
    """A produce made from a function."""

    def __init__(self, function: Function, kind: type[BaseModel], **options: Any) -> None:
        self.function = function
        super().__init__(kind, **options)
        self.name = getattr(function, "__name__", "produce")
        self.__doc__ = function.__doc__

    async def produce(self, call: ProduceCall) -> Any:
        """Call the function."""
        result = self.function(call)
        return await result if isinstance(result, Awaitable) else result


def produce(
    artifact_type: type[BaseModel],
    *,
    also_creates: Types | None = None,
    reacts_to: Types | None = None,
    retries: int = 0,
    retry_on: Errors = (Exception,),
    backoff: float = 0.5,
    jitter: float = 0.0,
) -> Callable[[Function], FunctionProduce]:
    """Make a produce of a sync or async function of one argument, the call.

    `retries`, `retry_on`, `backoff` and `jitter` are as in `Produce`.
    """

    def decorate(function: Function) -> FunctionProduce:
        if not callable(function):
            raise TypeError(f"@produce decorates a function, not {type(function).__name__}")
        try:
            inspect.signature(function).bind(None)
        except TypeError as error:
            name = getattr(function, "__name__", function)
            raise TypeError(f"{name} must take exactly one argument, the call: {error}") from error
        return FunctionProduce(
            function,
            artifact_type,
            also_creates=also_creates,
            reacts_to=reacts_to,
            retries=retries,
            retry_on=retry_on,
            backoff=backoff,
            jitter=jitter,
        )

    return decorate
