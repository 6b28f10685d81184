"""Golden snapshots: a session as readable JSON that is equal for equal runs, and the files it is kept in.

Owns what of a session is shown and how random ids are named, and the comparison with a file. It reads the
context and changes nothing; which file a test means is `plugin`'s.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .._context.context import Context
from .._store import canonical
from ..commit import Commit, Write
from ..errors import StoreError
from ..interrupt import PendingAction
from ..operations import Create, Delete, Link, Operation, Unlink, Update
from ..replay.hashes import View
from ..session import Session
from ..types.codec import dump

_RANDOM = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])"
)
"""What the runtime makes of random bits where no `id_factory` is given: a UUID or 32 hex digits."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def golden(source: Context | Session) -> dict[str, Any]:
    """Return a session as plain JSON types: equal for equal runs, whatever the time and the random ids.

    `artifacts` in order of creation with the data of every kept version, `relations`, `commits` (author,
    message, operations, reads, writes), `deliveries`. Left out are the times and ids of commits, the
    times of artifacts, and the `transient_fields` of models. Random ids of artifacts become `<id 1>`,
    `<id 2>` ... everywhere they stand, also in data; other data is shown as it is. Raises `TypeError`
    for what is neither a context nor a session.
    """
    context = source.context if isinstance(source, Session) else source
    if not isinstance(context, Context):
        raise TypeError(f"golden() takes a Context or a Session, not {type(source).__name__}")
    view = View.of(context)
    ids = view.working.state.ids_of(view.working.state.type_ids())
    commits = context.history()
    actions = context.list_artifacts(PendingAction)
    shown = {
        "version": context.version,
        "artifacts": [_artifact(view, artifact_id) for artifact_id in ids],
        "relations": [f"{r.source_id} -{r.relation}-> {r.target_id}" for r in context.relations()],
        "commits": [_commit(commit, set(ids)) for commit in commits],
        "deliveries": [_delivery(action.data) for action in actions],
    }
    named: dict[str, Any] = _renamed(shown, _names_of_random_ids([*ids, *_ids_of(commits)]))
    return named


def golden_text(source: Context | Session) -> str:
    """Return `golden` as indented JSON with a newline at the end: what a golden file holds."""
    return json.dumps(golden(source), indent=2, ensure_ascii=False) + "\n"


class GoldenFiles:
    """Compares sessions with the golden files of a folder, or writes them where `update` says so.

    `name` is what a check is called that gives no name of its own. `written` is shared by all that
    may write in one run: two checks that give one file different contents are told apart by it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "golden",
        update: bool = False,
        written: dict[Path, str] | None = None,
    ) -> None:
        self.folder = folder
        self.name = name
        self.update = update
        self._written = {} if written is None else written

    def check(self, source: Context | Session, name: str | None = None) -> None:
        """Compare a session with the file `<name>.json`, or write it.

        Raises `AssertionError` with a unified diff where they differ, where there is no file, or where
        two checks of one run would write different contents; `ValueError` for a name that is not a plain
        file name.
        """
        __tracebackhide__ = True
        path = self.path(self.name if name is None else name)
        text = golden_text(source)
        if self.update:
            self._write(path, text)
            return
        if not path.exists():
            raise AssertionError(
                f"there is no golden file {path}: run pytest with --update-golden to write it, "
                f"look at what it holds and commit it"
            )
        kept = path.read_text(encoding="utf-8")
        if kept != text:
            raise AssertionError(
                f"the session differs from {path}: run pytest with --update-golden if that is meant\n"
                + _diff(kept, text, str(path), "this run")
            )

    def path(self, name: str) -> Path:
        """Return the file of a name. Raises `ValueError` for one that is not a plain file name."""
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} cannot name a golden file: use letters, digits, '_', '-' and '.', no folders"
            )
        return self.folder / f"{name}.json"

    def _write(self, path: Path, text: str) -> None:
        __tracebackhide__ = True
        before = self._written.setdefault(path, text)
        if before != text:
            raise AssertionError(
                f"two checks of this run write different contents to {path}: give each a name of its own\n"
                + _diff(before, text, "the first", "this one")
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def __repr__(self) -> str:
        return f"GoldenFiles({str(self.folder)!r}, {self.name!r})"


def _artifact(view: View, artifact_id: str) -> dict[str, Any]:
    stored = list(view.working.state.versions(artifact_id))[::-1]  # the oldest first
    meta = stored[-1].meta
    transient = view.transient_fields(meta.type_id)
    versions = {}
    for found in stored:
        data: Any = canonical.decode(view.working.state.payload(found.meta))
        versions[str(found.meta.version)] = _without(data, transient)
    return {"id": artifact_id, "type": view.class_name(meta.type_id), "versions": versions}


def _commit(commit: Commit, live: set[str]) -> dict[str, Any]:
    try:
        reads = [
            f"{read.artifact_id} (absent)" if read.version < 0 else f"{read.artifact_id}@{read.version}"
            for read in commit.reads
        ]
    except StoreError:
        reads = ["(a listing of a snapshot that was compacted)"]
    return {
        "author": commit.author,
        "message": commit.message,
        "operations": [_operation(operation, live) for operation in commit.operations],
        "reads": reads,
        "writes": [_write(write) for write in commit.writes],
    }


def _write(write: Write) -> str:
    return f"{write.op_type} {write.artifact_id}@{write.version}"


def _operation(operation: Operation, live: set[str]) -> Any:
    """Return an operation as a line; with its data where no live artifact shows them."""
    if isinstance(operation, Link):
        return f"link {operation.artifact_id} -{operation.relation}-> {operation.target_id}"
    if isinstance(operation, Unlink):
        return f"unlink {operation.artifact_id} -{operation.relation or '*'}-> {operation.target_id or '*'}"
    if isinstance(operation, Delete):
        return f"delete {operation.artifact_id}"
    if isinstance(operation, Create):
        verb, artifact_id, data = "create", operation.artifact_id or operation.id or "", operation.data
    else:
        assert isinstance(operation, Update)
        verb, artifact_id, data = "update", operation.artifact_id, operation.new_data
    line = f"{verb} {artifact_id} {type(data).__name__}"
    if artifact_id in live:
        return line
    return {line: _without(dump(data), getattr(data, "transient_fields", None) or frozenset())}


def _delivery(action: PendingAction) -> dict[str, Any]:
    return {
        "key": action.idempotency_key,
        "kind": action.kind,
        "status": action.status,
        "attempts": action.attempts,
        "error": action.error,
    }


def _without(data: Any, transient: frozenset[str]) -> Any:
    if not isinstance(data, Mapping):
        return data
    return {name: value for name, value in data.items() if name not in transient}


def _ids_of(commits: list[Commit]) -> Iterator[str]:
    """Yield the ids in the writes of commits, the oldest first: those of artifacts that are gone too."""
    for commit in commits:
        for write in commit.writes:
            yield write.artifact_id


def _names_of_random_ids(ids: list[str]) -> dict[str, str]:
    tokens = dict.fromkeys(token for artifact_id in ids for token in _RANDOM.findall(artifact_id))
    return {token: f"<id {number}>" for number, token in enumerate(tokens, 1)}


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _RANDOM.sub(lambda found: names.get(found[0], found[0]), value)
    if isinstance(value, Mapping):
        return {_renamed(key, names): _renamed(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    return value


def _diff(old: str, new: str, old_name: str, new_name: str) -> str:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), old_name, new_name, lineterm="")
    return "\n".join(lines)
