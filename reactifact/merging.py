"""Merging two changes of one artifact: ready functions, conflicts as they are told, and what decides them.

Owns the functions for values (`counter`, `as_set`, `append_only`), those that make a merge function
of a type from them (`per_field`, `last_writer`), and the marker with which any of them leaves a
conflict; `MergeConflict` with its details; and what merge functions and a policy decide. All functions give
the same result whichever side is ours.

    register_type(Post, merge=per_field(views=counter, tags=as_set, log=append_only))
    register_type(Profile, merge=last_writer("changed_at"))

A function is called as `f(base, ours, theirs)`. `base` is `None` where both sides created it, and a
value's function gets `MISSING` for a field that one of the three does not have.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import pydantic_core
from pydantic import BaseModel

from ._store._history.merge import Clash, Combined, Content, MergePlan, Version
from ._store.canonical import content_hash, decode
from ._store.object_db import Objects, Staging
from ._store.state import Stored
from ._undeclared import over, rest_of_both, same_as_read
from .artifacts import Encoded, encode
from .errors import ReactifactError, TypeNotFoundError, UnreadablePayload, add_note
from .operations import Relation
from .types.codec import decode_payload, encode_payload
from .types.ids import MergeFunction
from .types.registry import merge_function_of, resolve, revision_of, warn_process_local

if TYPE_CHECKING:
    from ._html import Child, Html

__all__ = [
    "CONFLICT",
    "MISSING",
    "ConflictDetail",
    "MergeConflict",
    "MergePreview",
    "Policy",
    "append_only",
    "as_set",
    "counter",
    "last_writer",
    "per_field",
    "unless_both",
]


# -- ready functions that merge two changes of one value, or of one artifact --


M = TypeVar("M", bound=BaseModel)


class Marker(enum.Enum):
    """What a merge function may answer or be given besides values."""

    CONFLICT = "conflict"
    MISSING = "missing"


CONFLICT: Final = Marker.CONFLICT
"""Returned by a merge function or a policy: the two changes do not go together."""
MISSING: Final = Marker.MISSING
"""Given to a value's function where there is no value, on the side or in the base."""

ValueFunction = Callable[[Any, Any, Any], Any]
ModelFunction = Callable[[M | None, M, M], Any]


def unless_both(base: Any, ours: Any, theirs: Any) -> Any:
    """Merge a value three-way: the side that changed it wins, equal changes agree, else `CONFLICT`."""
    if ours == theirs or theirs == base:
        return ours
    return theirs if ours == base else CONFLICT


def counter(base: Any, ours: Any, theirs: Any) -> Any:
    """Add up what each side added to a number, equal or not: +1 and +1 is +2."""
    if ours is MISSING or theirs is MISSING or ours is None or theirs is None:
        return unless_both(base, ours, theirs)
    return ours + theirs - (0 if base is MISSING or base is None else base)


def as_set(base: Any, ours: Any, theirs: Any) -> Any:
    """Merge a set, or a list or tuple used as one: what either side added and neither removed.

    In a list, what the base holds keeps its order; what was added follows, sorted as JSON.
    """
    if not isinstance(ours, _COLLECTIONS) or not isinstance(theirs, _COLLECTIONS):
        return unless_both(base, ours, theirs)
    old, mine, other = (
        _by_json(side if isinstance(side, _COLLECTIONS) else ()) for side in (base, ours, theirs)
    )
    kept = [item for key, item in old.items() if key in mine and key in other]
    added = {key: item for key, item in (mine | other).items() if key not in old}
    return type(ours)([*kept, *(added[key] for key in sorted(added))])


_COLLECTIONS = (set, frozenset, list, tuple)


def append_only(base: Any, ours: Any, theirs: Any) -> Any:
    """Merge a list that only grows: the base, then what each side appended.

    What one side appended stays together; which side comes first follows from the content. A side
    that did more than append is a `CONFLICT` unless only one side changed anything.
    """
    if not isinstance(ours, list | tuple) or not isinstance(theirs, list | tuple):
        return unless_both(base, ours, theirs)
    old: Any = base if isinstance(base, list | tuple) else ours[:0]
    size = len(old)
    if ours[:size] != old or theirs[:size] != old:
        return unless_both(base, ours, theirs)
    first, second = sorted((ours[size:], theirs[size:]), key=lambda part: [_json(item) for item in part])
    return type(ours)([*old, *first, *second])


def per_field(**functions: ValueFunction) -> ModelFunction[Any]:
    """Return a merge function of a type that merges field by field.

    Fields without a function merge three-way; one that both sides changed differently leaves the
    whole artifact in conflict. Raises, at the first merge, `TypeError` for a name that is not a field.
    """

    def merge(base: M | None, ours: M, theirs: M) -> Any:
        unknown = functions.keys() - dict(ours).keys() - dict(theirs).keys() - type(ours).model_fields.keys()
        if unknown:
            raise TypeError(
                f"per_field() of {type(ours).__qualname__} names {sorted(unknown)}, which it has not"
            )
        old, mine, other = ({} if side is None else dict(side) for side in (base, ours, theirs))
        result: dict[str, Any] = {}
        for name in dict.fromkeys([*mine, *other]):
            sides = (old.get(name, MISSING), mine.get(name, MISSING), other.get(name, MISSING))
            function = functions.get(name, unless_both)
            result[name] = sides[1] if sides[1] == sides[2] == sides[0] else function(*sides)
            if result[name] is CONFLICT:
                return CONFLICT
        return _rebuilt(ours, {name: value for name, value in result.items() if value is not MISSING})

    return merge


def last_writer(field: str) -> ModelFunction[Any]:
    """Return a merge function of a type: the side whose `field` is greater wins whole.

    `None` is less than anything. On a tie the side whose stored JSON sorts last wins.
    """

    def merge(base: M | None, ours: M, theirs: M) -> Any:
        try:
            one, two = getattr(ours, field), getattr(theirs, field)
        except AttributeError as error:
            raise TypeError(f"last_writer({field!r}): {error}") from error
        if one == two:
            return max(ours, theirs, key=encode_payload)
        if one is None or two is None:
            return theirs if one is None else ours
        return theirs if one < two else ours

    return merge


def _rebuilt(model: M, values: dict[str, Any]) -> M:
    gone = dict(model).keys() - values.keys()
    copied = model.model_copy(update=values)
    for name in gone:  # an extra of ours that theirs removed
        delattr(copied, name)
    return copied


def _json(value: Any) -> bytes:
    return pydantic_core.to_json(value, by_alias=False)


def _by_json(items: Iterable[Any]) -> dict[bytes, Any]:
    return {_json(item): item for item in items}


# -- what a merge could not decide: `MergeConflict` and the details of each contested artifact --


_SHOWN = 60
_ABSENT: Any = object()


class MergeConflict(ReactifactError):
    """Both sides changed an artifact, and differently; nothing was applied.

    `conflicts` is a list of texts sorted by artifact id; `details` holds for each the models of
    base, ours and theirs and the fields that differ. `str()` shows all of it, a line a field.
    """

    def __init__(
        self,
        message: str,
        conflicts: list[str] | None = None,
        details: list[ConflictDetail] | None = None,
    ) -> None:
        super().__init__(message)
        self.conflicts = list(conflicts or [])
        self.details = list(details or [])


@dataclass(frozen=True)
class ConflictDetail:
    """One contested artifact.

    `base`, `ours` and `theirs` are models, `None` where there is none (of the base also where
    several merge bases do not agree), and the stored JSON where no class of this process reads it.
    `fields` are the names at the top level that the sides hold differently, `types` the type ids.
    """

    artifact_id: str
    base: BaseModel | dict[str, Any] | None
    ours: BaseModel | dict[str, Any] | None
    theirs: BaseModel | dict[str, Any] | None
    fields: tuple[str, ...] = ()
    types: tuple[str | None, str | None, str | None] = (None, None, None)
    stored: tuple[dict[str, Any] | None, dict[str, Any] | None, dict[str, Any] | None] = (None, None, None)

    @property
    def summary(self) -> str:
        """One line: the id, what happened, and the fields."""
        if self.ours is None or self.theirs is None:
            gone, kept = ("ours", "theirs") if self.ours is None else ("theirs", "ours")
            what = f"deleted by {gone}, changed by {kept}"
        elif self.types[1] != self.types[2]:
            what = f"{self.types[1]} in ours, {self.types[2]} in theirs"
        else:
            what = "changed differently on both sides"
        names = ", ".join(self.fields)
        return f"{self.artifact_id}: {what}" + (f" ({names})" if names else "")

    def __str__(self) -> str:
        lines = [self.summary]
        for name in self.fields:
            sides = [
                f"{side} {_shown(data.get(name, _ABSENT))}"
                for side, data in zip(("base", "ours", "theirs"), self.stored, strict=True)
                if data is not None
            ]
            lines.append(f"    {name or 'value'}: {', '.join(sides)}")
        return "\n".join(lines)


def conflict(details: list[ConflictDetail], other: str) -> MergeConflict:
    """Return the error that names every contested artifact."""
    count = len(details)
    heading = (
        f"cannot merge {other}: {count} artifact{'s' * (count != 1)} changed differently on both "
        f"sides; nothing was applied"
    )
    way_out = (
        "Settle them with merge(policy=...), with a merge function of their type "
        "(register_type(..., merge=...)), or change one side and merge again"
    )
    text = "\n".join([heading, *map(str, details), way_out])
    return MergeConflict(text, [detail.summary for detail in details], details)


def details_of(objects: Objects, clashes: Iterable[Clash]) -> list[ConflictDetail]:
    """Return what is to be said of each clash."""
    return [_detail(objects, clash) for clash in clashes]


def _detail(objects: Objects, clash: Clash) -> ConflictDetail:
    data = (_data(objects, clash.base), _data(objects, clash.ours), _data(objects, clash.theirs))
    base, ours, theirs = data
    left, right = (base if side is None else side for side in (ours, theirs))
    return ConflictDetail(
        clash.artifact_id,
        model_of(objects, clash.base),
        model_of(objects, clash.ours),
        model_of(objects, clash.theirs),
        fields=_differing(left or {}, right or {}),
        types=(_type(clash.base), _type(clash.ours), _type(clash.theirs)),
        stored=data,
    )


def _type(version: Version) -> str | None:
    return None if version.stored is None else version.stored.meta.type_id


def _differing(left: dict[str, Any], right: dict[str, Any]) -> tuple[str, ...]:
    names = left.keys() | right.keys()
    return tuple(sorted(name for name in names if left.get(name, _ABSENT) != right.get(name, _ABSENT)))


def model_of(objects: Objects, version: Version) -> BaseModel | dict[str, Any] | None:
    """Return the model of a version; its stored JSON where no class of this process reads it."""
    if version.stored is None:
        return None
    meta = version.stored.meta
    payload = objects.read(meta.payload).data
    try:
        model = resolve(meta.type_id)
        return decode_payload(model, payload, type_id=meta.type_id, revision=meta.revision)
    except (TypeNotFoundError, UnreadablePayload):
        return _data(objects, version)


def _data(objects: Objects, version: Version) -> dict[str, Any] | None:
    if version.stored is None:
        return None
    data: Any = decode(objects.read(version.stored.meta.payload).data)
    return data if isinstance(data, dict) else {"": data}


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "(none)"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


# -- deciding what both sides changed: merge functions of types, and the policy of one merge --


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

    def _repr_html_(self) -> Html:
        """Return what the merge would do as tables, for a notebook."""
        from ._html import join, table

        rows: list[list[Child]] = [["adopt", name] for name in self.adopted]
        rows += [["combine", name] for name in self.combined]
        rows += [["delete", name] for name in self.deleted]
        for kind, relations in (("link", self.linked), ("unlink", self.unlinked)):
            rows += [[kind, f"{r.source_id} {r.relation} {r.target_id}"] for r in relations]
        rows += [["conflict", summary] for summary in self.conflicts]
        fields: list[list[Child]] = [
            [detail.artifact_id, name, *(_cell(data, name) for data in detail.stored)]
            for detail in self.details
            for name in detail.fields
        ]
        shown = [table(["What", "Artifact"], rows, caption=None if rows else "nothing to take over")]
        if fields:
            shown.append(table(["Artifact", "Field", "Base", "Ours", "Theirs"], fields, caption="conflicts"))
        return join(shown)


def _cell(data: dict[str, Any] | None, name: str) -> Html | None:
    from ._html import inline

    return inline(data[name]) if data is not None and name in data else None


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

        Raises `TypeError` for what is not a model, `PayloadError` for one that cannot be stored.
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
    """Refuse what is not a policy. Raises `ValueError` for a text, `TypeError` for anything else."""
    if policy is None or policy in ("ours", "theirs") or callable(policy):
        return
    kind = ValueError if isinstance(policy, str) else TypeError
    raise kind(
        f'policy={policy!r} is not a policy of a merge: pass "ours", "theirs", or a function that gets '
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
