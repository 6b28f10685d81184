"""An artifact: a model under an id, with a version and a history; and its way into a payload.

Owns `Artifact`, whether it stands alone or is read from a state (data and history are loaded when they are
first asked for), and what a model, an id or a text is checked for before it is written.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, cast

from pydantic import BaseModel
from typing_extensions import TypeVar

from ._store import canonical
from ._store.layout import Meta, action_fields
from .errors import InvalidName, ReactifactError, TypeNotFoundError
from .interrupt import DELIVERY_FIELDS, OPTIONAL_FIELDS, PendingAction
from .types.codec import Shape, decode_dict, dump, dump_payload, encode_payload
from .types.ids import type_id_of
from .types.registry import resolve, revision_of

if TYPE_CHECKING:
    from ._html import Html

__all__ = ["Artifact"]


# -- an artifact: a model under an id, with a version and a history --


M = TypeVar("M", bound=BaseModel, default=Any)


class Source(Protocol):
    """Where the data of a stored artifact comes from."""

    def load(self, artifact: Artifact[Any]) -> Any: ...
    def load_history(self, artifact: Artifact[Any]) -> list[BaseModel]: ...


class Artifact(Generic[M]):
    """A pydantic model under an id.

    `version` is 0 at first and grows by one with each update, however much history is kept.
    `created_at` and `updated_at` are aware UTC times; `created_by_commit` is the id of the commit
    that created it, `None` for a direct creation.
    """

    def __init__(self, data: M, id: str | None = None, created_by_commit: str | None = None) -> None:
        now = datetime.now(UTC)
        self.id: str = id if id is not None else str(uuid.uuid4())
        self.data_type: str = type_id_of(type(data))
        self.created_at: datetime = now
        self.updated_at: datetime = now
        self.created_by_commit: str | None = created_by_commit
        self.version: int = 0
        self._data: M | None = data
        self._earlier: list[M] | None = []
        self._source: Source | None = None
        self.payload: bytes | None = None  # as stored; None for an artifact that stands alone

    @classmethod
    def stored(cls, artifact_id: str, source: Source) -> Artifact[Any]:
        """Return an artifact whose data is read from `source` when it is asked for."""
        artifact: Artifact[Any] = cls.__new__(cls)
        artifact.id = artifact_id
        artifact._source = source
        artifact._data = None
        artifact._earlier = None
        artifact.payload = None
        return artifact

    @property
    def data(self) -> M:
        """The model. Do not change it in place: use `effects.update` or `Context.update`."""
        found = self._data
        if found is None:
            assert self._source is not None
            found = self._data = self._source.load(self)
        return found

    @data.setter
    def data(self, value: M) -> None:
        self._data = value

    @property
    def is_loaded(self) -> bool:
        """Whether the model has been built."""
        return self._data is not None

    @property
    def history(self) -> list[M]:
        """A fresh list of the earlier versions, oldest first, without the current one."""
        return list(self._history())

    def _history(self) -> list[M]:
        if self._earlier is None:
            assert self._source is not None
            self._earlier = cast("list[M]", self._source.load_history(self))
        return self._earlier

    def update(self, new_data: M) -> None:
        """Replace the data: the old one goes to the history, the version grows by one."""
        self._history().append(self.data)
        self._data = new_data
        self.version += 1
        self.updated_at = datetime.now(UTC)

    def get_all_versions(self) -> list[M]:
        """Return the history and the current data."""
        return [*self._history(), self.data]

    @property
    def oldest_version(self) -> int:
        """The number of the oldest version whose data is still kept."""
        return self.version - len(self._history())

    def at(self, version: int) -> M:
        """Return the data of one version. Raises `ValueError` for one that is not kept."""
        oldest = self.oldest_version
        if not oldest <= version <= self.version:
            trimmed = 0 <= version < oldest
            raise ValueError(
                f"artifact {self.id!r} has no version {version}"
                + (f": versions before {oldest} were trimmed" if trimmed else "")
                + f"; kept are {oldest} to {self.version}"
            )
        return self.get_all_versions()[version - oldest]

    def diff(self, old: int, new: int) -> dict[str, Any]:
        """Compare two versions by number.

        Returns `{"changed", "added", "removed"}` over the dumped fields; a changed leaf is
        `{"old", "new"}`, a changed sub-dictionary again such a diff. A model that dumps as something else
        than a dictionary has one field, `root`. Raises `ValueError` for a version that is not kept.
        """
        before, after = dump(self.at(old)), dump(self.at(new))
        if isinstance(before, dict) and isinstance(after, dict):
            return diff_data(before, after)
        return diff_data({"root": before}, {"root": after})

    def trim_history(self, keep: int) -> None:
        """Keep the last `keep` earlier versions. Raises `ValueError` below 0."""
        if keep < 0:
            raise ValueError(f"cannot keep {keep} versions of artifact {self.id!r}: pass 0 or more")
        earlier = self._history()
        self._earlier = earlier[len(earlier) - keep :] if keep < len(earlier) else earlier

    def to_dict(self) -> dict[str, Any]:
        """Return the artifact as plain JSON types."""
        return {
            "id": self.id,
            "data_type": self.data_type,
            "data": dump(self.data),
            "version": self.version,
            "created_at": self.created_at.isoformat(),
            "updated_at": self.updated_at.isoformat(),
            "history": [dump(data) for data in self._history()],
            "created_by_commit": self.created_by_commit,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Artifact[Any]:
        """Return the artifact of a dictionary; data and history are migrated where needed."""
        model = resolve(data["data_type"])
        read: Callable[[dict[str, Any]], BaseModel] = lambda payload: decode_dict(  # noqa: E731
            model, payload, type_id=data["data_type"]
        )
        artifact: Artifact[Any] = cls(cast(M, read(data["data"])), data["id"], data.get("created_by_commit"))
        artifact._earlier = [read(earlier) for earlier in data.get("history", [])]
        artifact.version = data.get("version", len(artifact._earlier))
        for name in ("created_at", "updated_at"):
            if data.get(name):
                setattr(artifact, name, datetime.fromisoformat(data[name]))
        return artifact

    def __repr__(self) -> str:
        return f"Artifact(id={self.id!r}, data_type={self.data_type!r}, version={self.version})"

    def _repr_html_(self) -> Html:
        """Return the artifact as two tables, for a notebook: what it is, and its data."""
        from ._html import facts, inline, join

        known = facts(
            [
                ("id", self.id),
                ("type", self.data_type),
                ("version", self.version),
                ("created", self.created_at.isoformat(timespec="seconds")),
                ("updated", self.updated_at.isoformat(timespec="seconds")),
            ]
        )
        data = dump(self.data)
        return join([known, facts([(name, inline(value)) for name, value in data.items()])])


def diff_data(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Compare two dumped models field by field, nested dictionaries included."""
    changed: dict[str, Any] = {}
    for key in old.keys() & new.keys():
        before, after = old[key], new[key]
        if before == after and type(before) is type(after):
            continue
        both = isinstance(before, dict) and isinstance(after, dict)
        changed[key] = diff_data(before, after) if both else {"old": before, "new": after}
    return {
        "changed": {key: changed[key] for key in sorted(changed)},
        "added": {key: new[key] for key in sorted(new.keys() - old.keys())},
        "removed": {key: old[key] for key in sorted(old.keys() - new.keys())},
    }


# -- how a model is stored --


ACTION_TYPE = type_id_of(PendingAction)


class Encoded(NamedTuple):
    """A model as it will be stored."""

    type_id: str
    payload: bytes
    revision: str
    model: type[BaseModel]


def encode(data: BaseModel) -> Encoded:
    """Return a model as it will be stored. Raises `PayloadError` when it would not come back."""
    if not isinstance(data, BaseModel):
        raise TypeError(
            f"the data of an artifact is a pydantic model, not {type(data).__name__}: "
            f"define a class that derives from pydantic.BaseModel"
        )
    model = type(data)
    found = type_id_of(model), _payload(data, encode_payload), revision_of(model), model
    return tuple.__new__(Encoded, found)  # its own constructor is Python


def is_unchanged(data: BaseModel, payload: bytes) -> bool:
    """Whether a model that was read from `payload` still says the same."""
    try:
        return dumped_payload(data) == payload
    except (ReactifactError, ValueError):
        return False  # it holds now what could not be stored


def dumped_payload(data: BaseModel) -> bytes:
    """Return the payload bytes of a model that was read. Raises `PayloadError` when it has none."""
    return _payload(data, dump_payload)


def _payload(data: BaseModel, write: Callable[[BaseModel, Shape | None], bytes]) -> bytes:
    if not isinstance(data, PendingAction):
        return write(data, None)
    is_fresh = data.status == "pending" and not (
        data.attempts or data.dispatched_at or data.error is not None
    )
    return write(data if is_fresh else data.intent(), _intent_alone)


def _intent_alone(record: dict[str, Any]) -> dict[str, Any]:
    """Return what is stored of an action: nothing of its delivery, and no optional field that is not set."""
    return {
        name: value
        for name, value in record.items()
        if name not in DELIVERY_FIELDS and (value is not None or name not in OPTIONAL_FIELDS)
    }


def same_content(encoded: Encoded, meta: Meta) -> bool:
    """Whether a model is, byte for byte, what a version already holds."""
    return encoded.type_id == meta.type_id and canonical.content_hash(encoded.payload) == meta.content_hash


def action_note(encoded: Encoded) -> dict[str, Any]:
    """Return what the record of an operation says beyond its type, for an action: its key."""
    if encoded.type_id != ACTION_TYPE:
        return {}
    return {"action": action_fields(encoded.payload)["idempotency_key"]}


def other_payload(action_id: str) -> str:
    """Return the error of an action whose key was delivered with another payload."""
    return (
        f"{action_id} was delivered with another payload before; it is not sent again under the "
        f"same key: plan the new intent under a key of its own"
    )


def is_subtype(type_id: str, model: type[BaseModel]) -> bool:
    """Whether a stored type is a model or derives from it; one that does not resolve is not."""
    try:
        return issubclass(resolve(type_id), model)
    except TypeNotFoundError:
        return False


def check_text(text: str, what: str) -> None:
    """Refuse a text that UTF-8 cannot hold. Raises `InvalidName`, or `TypeError` for no text."""
    if not isinstance(text, str):
        raise TypeError(f"a {what} is a text, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidName(
            f"{what} {text!r} holds a lone surrogate and cannot be stored as UTF-8: remove it"
        ) from error
