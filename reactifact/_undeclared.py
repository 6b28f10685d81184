"""Fields that stored data has and the present class does not declare, because other code wrote them.

During a rolling deploy, code of two versions writes one artifact. Owns what a write by the one leaves of
what the other added: `over` keeps it, or refuses the write by name. It also owns when two payloads say
the same to the present class, whatever version of it wrote them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ._store import canonical
from ._store.layout import Meta
from ._store.state import State
from .artifacts import Encoded, dumped_payload
from .errors import PayloadError, ReactifactError, TypeNotFoundError, UnreadablePayload
from .types.codec import BEYOND, decode_payload, is_of_revision
from .types.registry import has_migrate_hook, migrate_payload, registered_revision, resolve, revision_of


class _All(NamedTuple):
    """A value that stands under a name which the class does not declare."""

    value: Any


class AsRead(NamedTuple):
    """A payload as the present class reads it: what it declares, and the rest."""

    declared: Any
    rest: Any  # `_All`, or a dictionary of names or indexes to more of it; `None`: the class declares it all


def over_stored(new: Encoded, state: State, artifact_id: str) -> Encoded:
    """Return `new` as it is to be written to an id of `state`: see `over`."""
    stored = state.stored(artifact_id)
    if stored is None or _is_alike(new, stored.meta):
        return new
    meta = stored.meta
    old = Encoded(meta.type_id, state.payload(meta), meta.revision, new.model)
    return over(new, old, f"artifact {artifact_id!r}")


def over(new: Encoded, old: Encoded, what: str) -> Encoded:
    """Return `new` with what `old` holds in fields that the class does not declare.

    Where the class reads both as the same data it is `old`, which changes nothing (under a new type id it is
    still written: that is how stored data takes it on). Raises `PayloadError`
    when `old` was written under a later registered revision, when it cannot be read, or when it is not
    clear which item of a list a field belongs to.
    """
    if not _is_of_class(old.type_id, new):
        return new  # data of another class replaces it
    _refuse_later(old, new, what)
    try:
        before = as_read(old)
    except UnreadablePayload as error:
        raise PayloadError(
            f"{what} is not written: what is stored cannot be read, so a write could lose what other code "
            f"keeps there ({error}); or delete the artifact and create it anew"
        ) from error
    declared = canonical.decode(new.payload)
    if old.type_id == new.type_id and canonical.encode(before.declared) == new.payload:
        return old
    if before.rest is None:
        return new
    payload = canonical.encode(_joined(before.rest, before.declared, declared, _Place(what, "")))
    return new._replace(payload=payload, revision=_revision(new, old))


def same_as_read(one: Encoded, other: Encoded) -> bool:
    """Tell whether two payloads of one class are the same data to it, undeclared fields included."""
    try:
        mine, theirs = as_read(one), as_read(other)
    except ReactifactError:
        return False
    # As texts, because `True == 1`.
    return canonical.encode(mine.declared) == canonical.encode(theirs.declared) and _is_same_rest(
        mine, theirs
    )


def rest_of_both(base: Encoded | None, ours: Encoded, theirs: Encoded) -> Encoded | None:
    """Return the side whose undeclared fields a merge of both keeps; `None` where both changed them."""
    mine, other = as_read(ours), as_read(theirs)
    if _is_same_rest(mine, other):
        return ours
    was = AsRead(None, None) if base is None else as_read(base)
    if _is_same_rest(mine, was):
        return theirs
    return ours if _is_same_rest(other, was) else None


def as_read(stored: Encoded) -> AsRead:
    """Return a payload as its class reads it. Raises `UnreadablePayload`, and what a migrate hook raises."""
    data: Any = canonical.decode(stored.payload)
    model = decode_payload(stored.model, stored.payload, type_id=stored.type_id, revision=stored.revision)
    if not is_of_revision(stored.model, stored.revision) and isinstance(data, dict):
        data = migrate_payload(stored.type_id, data)
    declared: Any = canonical.decode(dumped_payload(model))
    return AsRead(declared, _rest(data, declared))


def with_undeclared(value: Any, declared: Any, before: Encoded | None) -> tuple[Any, str | None]:
    """Return what a person wrote as data of a class, and the first field that nothing declares, or `None`.

    `declared` is what the class reads in `value`. Fields beyond it stay where what was stored before has
    them too: newer code put them there.
    """
    rest = _rest(value, declared)
    if rest is None:
        return declared, None
    known = None if before is None else as_read(before).rest
    unknown = _first_beyond(rest, known)
    if unknown is not None:
        return declared, unknown
    return _joined(rest, declared, declared, _Place("what a person wrote", "")), None


def _first_beyond(rest: Any, known: Any, path: str = "") -> str | None:
    """Return the path of a field in `rest` that `known` lacks; items of lists are told by their fields."""
    if isinstance(rest, _All):
        return None if isinstance(known, _All) else path
    inner = known if isinstance(known, dict) else {}
    for name, value in rest.items():
        place = f"{path}[{name}]" if isinstance(name, int) else f"{path}.{name}".lstrip(".")
        if isinstance(name, int):
            found = next((one for one in inner.values() if _first_beyond(value, one) is None), None)
        else:
            found = inner.get(name)
        beyond = _first_beyond(value, found, place)
        if beyond is not None:
            return beyond
    return None


def _is_same_rest(one: AsRead, other: AsRead) -> bool:
    return repr(one.rest) == repr(other.rest)


def _is_alike(new: Encoded, meta: Meta) -> bool:
    return meta.type_id == new.type_id and meta.revision == new.revision


def _is_of_class(type_id: str, new: Encoded) -> bool:
    if type_id == new.type_id:
        return True
    try:
        return resolve(type_id) is new.model
    except TypeNotFoundError:
        return False


def _refuse_later(old: Encoded, new: Encoded, what: str) -> None:
    known = registered_revision(new.model)
    stored = old.revision.removesuffix(BEYOND)
    # A hash of a schema has sixteen digits; hashes have no order.
    if known is None or not known.isdigit() or not stored.isdigit() or len(stored) >= 16:
        return
    if int(stored) > int(known):
        raise PayloadError(
            f"{what} is not written: it was stored at revision {stored} of {new.type_id!r}, and this process "
            f"knows {new.model.__qualname__} at revision {known}, so it would write an older shape over a "
            f"newer one. Bring this process up to date, or let one that is write it"
        )


def _revision(new: Encoded, old: Encoded) -> str:
    """Return the revision of a payload that holds fields its class does not declare.

    Without a migrate hook it stays what it was: it still has that shape, and the hook of newer code must
    not run on it. With one, the payload was brought up to date here and must not be once more.
    """
    if has_migrate_hook(old.type_id) or has_migrate_hook(new.type_id):
        return revision_of(new.model) + BEYOND
    return old.revision


# -- comparing and joining plain data ------------------------------------------------------------------


class _Place(NamedTuple):
    what: str
    path: str

    def at(self, part: str) -> _Place:
        return self._replace(path=self.path + part)

    def refusal(self) -> PayloadError:
        return PayloadError(
            f"{self.what} is not written: {self.path.lstrip('.') or 'it'} holds fields that this process' "
            f"class does not declare (newer code wrote them), and it is not clear which of the new items "
            f"they belong to. Bring this process up to date, or change other fields only"
        )


def _rest(data: Any, declared: Any) -> Any:
    """Return what `data` has and `declared` lacks, `None` for nothing."""
    found: dict[Any, Any] = {}
    if isinstance(data, dict) and isinstance(declared, dict):
        for name, value in data.items():
            if name not in declared:
                found[name] = _All(value)
            elif (inner := _rest(value, declared[name])) is not None:
                found[name] = inner
    elif isinstance(data, list) and isinstance(declared, list) and len(data) == len(declared):
        for index, (value, known) in enumerate(zip(data, declared, strict=True)):
            if (inner := _rest(value, known)) is not None:
                found[index] = inner
    return found or None


def _joined(rest: Any, old: Any, new: Any, place: _Place) -> Any:
    """Return `new` with the rest of what `old` was read from."""
    if isinstance(rest, dict) and isinstance(old, list):
        return _joined_items(rest, old, new, place) if isinstance(new, list) else new
    if not isinstance(new, dict):
        return new  # what held the fields was taken away, or replaced by something else
    result = dict(new)
    if place.path and any(isinstance(one, _All) for one in rest.values()) and new.keys() != old.keys():
        raise place.refusal()  # data of another class may have taken its place
    for name, inner in rest.items():
        if isinstance(inner, _All):
            result.setdefault(name, inner.value)
        elif name in new:
            result[name] = _joined(inner, old[name], new[name], place.at(f".{name}"))
    return result


def _joined_items(rest: dict[int, Any], old: list[Any], new: list[Any], place: _Place) -> list[Any]:
    """Join the items of a list: one that is as it was, or has the same `id`, keeps its fields.

    What has another `id` is another item. Without one, an item that is new may be the old one, changed.
    """
    result = list(new)
    free = set(range(len(new)))
    matched: dict[int, int] = {}  # old index -> new index
    for is_same in (_is_equal, _has_same_id):
        for index in range(len(old)):
            if index in matched:
                continue
            near = sorted(free, key=lambda at, index=index: (abs(at - index), at))  # type: ignore[misc]
            at = next((at for at in near if is_same(old[index], new[at])), None)
            if at is not None:
                matched[index] = at
                free.discard(at)
    for index, inner in rest.items():
        if index in matched:
            at = matched[index]
            result[at] = _joined(inner, old[index], new[at], place.at(f"[{at}]"))
        elif any(_id_of(old[index]) is None or _id_of(new[at]) is None for at in free):
            raise place.refusal()
    return result


def _is_equal(one: Any, other: Any) -> bool:
    return canonical.encode(one) == canonical.encode(other)


def _has_same_id(one: Any, other: Any) -> bool:
    name = _id_of(one)
    return name is not None and name == _id_of(other)


def _id_of(item: Any) -> str | int | None:
    name = item.get("id") if isinstance(item, dict) else None
    return name if isinstance(name, (str, int)) else None
