"""What a run did, step by step, in a form in which two runs can be compared; and where they part.

Owns `Trace` and `Divergence`. Ids of commits, times of commits and run ids are no part of a trace:
they differ between equal runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from typing import Any

from ..context import Context
from ..store import canonical
from ..store.history import first_parents
from ..store.records import CommitRecord, operation_payload
from .hashes import View, plain_data, state_digest

_SHOWN = 80
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
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
