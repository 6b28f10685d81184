"""`reactifact diff`: what differs between the states of two commits."""

from __future__ import annotations

import json
from typing import Any

import click

from ..errors import UnknownRevision
from ..store.database import Database
from ..store.diff import ArtifactState, FieldChange, RelationState, StateDiff, diff_states
from ..store.records import read_roots
from ..store.timeline import Entry, entry
from .common import branch_options, json_option, line, opened, plain, print_json, short, store_argument
from .revisions import commit_named

_LONGEST = 300


@click.command(short_help="Show what changed between two commits.")
@store_argument
@click.argument("old", metavar="A")
@click.argument("new", metavar="B")
@branch_options
@json_option
def diff(store: str, old: str, new: str, session: str | None, branch: str | None, as_json: bool) -> None:
    """Show what changed from commit A to commit B: artifacts with their fields, and relations.

    A and B are commit ids or Change-Ids (four digits are enough), SESSION/BRANCH, or vN: a version
    of --session (default: the session written last) on --branch. v0 is the empty state. Deliveries
    are no part of the state: see the outbox and log verbs.

    \b
    --json: {old, new, artifacts: {added, removed, changed},
             relations: {added, removed}}
      old, new:       {commit, change, session, branch, version}
      added, removed: {id, type, version, data}
      changed:        {id, old_type, new_type, old_version, new_version,
                       fields: [{path, kind, old, new}]}
      relations:      {source, relation, target}
    kind: added, removed, changed. Paths are like address.lines[0].
    """
    with opened(store) as database:
        before = _state_commit(database, old, session, branch)
        after = _state_commit(database, new, session, branch)
        found = diff_states(database, read_roots(database, before.commit), read_roots(database, after.commit))
    if as_json:
        print_json({"old": _side(before), "new": _side(after), **found.to_dict()})
    else:
        _print(before, after, found)


def _state_commit(database: Database, text: str, session: str | None, branch: str | None) -> Entry:
    found = entry(database, commit_named(database, text, session, branch))
    if found.record is not None and found.record.kind == "ledger":
        raise UnknownRevision(
            f"{text!r} is a commit of a ledger, which holds deliveries and no state: "
            f"compare commits of branches, or see one delivery with show"
        )
    return found


def _side(found: Entry) -> dict[str, Any]:
    whole = found.to_dict()
    version = None if found.record is None else found.record.version
    return {**{name: whole[name] for name in ("commit", "change", "session", "branch")}, "version": version}


def _print(before: Entry, after: Entry, found: StateDiff) -> None:
    line(f"{_title(before)} -> {_title(after)}", bold=True)
    if found.is_empty:
        line("the states are equal")
    for gone in found.removed:
        _print_whole("-", "red", gone)
    for came in found.added:
        _print_whole("+", "green", came)
    for changed in found.changed:
        kind = changed.new_type
        if changed.old_type != kind:
            kind = f"{changed.old_type} -> {kind}"
        versions = f"v{changed.old_version} -> v{changed.new_version}"
        line(f"~ {plain(changed.id)}  {plain(kind)}  {versions}", "yellow")
        for field in changed.fields:
            _print_field(field)
    for relation in found.relations_removed:
        line(f"- {_relation(relation)}", "red")
    for relation in found.relations_added:
        line(f"+ {_relation(relation)}", "green")


def _title(found: Entry) -> str:
    record = found.record
    if record is None:
        return short(found.commit)
    return f"{short(found.commit)} ({plain(record.session)}/{plain(record.branch)} v{record.version})"


def _print_whole(sign: str, colour: str, found: ArtifactState) -> None:
    line(f"{sign} {plain(found.id)}  {plain(found.type)}  v{found.version}", colour)
    if isinstance(found.data, dict):
        for name, value in found.data.items():
            line(f"    {plain(name)}: {_value(value)}")
    else:
        line(f"    {_value(found.data)}")


def _print_field(field: FieldChange) -> None:
    path = plain(field.path) or "(whole)"
    if field.kind == "added":
        line(f"    + {path}: {_value(field.new)}", "green")
    elif field.kind == "removed":
        line(f"    - {path}: {_value(field.old)}", "red")
    else:
        line(f"    {path}: {_value(field.old)} -> {_value(field.new)}")


def _relation(found: RelationState) -> str:
    return plain(f"{found.source} -[{found.relation}]-> {found.target}")


def _value(value: Any) -> str:
    text = plain(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters)"
