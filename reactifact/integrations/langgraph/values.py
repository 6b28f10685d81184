"""Values of a thread as files: JSON where the value is plain JSON, else the bytes of the saver's `serde`.

Owns the encoding of one value, and of a list as one file an item, so that a list that grew by one item
costs that item. A path depends on the place in the list alone.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from ..._store.names import encode_name
from ..._store.object_db import Objects, Staging, blob_entry
from ..._store.objects import TREE_MODE, Oid, TreeEntry, object_id
from ..._store.trees import Path, update, walk
from ...errors import UnreadablePayload

JSON = "json"
LIST = "list"
NONE = "none"
"""The kinds that are ours; any other is one that the `serde` gave."""

_OWN = frozenset({JSON, LIST, NONE})
_SPLIT = 8  # items from which on a list of plain JSON is one file an item
_KEPT = 20_000  # items of lists kept at hand
_SCALARS, _SHORT = 4096, 1024  # texts and numbers kept at hand, and bytes up to which one is
_INDENTED = 64 * 1024  # characters up to which JSON is written over several lines: Python does that slowly


_COMPACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_INDENTING = json.JSONEncoder(ensure_ascii=False, indent=2)


class _Item(NamedTuple):
    kind: str
    data: bytes


class Values:
    """Values in and out of blobs, for one `serde`."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self._serde = serde
        # Any other serde is there for a reason, encryption perhaps: then every value goes through it.
        self._is_open = type(serde) is JsonPlusSerializer
        self._lock = threading.Lock()
        self._known: dict[Oid, list[_Item]] = {}
        self._kept = 0
        self._scalars: dict[Oid, str | int | float] = {}

    def encode(self, value: Any) -> tuple[str, bytes]:
        """Return the kind of a value and its bytes."""
        if self._is_open and is_plain(value):
            try:
                return JSON, encode_json(value)
            except (ValueError, RecursionError):  # a lone surrogate, an endless number, far too deep
                pass
        kind, data = self._serde.dumps_typed(value)
        return (f"serde-{kind}" if kind in _OWN else kind), bytes(data)

    def decode(self, kind: str, data: bytes) -> Any:
        """Return the value of some bytes. Raises `UnreadablePayload` for damaged ones."""
        if kind == JSON:
            return decode_json(data)
        own = kind.removeprefix("serde-")
        return self._serde.loads_typed((own if own in _OWN else kind, data))

    # -- a value at a place ------------------------------------------------------------------------

    def put(self, objects: Staging, value: Any, before: tuple[str, Oid] | None) -> tuple[str, Oid | None]:
        """Stage a value; return its kind and the id of its blob, of its tree for a list.

        `before` is the kind and id of what stood there: items of a list that are the same stay.
        """
        if value is None and self._is_open:
            return NONE, None
        if type(value) is list and self._is_open:
            items = [self.encode(item) for item in value]
            if len(items) >= _SPLIT or any(kind != JSON for kind, _ in items):
                old = before[1] if before is not None and before[0] == LIST else None
                return LIST, self._put_items(objects, items, old)
        kind, data = self.encode(value)
        if before == (kind, object_id("blob", data)):
            return before
        return kind, objects.put("blob", data)

    def get(self, objects: Objects, kind: str, oid: Oid | None) -> Any:
        """Return the value of a place. Raises `MissingObject`, `UnreadablePayload`."""
        if kind == NONE:
            return None
        assert oid is not None
        if kind == LIST:
            return [self.decode(one.kind, one.data) for one in self._items(objects, oid)]
        if kind != JSON:
            return self.decode(kind, objects.read(oid).data)
        known = self._scalars.get(oid)
        if known is not None:
            return known
        data = objects.read(oid).data
        value = decode_json(data)
        if type(value) in (str, int, float, bool) and len(data) <= _SHORT:  # nobody can change these
            if len(self._scalars) >= _SCALARS:
                self._scalars.clear()
            self._scalars[oid] = value
        return value

    def knows(self, oid: Oid) -> bool:
        """Tell whether a value is at hand without its blob."""
        return oid in self._scalars

    # -- lists -------------------------------------------------------------------------------------

    def _put_items(self, objects: Staging, items: list[tuple[str, bytes]], old: Oid | None) -> Oid:
        known = [] if old is None else self._items(objects, old)
        edits: dict[Path, TreeEntry | None] = {
            item_path(index, known[index].kind): None for index in range(len(items), len(known))
        }
        found: list[_Item] = []
        for index, (kind, data) in enumerate(items):
            was = known[index] if index < len(known) else None
            if was is not None and was.data == data and was.kind == kind:
                found.append(was)
                continue
            if was is not None:
                edits[item_path(index, was.kind)] = None
            found.append(_Item(kind, data))
            edits[item_path(index, kind)] = blob_entry(objects.put("blob", data))
        made = update(objects, old, edits)
        assert made is not None
        self._remember(made, found)
        return made

    def _items(self, objects: Objects, folder: Oid) -> list[_Item]:
        """Return the items of a list in order. Raises `UnreadablePayload` where one is missing."""
        with self._lock:
            known = self._known.get(folder)
        if known is not None:
            return known
        files = sorted(_files(objects, folder))
        if [index for index, _, _ in files] != list(range(len(files))):
            raise UnreadablePayload(
                f"the list in tree {folder} lacks an item: it was changed by hand; restore it from an "
                f"earlier commit, a clone or a backup"
            )
        objects.prefetch(oid for _, _, oid in files)
        found = [_Item(kind, objects.read(oid).data) for _, kind, oid in files]
        self._remember(folder, found)
        return found

    def _remember(self, folder: Oid, items: list[_Item]) -> None:
        """Keep the items of a list, which the next one mostly shares, in place of the oldest others."""
        with self._lock:
            self._kept -= len(self._known.pop(folder, ()))
            self._known[folder] = items
            self._kept += len(items)
            while self._kept > _KEPT and len(self._known) > 1:
                self._kept -= len(self._known.pop(next(iter(self._known))))


def is_plain(value: Any, *, tuples: bool = False) -> bool:
    """Tell whether JSON gives a value back as it is, `tuples` as lists."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return True
    if kind is float:
        return math.isfinite(value)
    if kind is list or (tuples and kind is tuple):
        return all(is_plain(item, tuples=tuples) for item in value)
    if kind is dict:
        return all(type(key) is str and is_plain(item, tuples=tuples) for key, item in value.items())
    return False


def encode_json(value: Any) -> bytes:
    """Return plain JSON for people, in the order of its keys. Raises `ValueError` for what has no form."""
    text = _COMPACT.encode(value)
    if len(text) <= _INDENTED and isinstance(value, dict | list | tuple):
        text = _INDENTING.encode(value)
    return (text + "\n").encode()


def decode_json(data: bytes) -> Any:
    """Return the value of JSON. Raises `UnreadablePayload` for anything else."""
    try:
        return json.loads(data.decode())  # of bytes, it would guess how they are encoded
    except ValueError as error:
        raise UnreadablePayload(
            f"a file of a LangGraph thread is not JSON ({error}): it was changed by hand or is damaged; "
            f"restore it from an earlier commit, a clone or a backup"
        ) from error


@lru_cache(maxsize=256)
def suffix_of(kind: str) -> str:
    """Return the end of the name of a file that holds a value of a kind."""
    return "" if kind == LIST else "." + encode_name(kind).replace(".", "%2E")


# -- lists -----------------------------------------------------------------------------------------


def item_path(index: int, kind: str) -> Path:
    """Return where an item stands below its list: `xxx/1xx/12x/123.json`."""
    digits = str(index)
    size = len(digits)
    folders = [digits[:known] + "x" * (size - known) for known in range(size)]
    return (*folders, digits + suffix_of(kind))


def _files(objects: Objects, folder: Oid) -> Iterator[tuple[int, str, Oid]]:
    for path, oid in walk(objects, folder):
        index, _, kind = path[-1].partition(".")
        yield int(index), unquote(kind), oid


def entry_of(kind: str, oid: Oid) -> TreeEntry:
    """Return the tree entry of what `Values.put` staged."""
    return TreeEntry(TREE_MODE, oid) if kind == LIST else blob_entry(oid)
