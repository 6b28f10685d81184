"""What an agent does: `Produce`, the `@produce` decorator, the call they are handed, and their retries.

Owns the declaration of what may be created and of what a produce reacts to. Running it is the
agent's and the runtime's.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, overload

from anyio.lowlevel import checkpoint_if_cancelled
from blake3 import blake3
from pydantic import BaseModel
from typing_extensions import TypeVar

from ._context.context import Context
from ._context.working_copy import current_scope
from ._store import canonical
from .artifacts import Artifact
from .effects import Effects, current_effects
from .errors import QuestionExpired, add_note
from .events import Event, EventType
from .interrupt import Options, TypedQuestion, Waiting
from .operations import Patch
from .request import current_request

__all__ = ["Produce", "ProduceCall", "produce"]


# -- the inputs of a call: a list that is made when it is first looked at --


class Inputs(Sequence[Artifact[Any]]):
    """The artifacts an agent's consumes match, in the snapshot of its execution.

    Behaves like a list (indexing, slicing, `+`, equality with lists). An execution that never
    looks at it pays nothing for it, and records no read.
    """

    def __init__(self, load: Callable[[], list[Artifact[Any]]]) -> None:
        self._load = load
        self._items: list[Artifact[Any]] | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether the list has been made."""
        return self._items is not None

    def forget(self) -> None:
        """Make the list anew when it is next looked at."""
        self._items = None

    def _list(self) -> list[Artifact[Any]]:
        if self._items is None:
            self._items = self._load()
        return self._items

    @overload
    def __getitem__(self, index: int) -> Artifact[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Artifact[Any]]: ...
    def __getitem__(self, index: int | slice) -> Artifact[Any] | list[Artifact[Any]]:
        return self._list()[index]

    def __len__(self) -> int:
        return len(self._list())

    def __iter__(self) -> Iterator[Artifact[Any]]:
        return iter(self._list())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Inputs):
            return self._list() == other._list()
        return self._list() == other if isinstance(other, list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Sequence[Artifact[Any]]) -> list[Artifact[Any]]:
        return [*self._list(), *other]

    def __radd__(self, other: Sequence[Artifact[Any]]) -> list[Artifact[Any]]:
        return [*other, *self._list()]

    def __repr__(self) -> str:
        """Show the list if it has been made: to print a call is not to read."""
        return "Inputs(not read yet)" if self._items is None else repr(self._items)


# -- trying a produce again: how often, on which errors, after which waits --


LONGEST_WAIT = 60.0
"""Seconds a doubled wait is cut to; a first wait that is longer stays as long as it is."""

Errors = type[Exception] | Iterable[type[Exception]]


class Backoff(NamedTuple):
    """Waits in seconds that double from `first` on, up to `longest`.

    `jitter` is the share of a wait that is random: a wait is shortened by at most that share, so that
    `longest` holds; 0 leaves it as it is.
    """

    first: float
    longest: float
    jitter: float = 0.0

    def wait(self, tries: int, share: Callable[[], float] = random.random) -> float:
        """Return the seconds to wait after `tries` failed tries; `share` gives a number from 0 to 1."""
        bounded = min(self.first * 2.0 ** min(tries - 1, 64), self.longest)
        return bounded * (1.0 - self.jitter * share()) if self.jitter else bounded


class Retries(NamedTuple):
    """How a produce is tried again: at most `times` times, after `backoff` seconds, then twice that ...

    `jitter` is as in `Backoff`.
    """

    times: int = 0
    errors: tuple[type[Exception], ...] = (Exception,)
    backoff: float = 0.5
    jitter: float = 0.0

    @classmethod
    def checked(cls, name: str, count: int, errors: Errors, backoff: float, jitter: float) -> Retries:
        """Return the retries of a produce. Raises `ValueError` or `TypeError` naming what is wrong."""
        if isinstance(count, bool) or not isinstance(count, int):
            raise TypeError(f"{name}: retries={count!r} is not a number: pass how often to try again")
        if count < 0:
            raise ValueError(f"{name}: retries={count} is below 0: pass how often to try again, 0 for never")
        if not backoff >= 0:
            raise ValueError(f"{name}: backoff={backoff!r} is not a wait: pass seconds, 0 for none")
        if not 0 <= jitter <= 1:
            raise ValueError(f"{name}: jitter={jitter!r} is not a share of a wait: pass 0 to 1")
        kinds: tuple[Any, ...] = (errors,) if isinstance(errors, type) else tuple(errors)
        for kind in kinds:
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                raise TypeError(
                    f"{name}: retry_on holds {kind!r}, which is not a class of Exception: a cancellation "
                    f"and other BaseExceptions are never tried again"
                )
        return cls(count, kinds, float(backoff), float(jitter))

    def wait(self, tries: int) -> float:
        """Return the seconds to wait after `tries` failed tries."""
        return Backoff(self.backoff, max(self.backoff, LONGEST_WAIT), self.jitter).wait(tries)


async def run_with_retries(
    once: Callable[[], Awaitable[None]],
    retries: Retries,
    context: Context,
    effects: Effects,
    inputs: Sequence[Any],
) -> None:
    """Run `once`, and again after an error that may be tried again.

    Effects and, inside an execution, direct changes of the failed try are dropped first; what it read
    stays read. The last error is raised as it is, with a note of how many tries there were.
    """
    scope = current_scope()
    for tries in range(1, retries.times + 2):
        if scope is not None:
            scope.questions = 0
        back = _savepoint(context, effects, inputs)
        try:
            await once()
            return
        except retries.errors as error:
            if tries > retries.times:
                add_note(error, f"raised by the last of {tries} tries (retries={retries.times})")
                raise
        back()
        await checkpoint_if_cancelled()  # an error that a cancellation was turned into ends here
        await context.resources.clock.sleep(retries.wait(tries))


def _savepoint(context: Context, effects: Effects, inputs: Sequence[Any]) -> Callable[[], None]:
    """Return a function that takes back what happens from now on.

    Outside of the runtime an agent works on the context itself, which others see and change too: its
    direct changes are not taken back there.
    """
    working = context.working
    planned = effects.savepoint()
    changed = working.savepoint() if working.is_private else None
    is_loaded = isinstance(inputs, Inputs) and inputs.is_loaded

    def back() -> None:
        effects.rollback(planned)
        if changed is not None:
            working.rollback(changed)
        if isinstance(inputs, Inputs) and not is_loaded:
            inputs.forget()

    return back


# -- what an agent does: `Produce`, the `@produce` decorator and the call they are handed --


M = TypeVar("M", bound=BaseModel, default=Any)
K = TypeVar("K", bound=BaseModel, default=Any)
T = TypeVar("T")
T_co = TypeVar("T_co", bound=BaseModel | None, covariant=True, default=Any | None)

Types = type[BaseModel] | Iterable[type[BaseModel]]
Function = Callable[["ProduceCall[Any]"], Any]


def _required_effects() -> Effects:
    effects = current_effects()
    if effects is None:
        raise RuntimeError(
            "effects are there only while a produce runs: use the context for changes outside of a run"
        )
    return effects


if TYPE_CHECKING:

    class _Trigger:
        """The type of `ProduceCall.trigger`, which follows from the type argument of the call."""

        @overload
        def __get__(self, call: ProduceCall[K], owner: type | None = None) -> Artifact[K]: ...
        @overload
        def __get__(self, call: ProduceCall[K | None], owner: type | None = None) -> Artifact[K] | None: ...
        def __get__(self, call: ProduceCall[Any], owner: type | None = None) -> Any: ...


@dataclass(frozen=True)
class ProduceCall(Generic[T_co]):
    """What a produce is handed: the context, the agent's inputs, the event and its artifact.

    `ProduceCall[Order]` says that an `Order` triggers the produce: `trigger` is an `Artifact[Order]`
    then. Without a type argument, or with `ProduceCall[Order | None]`, it may be `None`, as it is for a
    deletion. The argument is for the type checker alone; `reacts_to` is what decides.
    """

    context: Context
    inputs: Sequence[Artifact[Any]]
    event: Event | None
    if TYPE_CHECKING:
        trigger = _Trigger()

        def __init__(
            self,
            context: Context,
            inputs: Sequence[Artifact[Any]],
            event: Event | None,
            trigger: Artifact[Any] | None,
        ) -> None: ...
    else:
        trigger: Artifact[Any] | None

    @property
    def effects(self) -> Effects:
        """The effects of this execution. Raises `RuntimeError` outside of a run."""
        return _required_effects()

    @property
    def request(self) -> Mapping[str, Any]:
        """What `arun(request=)` was given; empty when nothing was."""
        return current_request()

    @overload
    async def memo(self, key: str, function: Callable[[], Awaitable[T]]) -> T: ...
    @overload
    async def memo(self, key: str, function: Callable[[], T]) -> T: ...
    async def memo(self, key: str, function: Callable[[], Any]) -> Any:
        """Return the result of a costly call, which is made once for all tries of this execution.

        A try after an error, a cut or (with `session_save_policy="per_step"`) a kill gets the value that
        was kept under `key`, as long as every version the execution had read by then is unchanged.
        The value is a pydantic model, JSON data, or a list or dictionary of these. Raises `PayloadError` for
        another one, `InvalidName` or `TypeError` for a key that is not a text with something in it,
        `RuntimeError` outside of a run.
        """
        scope = current_scope()
        if scope is None or scope.memos is None:
            raise RuntimeError("call.memo is there only while a produce runs")
        return await scope.memos.recall(key, function)

    async def ask(
        self,
        model: type[M],
        question: str,
        *,
        deadline: datetime | timedelta | None = None,
        options: Options | None = None,
        key: str | None = None,
        kind: str = "general",
        notes: dict[str, Any] | None = None,
    ) -> M:
        """Ask a human and return the answer, a `model`; the execution waits for it without running.

        Where there is no answer yet, the execution ends here: the question is committed, and nothing else
        that it planned. When it is answered, or its deadline has passed, the agent is run again on the
        same event, from the start, and comes by here with the answer; what `call.memo` keeps is not
        paid again. `key` tells the questions of one execution apart, by default their order does.
        `deadline` is an aware time, or a timedelta from when it is first asked; `options` are the only
        answers that are taken. Raises `QuestionExpired` after the deadline, `AnswerInvalid` for options,
        `ValueError` for a naive deadline, `RuntimeError` where no runtime runs the agent.
        """
        scope = current_scope()
        if scope is None or scope.asker is None or scope.asker[1] is None:
            raise RuntimeError(
                "call.ask waits for an answer, and needs a Runtime that runs the agent again: run it by one, "
                "or use effects.ask"
            )
        scope.questions += 1
        agent, event = scope.asker
        question_id = _question_id(agent, event, key if key is not None else f"#{scope.questions}")
        found = self.context.get(question_id)
        if found is None:
            now = self.context.resources.clock.now()
            asked = TypedQuestion.asking(
                model,
                question,
                now=now,
                deadline=deadline,
                options=options,
                kind=kind,
                notes=notes or {},
                asked_by=agent,
                asked_on=event.to_dict(),
            )
            raise Waiting(question_id, asked)
        data = found.data
        if not isinstance(data, TypedQuestion):
            raise TypeError(f"artifact {question_id!r} has the id of a question and is none")
        if data.expired and not data.answered:
            raise QuestionExpired(f"question {question_id!r} was not answered until {data.deadline}")
        if not data.answered:
            raise Waiting(question_id, None)
        return model.model_validate(data.resolution)


def _question_id(agent: str, event: Event, key: str) -> str:
    text = canonical.one_line([agent, event.to_dict(), key])
    return f"question:{blake3(text.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def as_types(given: Types | None) -> tuple[type[BaseModel], ...]:
    """Return one type or several as a tuple. Raises `TypeError` for what is not a model class."""
    if given is None:
        return ()
    types: tuple[Any, ...] = (given,) if isinstance(given, type) else tuple(given)
    for kind in types:
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
            raise TypeError(f"{kind!r} is not an artifact type: pass a class that derives from BaseModel")
    return types


class Produce(Generic[M]):
    """One piece of an agent's work.

    Subclass it and write `async def produce(self, call)`, or use `@produce`. A bare `Produce(X)`
    does nothing and only widens what the agent may create.

    With `retries` it is tried again inside its execution, that many times at most, after an error of
    `retry_on`: first after `backoff` seconds of the clock, then after twice that and so on, up to a
    minute, each shortened by a random share of at most `jitter`. What a failed try has planned and
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

    async def produce(self, call: ProduceCall[Any]) -> Any:
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

    async def run(self, call: ProduceCall[Any]) -> None:
        """Run the produce and plan what it returns: a model, models, or a patch."""
        effects = _required_effects()
        if not self.retries:
            plan_result(effects, await self.produce(call))
            return

        async def once() -> None:
            plan_result(effects, await self.produce(call))

        await run_with_retries(once, self.retry_policy(), call.context, effects, call.inputs)

    def __repr__(self) -> str:
        creates = ", ".join(kind.__name__ for kind in self.creates)
        return f"{type(self).__name__}({self.name!r}, creates {creates})"


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

    async def produce(self, call: ProduceCall[Any]) -> Any:
        """Call the function."""
        result = self.function(call)
        return await result if type(result) is CoroutineType or isinstance(result, Awaitable) else result


def produce(
    artifact_type: type[BaseModel],
    *,
    also_creates: Types | None = None,
    reacts_to: type[K] | Iterable[type[BaseModel]] | None = None,
    retries: int = 0,
    retry_on: Errors = (Exception,),
    backoff: float = 0.5,
    jitter: float = 0.0,
) -> Callable[[Callable[[ProduceCall[K]], Any]], FunctionProduce]:
    """Make a produce of a sync or async function of one argument, the call.

    Where `reacts_to` is one type, the type checker holds the argument of the function against it
    (`ProduceCall[Order]`). `retries`, `retry_on`, `backoff` and `jitter` are as in `Produce`.
    """

    def decorate(function: Callable[[ProduceCall[K]], Any]) -> FunctionProduce:
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
