"""A run repeated and compared: in this process and in a fresh one, with a clock that steps.

Owns `verify_run`, the traces it compares, and where two runs part.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Any

import anyio
import anyio.lowlevel

from .._context.context import Context
from .._store import canonical
from .._store.commits import CommitRecord, operation_payload
from .._store.graph import first_parents
from ..errors import ReactifactError
from ..resources import RuntimeResources
from ..threads import calls_in_flight
from . import llm as recordings
from .hashes import View, counter_ids, plain_data, state_digest
from .llm import ReplayLLM

# -- the clock that a repeated run is given: every look at it is one fixed step later --


START = datetime(2030, 1, 1, tzinfo=UTC)
STEP = timedelta(milliseconds=1)
_IDLE_ROUNDS = 50


class SteppingClock:
    """A clock that begins at `start` and is `step` later at each `now()`."""

    def __init__(self, start: datetime = START, step: timedelta = STEP) -> None:
        self._now = start
        self._step = step
        self._waited = 0.0
        self._due: list[float] = []

    def now(self) -> datetime:
        """Return the present time of this clock, aware, in UTC, and let a step pass."""
        self._now += self._step
        return self._now

    def monotonic(self) -> float:
        """Return the seconds that were waited for on this clock."""
        return self._waited

    async def sleep(self, seconds: float) -> None:
        """Wait until `seconds` have passed on this clock, those of other waits included."""
        due = self._waited + max(0.0, seconds)
        await anyio.lowlevel.checkpoint()
        self._due.append(due)
        try:
            while self._waited < due:
                await _idle()
                if due <= min(self._due) and self._waited < due:
                    self._now += timedelta(seconds=due - self._waited)
                    self._waited = due
        finally:
            self._due.remove(due)

    def __repr__(self) -> str:
        return f"SteppingClock(at {self._now.isoformat()})"


async def _idle() -> None:
    """Return when the other tasks have had nothing to do for a while."""
    rounds = 0
    while rounds < _IDLE_ROUNDS:
        await anyio.lowlevel.checkpoint()
        rounds = 0 if calls_in_flight() else rounds + 1


# -- what a run did, step by step, in a form in which two runs can be compared; and where they part --


_TRACING_SHOWN = 80
_ABSENT = "nothing"


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place at which two runs differ. `field` is a dotted path into the data."""

    generation: int
    agent: str
    artifact_id: str
    field: str
    first: str
    other: str

    def __str__(self) -> str:
        where = f"artifact {self.artifact_id}" if self.artifact_id else "the run"
        what = f", {self.field}" if self.field else ""
        return (
            f"generation {self.generation}, {self.agent or 'application'}: {where}{what}: "
            f"{self.first} in one run, {self.other} in another"
        )


@dataclass(slots=True)
class Trace:
    """A run: its hash, its steps in order, and the state it ended in. Plain JSON types throughout."""

    hash: str
    steps: list[dict[str, Any]] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, context: Context) -> Trace:
        """Return what the run of a context did."""
        view = View.of(context)
        line = view.line
        line.seal()
        records = [record for _, record in first_parents(line.objects, line.tip) if record is not None]
        steps = [_step(view, record) for record in reversed(records) if record.operations]
        return cls(state_digest(view), steps, _state(view))

    def to_dict(self) -> dict[str, Any]:
        """Return the trace as plain JSON types."""
        return asdict(self)


def _step(view: View, record: CommitRecord) -> dict[str, Any]:
    return {
        "generation": record.generation,
        "agent": record.author,
        "operations": [_operation(view, op) for op in record.operations],
    }


def _operation(view: View, operation: dict[str, Any]) -> dict[str, Any]:
    if operation["type"] in ("link", "unlink"):
        names = ("type", "artifact_id", "relation", "target_id")
        return {name: operation.get(name) for name in names}
    payload = operation_payload(view.line.objects, operation) if "payload" in operation else None
    return {
        "type": operation["type"],
        "artifact_id": operation["artifact_id"],
        "class": view.class_name(operation.get("data_type") or ""),
        "version": operation.get("version"),
        "data": None if payload is None else canonical.decode(payload),
    }


def _state(view: View) -> dict[str, Any]:
    working = view.working
    found = {}
    for artifact_id in working.state.ids_of(working.state.type_ids()):
        stored = working.state.stored(artifact_id)
        assert stored is not None
        found[artifact_id] = {
            "class": view.class_name(stored.meta.type_id),
            "version": working.version_of(stored.meta),
            "data": plain_data(working, stored.meta),
        }
    relations = [relation.to_dict() for relation in working.relations()]
    return {"artifacts": found, "relations": relations, "version": view.line.version}


# -- comparing -----------------------------------------------------------------------------------


def first_difference(first: Trace, other: Trace) -> Divergence | None:
    """Return where two runs part, by their steps, else by the states they ended in."""
    generation, agent = 0, ""
    for mine, theirs in zip_longest(first.steps, other.steps):
        step = mine or theirs
        generation, agent = step["generation"] or generation, step["agent"]
        found = _in_step(mine, theirs, generation)
        if found is not None:
            return found
    return _in_state(first.state, other.state, generation, agent)


def _in_step(mine: Any, theirs: Any, generation: int) -> Divergence | None:
    if mine is None or theirs is None or mine["agent"] != theirs["agent"]:
        first, other = _who(mine), _who(theirs)
        step = mine or theirs
        operations = step["operations"]
        artifact_id = operations[0]["artifact_id"] if operations else ""
        return Divergence(generation, step["agent"], artifact_id, "", first, other)
    for left, right in zip_longest(mine["operations"], theirs["operations"]):
        found = _in_operation(left, right)
        if found is not None:
            artifact_id, where, first, other = found
            return Divergence(generation, mine["agent"], artifact_id, where, first, other)
    return None


def _who(step: Any) -> str:
    if step is None:
        return "no further commit"
    ids = ", ".join(op["artifact_id"] for op in step["operations"][:3])
    return f"{step['agent']} writes {ids}"


def _in_operation(left: Any, right: Any) -> tuple[str, str, str, str] | None:
    if left == right:
        return None
    if left is None or right is None:
        operation = left or right
        shown = _shown(f"{operation['type']} {operation['artifact_id']}")
        return operation["artifact_id"], "", *((shown, _ABSENT) if left else (_ABSENT, shown))
    for name in ("artifact_id", "type"):
        if left[name] != right[name]:
            where = "id" if name == "artifact_id" else name
            return left["artifact_id"], where, _shown(left[name]), _shown(right[name])
    where, first, other = _in_data(left, right, "")
    return left["artifact_id"], where.removeprefix("data."), first, other


def _in_state(first: Any, other: Any, generation: int, agent: str) -> Divergence | None:
    if first == other:
        return None
    mine, theirs = first["artifacts"], other["artifacts"]
    for artifact_id in sorted(mine.keys() | theirs.keys()):
        left, right = mine.get(artifact_id), theirs.get(artifact_id)
        if left == right:
            continue
        if left is None or right is None:
            shown = _shown((left or right)["class"])
            ends = (shown, _ABSENT) if left else (_ABSENT, shown)
            return Divergence(generation, agent, artifact_id, "id", *ends)
        where, *ends_of = _in_data(left, right, "")
        return Divergence(generation, agent, artifact_id, where.removeprefix("data."), *ends_of)
    where, left, right = _in_data(
        {k: v for k, v in first.items() if k != "artifacts"},
        {k: v for k, v in other.items() if k != "artifacts"},
        "",
    )
    return Divergence(generation, agent, "", where, left, right)


def _in_data(left: Any, right: Any, path: str) -> tuple[str, str, str]:
    """Return the path of the first part of two unequal values that differs, and both parts."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for name in sorted(left.keys() | right.keys()):
            if name not in left or name not in right or left[name] != right[name]:
                inner = f"{path}.{name}" if path else str(name)
                if name in left and name in right:
                    return _in_data(left[name], right[name], inner)
                return inner, _shown(left.get(name, _ABSENT)), _shown(right.get(name, _ABSENT))
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, (mine, theirs) in enumerate(zip(left, right, strict=True)):
            if mine != theirs:
                return _in_data(mine, theirs, f"{path}[{index}]")
    return path, _shown(left), _shown(right)


def _shown(value: Any) -> str:
    text = value if value is _ABSENT else repr(value)
    return text if len(text) <= _TRACING_SHOWN else text[: _TRACING_SHOWN - 3] + "..."


# -- one run in an interpreter of its own, with another order of sets --


_PROGRAM = "import sys; sys.path[:] = {path!r}; from reactifact.replay.runs import serve; serve({order!r})"
_SHOWN = 2000


class RunApartFailed(ReactifactError):
    """The run in a process of its own did not come to its end; its traceback is in the text."""


def is_importable(function: Callable[..., Any]) -> bool:
    """Tell whether another process finds a function by its module and name."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if not module or not name or "<" in name or module == "__main__":
        return False
    try:
        found = importlib.util.find_spec(module) is not None and _find(module, name) is function
    except (ImportError, AttributeError, ValueError):
        return False
    return found


def _find(module: str, name: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


async def run_apart(
    build: Callable[..., Any], recording: str | None, factory: Callable[..., Any] | None
) -> Trace:
    """Make one run in a fresh interpreter and return what it did. Raises `RunApartFailed`."""
    with tempfile.TemporaryDirectory(prefix="reactifact-run-") as folder:
        is_asyncio = anyio.get_cancelled_exc_class() is asyncio.CancelledError
        result = os.path.join(folder, "trace.json")
        order = {
            "build": [build.__module__, build.__qualname__],
            "factory": None if factory is None else [factory.__module__, factory.__qualname__],
            "recording": None if recording is None else os.path.abspath(recording),
            "loop": "asyncio" if is_asyncio else "trio",
            "result": result,
        }
        program = _PROGRAM.format(path=[os.path.abspath(part) for part in sys.path], order=order)
        # -R: hashes of texts, and so the order of sets, are drawn anew
        done = await anyio.run_process([sys.executable, "-R", "-c", program], check=False)
        if done.returncode != 0:
            text = done.stderr.decode(errors="replace")[-_SHOWN:]
            raise RunApartFailed(
                f"{build.__module__}.{build.__qualname__} failed in a process of its own (separate=False "
                f"keeps it in this one):\n{text}"
            )
        with open(result, encoding="utf-8") as file:
            return Trace(**json.load(file))


def serve(order: dict[str, Any]) -> None:
    """Do what `run_apart` asks for (called in the fresh interpreter)."""
    # it needs this module

    build = _find(*order["build"])
    factory = None if order["factory"] is None else _find(*order["factory"])
    trace = anyio.run(trace_run, build, order["recording"], factory, backend=order["loop"])
    with open(order["result"], "w", encoding="utf-8") as file:
        json.dump(trace.to_dict(), file)


# -- run replay: making a run again and saying whether it came out the same, and if not, where --


Build = Callable[[RuntimeResources], Awaitable[Any]]
ResourcesFactory = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class ReproReport:
    """What the runs came to. `hashes` has the `context_hash` of each, in order.

    `divergence` says where the first two runs that differ part; `None` where all agree.
    `is_separate` tells whether the last run had a process, and an order of sets, of its own; `note`
    says why it had not where that was tried.
    """

    ok: bool
    hashes: list[str]
    repeat: int
    recording: str | None = None
    divergence: Divergence | None = None
    is_separate: bool = False
    note: str = ""

    def __str__(self) -> str:
        if self.ok:
            return f"{self.repeat} runs agree: {self.hashes[0]}"
        return f"the runs differ: {self.divergence}"


async def verify_run(
    build: Build,
    *,
    recording: str | os.PathLike[str] | None = None,
    repeat: int = 2,
    resources_factory: ResourcesFactory | None = None,
    separate: bool | None = None,
) -> ReproReport:
    """Run `await build(resources)` `repeat` times and compare the states it returns.

    `build` returns a `Context`, or something with a `context` (a `Runtime`, a `Session`).
    `resources_factory` makes the resources of a run; ids, clock and, with a `recording`, the model are
    put in where it has not set its own. The last run is made in a fresh interpreter where `build` and
    `resources_factory` are functions at the top level of importable modules: only there do sets of texts
    have another order. `separate=True` insists on that, `False` forbids it.

    Raises `ValueError` for a `repeat` below 2 and for a `build` that `separate=True` cannot import,
    `RunApartFailed` where that run was insisted on and fails, `TypeError` where `build` returns no
    context; what `build` raises is passed on.
    """
    if repeat < 2:
        raise ValueError(f"repeat={repeat}: one run has nothing to be compared with; pass repeat=2 or more")
    place = None if recording is None else os.fspath(recording)
    importable = is_importable(build) and (resources_factory is None or is_importable(resources_factory))
    if separate and not importable:
        raise ValueError(
            f"separate=True needs a build that another process can import, and {build!r} is none: put it, "
            f"and the resources_factory, at the top level of a module"
        )
    is_separate = importable and separate is not False
    note = ""
    traces = [await trace_run(build, place, resources_factory) for _ in range(repeat - 1)]
    if is_separate:
        try:
            traces.append(await run_apart(build, place, resources_factory))
        except RunApartFailed as error:
            if separate:
                raise
            is_separate, note = False, str(error)
    if not is_separate:
        traces.append(await trace_run(build, place, resources_factory))
    divergence = None
    for trace in traces[1:]:
        if trace.hash != traces[0].hash:
            divergence = first_difference(traces[0], trace)
            break
    hashes = [trace.hash for trace in traces]
    return ReproReport(len(set(hashes)) == 1, hashes, repeat, place, divergence, is_separate, note)


async def trace_run(build: Build, recording: str | None, resources_factory: ResourcesFactory | None) -> Trace:
    """Make one run and return what it did."""
    resources = await _resources(recording, resources_factory)
    made = await build(resources)
    context = made if isinstance(made, Context) else getattr(made, "context", None)
    if not isinstance(context, Context):
        raise TypeError(
            f"build returned {type(made).__name__}, which is not a context: return the Context of the run, "
            f"or its Runtime or Session"
        )
    return Trace.of(context)


async def _resources(recording: str | None, factory: ResourcesFactory | None) -> RuntimeResources:
    made = RuntimeResources() if factory is None else factory()
    resources: RuntimeResources = await made if inspect.isawaitable(made) else made
    if resources.id_factory is None:
        resources.id_factory = counter_ids()
    if resources.get("clock") is None:
        resources.set("clock", SteppingClock())
    if recording is not None:
        resources.llm = ReplayLLM(recording, model=_model(recording, resources))
    return resources


def _model(recording: str, resources: RuntimeResources) -> str:
    """Return the model that was recorded; where there are several, the one the resources name."""
    names = {call.model for call in recordings.load(recording)}
    if len(names) == 1:
        return names.pop()
    return str(getattr(resources.llm, "model", None) or "")
