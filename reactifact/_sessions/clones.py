"""What git is told about our files: a hook in a store, a merge driver and a diff driver in a clone.

Owns the files and settings that are written for git, the merge of two versions of one file by field, and
the text of a payload that git compares line by line.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .._store import canonical
from .._store._history.adoption.text import Refused, read_json
from .._store.names import decode_name
from ..artifacts import encode
from ..errors import NotAStore, ReactifactError, StoreError, TypeNotFoundError, text_of
from ..merging import CONFLICT
from ..types.codec import decode_payload
from ..types.registry import merge_function_of, resolve, revision_of

_MARK = "# made by `reactifact hooks install`"
_ATTRIBUTES = "artifacts/** merge=reactifact diff=reactifact\nrelations/** merge=reactifact diff=reactifact\n"
_LONG = 60  # characters: a shorter text stays in one line
_SENTENCE = re.compile(r"[^\n]*?(?:[.!?;:,]\s+|\n|$)")
_ABSENT: Any = object()


def _command(*words: str, models: tuple[str, ...] = ()) -> str:
    """Return a command for a shell that runs this program."""
    more = [word for module in models for word in ("--models", module)]
    return shlex.join([sys.executable, "-m", "reactifact", *words, *more])


# -- a store that is pushed to ---------------------------------------------------------------------


def install_hook(path: str, models: tuple[str, ...] = ()) -> Path:
    """Put a `pre-receive` hook into a bare repository, which refuses what is not a state; return its path.

    Raises `NotAStore` for a path that is not a bare repository, and `StoreError` where somebody else's hook
    stands there.
    """
    folder = Path(path)
    if not (folder / "HEAD").is_file() or not (folder / "objects").is_dir():
        raise NotAStore(f"{path} is not a bare git repository, and only git runs hooks")
    hook = folder / "hooks" / "pre-receive"
    if hook.exists() and _MARK not in hook.read_text(encoding="utf-8", errors="replace"):
        raise StoreError(
            f"{hook} is there and is not reactifact's: call `{_command('hooks', 'check', '.')}` from it, "
            f"with what it gets on its standard input"
        )
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{_MARK}\nexec {_command('hooks', 'check', '.', models=models)}\n", "utf-8")
    hook.chmod(0o755)
    return hook


# -- a clone in which a person works ---------------------------------------------------------------


def set_up_clone(folder: str, models: tuple[str, ...] = ()) -> None:
    """Let git merge and compare our files by field in a clone. Raises `NotAStore`, `StoreError`."""
    git_dir = _git(folder, "rev-parse", "--absolute-git-dir").strip()
    settings = {
        "merge.reactifact.name": "reactifact: by field",
        "merge.reactifact.driver": f"{_command('git-merge', models=models)} %O %A %B %P",
        "diff.reactifact.textconv": _command("git-text"),
        "diff.reactifact.cachetextconv": "true",
    }
    for name, value in settings.items():
        _git(folder, "config", name, value)
    info = Path(git_dir) / "info" / "attributes"
    info.parent.mkdir(exist_ok=True)
    known = info.read_text(encoding="utf-8") if info.exists() else ""
    if _ATTRIBUTES not in known:
        ends = "" if not known or known.endswith("\n") else "\n"
        info.write_text(f"{known}{ends}{_ATTRIBUTES}", encoding="utf-8")


def _git(folder: str, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        raise StoreError(f"git cannot be run ({error}): install it, or add it to PATH") from error
    if done.returncode:
        raise NotAStore(f"{folder} is not a clone that git can work in: {done.stderr.strip()}")
    return done.stdout


# -- merging two versions of a file ------------------------------------------------------------------


def merge_files(base: bytes, ours: bytes, theirs: bytes, path: str) -> tuple[bytes, list[str]]:
    """Return the merge of two versions of a file, and what of it is in conflict, by field.

    The merge function of the type decides where the type is known, else each field does: one that a single
    side changed is taken from there. With conflicts the bytes hold git's marks. `base` is empty for a file
    that both sides added. Raises `Refused` for what is not JSON.
    """
    before = read_json(base) if base else None
    mine, other = read_json(ours), read_json(theirs)
    if path.startswith("relations/"):
        return canonical.encode(_joined_links(before, mine, other)), []
    merged = _by_model(before, mine, other, path)
    if merged is not None:
        return merged, []
    conflicts: list[str] = []
    value = _merged(_ABSENT if before is None else before, mine, other, "", conflicts)
    if not conflicts:
        return canonical.encode(value), []
    return _marked(before, mine, other), conflicts


def _by_model(before: Any, mine: Any, other: Any, path: str) -> bytes | None:
    """Return what the merge function of the type makes of it; `None` where there is none, or a conflict."""
    parts = path.split("/")
    try:
        type_id = decode_name(parts[1]) if len(parts) > 2 and parts[0] == "artifacts" else None
        if type_id is None:
            return None
        model = resolve(type_id)
        function = merge_function_of(model)
        if function is None:
            return None
        revision = revision_of(model)
        models = [
            None
            if value is None
            else decode_payload(model, canonical.encode(value), type_id=type_id, revision=revision)
            for value in (before, mine, other)
        ]
        assert models[1] is not None
        assert models[2] is not None
        result = function(models[0], models[1], models[2])
        return None if result is CONFLICT else encode(result).payload
    except (TypeNotFoundError, ReactifactError):
        return None  # field by field, as without the type


def _merged(before: Any, mine: Any, other: Any, path: str, conflicts: list[str]) -> Any:
    if _same(mine, other) or _same(before, other):
        return mine
    if _same(before, mine):
        return other
    if isinstance(mine, dict) and isinstance(other, dict):
        known = before if isinstance(before, dict) else {}
        found = {}
        for name in sorted({*mine, *other, *known}):
            place = f"{path}.{name}" if path else name
            sides = (known.get(name, _ABSENT), mine.get(name, _ABSENT), other.get(name, _ABSENT))
            value = _merged(*sides, place, conflicts)
            if value is not _ABSENT:
                found[name] = value
        return found
    conflicts.append(path)
    return mine


def _same(one: Any, other: Any) -> bool:
    if one is _ABSENT or other is _ABSENT:
        return one is other
    return canonical.encode(one) == canonical.encode(other)  # as texts, because `True == 1`


def _joined_links(before: Any, mine: Any, other: Any) -> Any:
    """Return relations with what either side added, without what either took away."""
    sides = [_links(value) for value in (before, mine, other)]
    gone = (sides[0].keys() - sides[1].keys()) | (sides[0].keys() - sides[2].keys())
    found = {**sides[2], **sides[1]}
    kept = [link for end, link in found.items() if end not in gone]
    return {**mine, "links": sorted(kept, key=lambda link: link.get("sequence", sys.maxsize))}


def _links(value: Any) -> dict[tuple[str, str], dict[str, Any]]:
    links = value.get("links", []) if isinstance(value, dict) else []
    return {(str(link.get("relation")), str(link.get("target"))): link for link in links}


def _marked(before: Any, mine: Any, other: Any) -> bytes:
    """Return two versions in one text, with git's marks around what differs."""
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for name, value in (("ours", mine), ("base", before), ("theirs", other)):
            path = Path(folder) / name
            path.write_bytes(b"" if value is None else canonical.encode(value))
            names.append(str(path))
        labels = [word for name in ("ours", "base", "theirs") for word in ("-L", name)]
        return subprocess.run(
            ["git", "merge-file", "-p", *labels, *names], capture_output=True, check=False
        ).stdout


# -- comparing two versions of a file ----------------------------------------------------------------


def as_lines(data: bytes) -> str:
    """Return a payload as text in which a long text stands in several lines, one a clause.

    So a word that was changed is one line of a diff. What is not JSON comes back as it is.
    """
    try:
        value = read_json(data)
    except Refused:
        return data.decode("utf-8", "replace")
    lines: list[str] = []
    _show(value, "", lines)
    return "\n".join(lines) + "\n"


def _show(value: Any, path: str, lines: list[str]) -> None:
    if isinstance(value, dict) and value:
        for name in sorted(value):
            _show(value[name], f"{path}.{name}" if path else name, lines)
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            _show(item, f"{path}[{index}]", lines)
    elif isinstance(value, str) and (len(value) > _LONG or "\n" in value):
        lines.append(f"{path}:")
        lines += [f"  {part.rstrip()}" for part in _SENTENCE.findall(value) if part]
    else:
        lines.append(f"{path}: {canonical.one_line(value)}")


def readable(error: BaseException) -> str:
    """Return what is wrong with a file that cannot be merged."""
    return error.reason if isinstance(error, Refused) else text_of(error)
