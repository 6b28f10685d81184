"""The plan of a write that moves refs, for stores that move all of them or none.

Owns what has to be known before a ref may move, and the decision. Pure functions: a store reads what is
asked for inside its transaction, or under its lock, and writes what comes out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from ..errors import Contention, MissingObject
from .checks import check_objects, check_oid, check_ref_name, name_in_the_way, parent_names
from .objects import GitObject, Oid
from .protocol import RefUpdate


def check_write(
    objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate], max_object: int | None = None
) -> None:
    """Refuse what no store accepts. Raises `StoreError` or `InvalidName`."""
    check_objects(objects, max_object)
    for update in updates:
        check_ref_name(update.name)
        if update.new is not None:
            check_oid(update.new)


@dataclass(frozen=True)
class RefQuestions:
    """What has to be read, inside its transaction, before a write may move refs; each in order."""

    names: list[str]  # of the refs that move
    created: list[str]  # those that are expected not to be there
    parents: list[str]  # names that are folders of those created
    targets: list[Oid]  # what refs are to point at and the write does not bring


@dataclass(frozen=True)
class RefView:
    """The answers: the refs of a store inside the transaction that is to move them."""

    location: str
    current: Mapping[str, Oid]  # of `names`, those that are there
    known: Set[Oid]  # of `targets`, those that are stored
    around: Set[str]  # stored refs: of `parents`, and some in the folders of `created`


def ref_questions(objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate]) -> RefQuestions:
    """Return what has to be read for a write."""
    first: dict[str, Oid | None] = {}
    for update in updates:
        first.setdefault(update.name, update.expected)
    created = sorted(name for name, expected in first.items() if expected is None)
    return RefQuestions(
        names=sorted(first),
        created=created,
        parents=sorted({parent for name in created for parent in parent_names(name)}),
        targets=sorted({update.new for update in updates if update.new is not None} - objects.keys()),
    )


def plan_refs(
    view: RefView, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate]
) -> dict[str, Oid | None]:
    """Compare every expectation with what is stored; return what changes, in order of name.

    Raises `Contention`, `MissingObject`, or `StoreError` for a name that would be the folder of
    another.
    """
    changes = dict[str, Oid | None]()
    for name, expected, new in updates:
        current = changes[name] if name in changes else view.current.get(name)
        if current != expected:
            raise Contention(
                f"ref {name} in {view.location} holds {current or 'nothing'}, not "
                f"{expected or 'nothing'}: somebody moved it; load it again and retry"
            )
        changes[name] = new
    for update in updates:
        if update.new is not None and update.new not in objects and update.new not in view.known:
            raise MissingObject(update.new, view.location)
    changes = {name: new for name, new in sorted(changes.items()) if new != view.current.get(name)}
    for name, new in changes.items():
        if new is not None and name not in view.current:
            _refuse_name_in_the_way(view, name, changes)
    return changes


def _refuse_name_in_the_way(view: RefView, name: str, changes: Mapping[str, Oid | None]) -> None:
    parents = set(parent_names(name))
    others = (o for o in (*view.around, *changes) if o in parents or o.startswith(name + "/"))
    for other in others:
        if changes.get(other, other) is not None:  # it is there, and this write does not remove it
            raise name_in_the_way(name, other, view.location)
