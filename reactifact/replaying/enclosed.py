"""What a bundle carries beside the history: files of the commit under `refs/reactifact/report`."""

from __future__ import annotations

from typing import Any

from ..store import canonical
from ..store.database import Database
from ..store.trees import lookup

REPORT_REF = "refs/reactifact/report"
RECORDING_FILE = "recording.jsonl"
VERSIONS_FILE = "versions.json"


def bundled_recording(database: Database) -> bytes | None:
    """Return the recording that an opened bundle carries, or `None`."""
    return _file(database, RECORDING_FILE)


def bundled_versions(database: Database) -> dict[str, Any] | None:
    """Return the versions noted in an opened bundle, or `None` for what is no bundle of ours."""
    data = _file(database, VERSIONS_FILE)
    found: Any = None if data is None else canonical.decode(data)
    return found if isinstance(found, dict) else None


def _file(database: Database, name: str) -> bytes | None:
    commit = database.backend.refs(REPORT_REF).get(REPORT_REF)
    if commit is None:
        return None
    entry = lookup(database, database.commit(commit).tree, (name,))
    return None if entry is None else database.read(entry.oid).data
