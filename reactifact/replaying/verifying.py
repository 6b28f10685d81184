"""Run replay: making a run again and saying whether it came out the same, and if not, where.

Owns `verify_run` and its report. Each run gets fresh resources with counted ids, a clock that steps,
and, if there is a recording, a model that answers from it. A build that can be imported by name is
run once more in a process of its own, because the order of a set of texts is the same all through
one process and another in the next.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ..context import Context
from ..context.resources import RuntimeResources
from . import recording as recordings
from .apart import RunApartFailed, is_importable, run_apart
from .clock import SteppingClock
from .hashes import counter_ids
from .llm import ReplayLLM
from .tracing import Divergence, Trace, first_difference

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
            f"build returned {type(made).__name__}, which is no context: return the Context of the run, "
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
