"""Deciding what both sides changed: merge functions of types, and the policy of one merge.

Owns when a merge function runs, what a policy may answer, and `MergePreview`. A decision is a
version in the plan; nothing is applied here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import BaseModel

from ..errors import add_note
from ..store.canonical import content_hash
from ..store.database import Objects, Staging
from ..store.merge import Clash, Combined, Content, MergePlan, Version
from ..store.state import Stored
from .codec import decode_payload
from .conflicts import ConflictDetail, details_of
from .encoding import Encoded, encode
from .merge_functions import CONFLICT
from .relations import Relation
from .types import (
    MergeFunction,
    TypeNotFoundError,
    merge_function_of,
    resolve,
    revision_of,
    warn_process_local,
)
from .undeclared import over, rest_of_both, same_as_read

Policy = Literal["ours", "theirs"] | Callable[[ConflictDetail], Any]
"""How one merge settles its conflicts.

A callable gets the detail and returns a model to store, `detail.ours` or `detail.theirs`, or the
text `"ours"` or `"theirs"` (also for a side that deleted the artifact). `CONFLICT` or `None` leaves
the conflict; what it raises reaches the caller. Nothing is applied in either case.
"""


@dataclass(frozen=True)
class MergePreview:
    """What a merge would do, after its policy and the merge functions; all sorted by id.

    `adopted` are the ids taken over as the other side has them, `combined` those that get a new
    version made of both sides.
    """

    adopted: tuple[str, ...] = ()
    combined: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    linked: tuple[Relation, ...] = ()
    unlinked: tuple[Relation, ...] = ()
    conflicts: tuple[str, ...] = ()
    details: tuple[ConflictDetail, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the merge would take nothing over and has no conflict."""
        return self == MergePreview()

    def __str__(self) -> str:
        lines = [f"adopt {name}" for name in self.adopted]
        lines += [f"combine {name}" for name in self.combined]
        lines += [f"delete {name}" for name in self.deleted]
        lines += [f"link {r.source_id} {r.relation} {r.target_id}" for r in self.linked]
        lines += [f"unlink {r.source_id} {r.relation} {r.target_id}" for r in self.unlinked]
        lines += [f"conflict {detail}" for detail in self.details]
        return "\n".join(lines) or "nothing to take over"


def preview(objects: Objects, plan: MergePlan) -> MergePreview:
    """Return a plan as it is shown."""
    details = details_of(objects, plan.clashes)
    return MergePreview(
        adopted=tuple(sorted(stored.meta.id for stored in plan.adopt)),
        combined=tuple(item.artifact_id for item in plan.combine),
        deleted=tuple(plan.delete),
        linked=tuple(Relation(*link) for link in sorted(plan.link)),
        unlinked=tuple(Relation(*link) for link in sorted(plan.unlink)),
        conflicts=tuple(detail.summary for detail in details),
        details=tuple(details),
    )


class Combiner:
    """Runs the merge functions of types on stored versions. What they make is staged in `scratch`."""

    def __init__(self, objects: Objects, scratch: Staging, *, durable: bool) -> None:
        self._objects = objects
        self._scratch = scratch
        self._durable = durable
        self._functions: dict[str, tuple[type[BaseModel], MergeFunction] | None] = {}

    def has(self, type_id: str) -> bool:
        """Tell whether the type resolves and has a merge function."""
        return self._function(type_id) is not None

    def _function(self, type_id: str) -> tuple[type[BaseModel], MergeFunction] | None:
        if type_id not in self._functions:
            try:
                model = resolve(type_id)
                function = merge_function_of(model)
            except TypeNotFoundError:
                function = None
            self._functions[type_id] = None if function is None else (model, function)
        return self._functions[type_id]

    def __call__(self, artifact_id: str, base: Version, ours: Version, theirs: Version) -> Version | None:
        """Return what the function makes of two sides of one class; `None` where it leaves a conflict."""
        assert ours.stored is not None
        assert theirs.stored is not None
        found = self._function(ours.stored.meta.type_id)
        if found is None or self._function(theirs.stored.meta.type_id) != found:
            return None
        model, function = found
        below = None
        if base.stored is not None:
            if self._function(base.stored.meta.type_id) != found:
                return None
            below = self._model(model, base)
        left, right = self._model(model, ours), self._model(model, theirs)
        keeper = self._keeper(model, base, ours, theirs)
        if keeper is None:
            return None  # both changed fields that this class does not declare
        try:
            result = function(below, left, right)
            if result is CONFLICT:
                return None
            return self.made(result, ours, f"the merge function of {ours.stored.meta.type_id!r}", keeper)
        except Exception as error:
            add_note(error, f"raised while artifact {artifact_id!r} was merged; nothing was applied")
            raise

    def _model(self, model: type[BaseModel], version: Version) -> BaseModel:
        assert version.stored is not None
        meta = version.stored.meta
        payload = self._objects.read(meta.payload).data
        return decode_payload(model, payload, type_id=meta.type_id, revision=meta.revision)

    def _encoded(self, model: type[BaseModel], version: Version) -> Encoded:
        assert version.stored is not None
        meta = version.stored.meta
        return Encoded(meta.type_id, self._objects.read(meta.payload).data, meta.revision, model)

    def _keeper(
        self, model: type[BaseModel], base: Version, ours: Version, theirs: Version
    ) -> Encoded | None:
        """Return the side that lends a combined version the fields which the class does not declare."""
        mine, other = self._encoded(model, ours), self._encoded(model, theirs)
        if {mine.revision, other.revision} == {revision_of(model)}:
            return mine  # there are none
        return rest_of_both(None if base.stored is None else self._encoded(model, base), mine, other)

    def is_same(self, one: Version, other: Version) -> bool:
        """Tell whether two different payloads are the same data to the present class of their type."""
        assert one.stored is not None
        assert other.stored is not None
        left, right = one.stored.meta, other.stored.meta
        if left.revision == right.revision or left.type_id != right.type_id:
            return False  # written by the same class, so their bytes tell; or renamed, which is a change
        try:
            model = resolve(left.type_id)
        except TypeNotFoundError:
            return False
        return same_as_read(self._encoded(model, one), self._encoded(model, other))

    def made(self, model: Any, like: Version, who: str, keeper: Encoded | None = None) -> Version:
        """Return a model as a version that is not stored yet; `like` lends what is not content.

        `keeper` lends the fields that the class does not declare; without one it is `like`.

        Raises `TypeError` for what is no model, `PayloadError` for one that cannot be stored.
        """
        if not isinstance(model, BaseModel):
            raise TypeError(
                f"{who} returned {model!r}: return a model, one of the sides, or CONFLICT to leave "
                f"the conflict"
            )
        assert like.stored is not None
        encoded = encode(model)
        known = like.stored.meta
        if keeper is None and (known.type_id, known.revision) != (encoded.type_id, encoded.revision):
            keeper = self._encoded(encoded.model, like)
        if keeper is not None:
            encoded = over(encoded, keeper, f"artifact {known.id!r}")
        if self._durable:
            warn_process_local(encoded.model)
        meta = replace(
            like.stored.meta,
            type_id=encoded.type_id,
            payload=self._scratch.put("blob", encoded.payload),
            content_hash=content_hash(encoded.payload),
            revision=encoded.revision,
        )
        return Version(Content(meta.type_id, meta.payload), Stored("", meta))


def check_policy(policy: Any) -> None:
    """Refuse what is no policy. Raises `ValueError` for a text, `TypeError` for anything else."""
    if policy is None or policy in ("ours", "theirs") or callable(policy):
        return
    kind = ValueError if isinstance(policy, str) else TypeError
    raise kind(
        f'policy={policy!r} is no policy of a merge: pass "ours", "theirs", or a function that gets '
        f"each ConflictDetail"
    )


def settle(objects: Objects, plan: MergePlan, policy: Policy, combiner: Combiner) -> None:
    """Let a policy decide the clashes of a plan; those it leaves stay."""
    left: list[Clash] = []
    for clash, detail in zip(plan.clashes, details_of(objects, plan.clashes), strict=True):
        try:
            result = _decision(clash, detail, policy, combiner)
        except Exception as error:
            add_note(error, f"raised by the policy for artifact {clash.artifact_id!r}; nothing was applied")
            raise
        if result is None:
            left.append(clash)
        elif result.stored is None:
            if clash.ours.stored is not None:
                plan.delete.append(clash.artifact_id)
        elif result.content != clash.ours.content:
            plan.combine.append(Combined(clash.artifact_id, clash.ours, clash.theirs, result))
    plan.clashes = left
    plan.sort()


def _decision(clash: Clash, detail: ConflictDetail, policy: Policy, combiner: Combiner) -> Version | None:
    """Return the version a policy chose: `NOTHING` for a deletion, `None` to leave the conflict."""
    answer: Any = policy(detail) if callable(policy) else policy
    if answer is None or answer is CONFLICT:
        return None
    if isinstance(answer, str) and answer in ("ours", "theirs"):
        return clash.ours if answer == "ours" else clash.theirs
    if isinstance(answer, dict):  # a side that no class of this process reads
        for version, data in zip((clash.ours, clash.theirs), detail.stored[1:], strict=True):
            if data == answer:
                return version
    like = clash.ours if clash.ours.stored is not None else clash.theirs
    return combiner.made(answer, like, "the policy")
