"""Commits as the store writes them: a message for people, a record that is sealed to its tree and parents."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactifact._store.commits import (
    CommitRecord,
    author_signature,
    before_amend,
    is_sealed,
    make_commit,
    make_ledger_commit,
    own_record,
    read_record,
    require_record,
    said_change,
    said_state,
    says_version,
    state_hash,
    subject,
    with_note,
)
from reactifact._store.layout import Roots
from reactifact._store.object_db import Database, Staging
from reactifact._store.objects import CommitObject, Oid, Signature, encode_commit
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.errors import StoreError

WHEN = "2030-01-01T00:00:00+00:00"


def record(**more: Any) -> CommitRecord:
    return CommitRecord(**{"change": "c1", "kind": "agent", "author": "desk", "timestamp": WHEN, **more})


def create(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "create", "artifact_id": name, "data_type": "shop.Order", "version": 0, **more}


@pytest.fixture
def objects() -> Staging:
    return Staging(Database(InMemoryKVBackend()))


def committed(objects: Staging, made: CommitRecord, roots: Roots = Roots()) -> tuple[Oid, CommitObject]:  # noqa: B008
    oid = make_commit(objects, made, roots, [])
    return oid, objects.commit(oid)


words = st.text(max_size=120)
operations = st.builds(
    lambda kind, name, of, version: {
        "type": kind,
        "artifact_id": name,
        "data_type": of,
        "version": version,
    },
    st.sampled_from(["create", "update", "delete", "link", "unlink"]),
    words,
    words,
    st.none() | st.integers(0, 3),
)
records = st.builds(
    record,
    author=words,
    message=words,
    kind=st.sampled_from(["agent", "direct", "queue", "merge", "root"]),
    operations=st.lists(operations, max_size=4),
    run_id=words,
)


@given(records)
def test_a_subject_is_one_line_of_at_most_72_characters(made: CommitRecord) -> None:
    shown = subject(made)
    assert 0 < len(shown) <= 72
    assert shown.isprintable()


@given(records)
def test_whatever_was_said_git_reads_the_message_and_only_our_trailers(made: CommitRecord) -> None:
    objects = Staging(Database(InMemoryKVBackend()))
    _, found = committed(objects, made)
    head, _, rest = found.message.partition("\n")
    assert head == subject(made)
    assert rest == "" or rest.startswith("\n")
    command = ["git", "interpret-trailers", "--parse"]
    parsed = subprocess.run(command, input=found.message, capture_output=True, text=True, check=True).stdout
    keys = [line.partition(":")[0] for line in parsed.splitlines()]
    assert set(keys) <= {"Agent", "Trigger", "Run"}
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("operation", "says"),
    [
        (create("a"), "desk: create Order a"),
        (create("a", version=2), "desk: update Order a"),
        (create("a", version=1, unchanged=True), "desk: keep Order a"),
        ({"type": "delete", "artifact_id": "a", "data_type": "shop.Order"}, "desk: delete Order a"),
        ({"type": "link", "artifact_id": "a", "relation": "of", "target_id": "b"}, "desk: link a of b"),
        (create("action:k", action="mail"), "desk: act mail"),
    ],
)
def test_a_subject_says_what_became_of_it(operation: dict[str, Any], says: str) -> None:
    assert subject(record(operations=[operation])) == says


def test_many_changes_are_counted_where_they_do_not_fit() -> None:
    assert subject(record(operations=[create(f"a{n}") for n in range(2)])) == (
        "desk: create Order a0, create Order a1"
    )
    assert subject(record(operations=[create(f"order-{n:04}") for n in range(30)])).endswith(" and 28 more")
    assert subject(record(operations=[create("x" * 70) for _ in range(3)])) == "desk: 3 changes"


def test_the_record_comes_back_and_is_about_its_tree_and_parents(objects: Staging) -> None:
    made = record(operations=[create("a")], reads=[["b", 1]], context_version=4, version=4, run_id="r")
    oid, found = committed(objects, made)
    assert read_record(objects, oid) == own_record(objects, oid) == made
    assert require_record(objects, oid, "main") == made
    assert is_sealed(found)
    assert (said_change(found), said_state(found), says_version(found)) == ("c1", state_hash(Roots()), True)
    assert found.message == "desk: create Order a\n\nAgent: desk\nRun: r\n"


def test_a_commit_that_was_amended_is_somebodys_own(objects: Staging) -> None:
    _, found = committed(objects, record(operations=[create("a")]))
    other = objects.put_tree({})
    amended = replace(found, tree=other, author=Signature("zoe", "zoe@example.com", 5), message="mine\n")
    oid = objects.put("commit", encode_commit(amended))
    assert not is_sealed(amended)
    assert read_record(objects, oid) is None
    assert own_record(objects, oid) is None
    assert before_amend(objects, amended) == found
    assert before_amend(objects, found) is None
    with pytest.raises(StoreError, match="refs/heads/s/main"):
        require_record(objects, oid, "refs/heads/s/main")


def test_a_message_alone_may_be_another(objects: Staging) -> None:
    made = record()
    _, found = committed(objects, made)
    oid = objects.put("commit", encode_commit(replace(found, message="better words\n")))
    assert own_record(objects, oid) == made


def test_a_ledgers_commit_holds_no_state(objects: Staging) -> None:
    oid = make_ledger_commit(objects, record(kind="ledger", author="outbox"), None, [])
    found = objects.commit(oid)
    assert objects.tree(found.tree) == {}
    assert said_state(found) is None
    assert own_record(objects, oid) is not None
    assert found.author.email == "outbox@reactifact.invalid"


@pytest.mark.parametrize(
    ("author", "kind", "name", "email"),
    [
        ("desk", "agent", "desk", "agent@reactifact.invalid"),
        ("Zoë <zoe@example.com>", "direct", "Zoë", "zoe@example.com"),
        (" ", "direct", "unnamed", "application@reactifact.invalid"),
        ("a <b> c", "queue", "a %3Cb%3E c", "reactifact@reactifact.invalid"),
        ("a\nb <x y@z>", "direct", "a%0Ab %3Cx y@z%3E", "application@reactifact.invalid"),
    ],
)
def test_an_author_is_one_that_git_takes(author: str, kind: str, name: str, email: str) -> None:
    assert author_signature(record(author=author, kind=kind), 7) == Signature(name, email, 7)


def test_a_note_stands_below_the_subject() -> None:
    assert with_note("one\n\nAgent: a\n", "why") == "one\n\nwhy\n\nAgent: a\n"
    assert with_note("one\n", "why") == "one\n\nwhy\n"


def test_a_tree_below_a_commit_is_found_by_plain_git(tmp_path: Path, objects: Staging) -> None:
    blob = objects.put("blob", b"{}\n")
    folder = objects.put_tree({"a.json": (0o100644, blob)})  # type: ignore[dict-item]
    _, found = committed(objects, record(), Roots(artifacts=folder))
    assert objects.tree(found.tree)["artifacts"].oid == folder
    assert set(objects.tree(found.tree)) == {".gitattributes", ".reactifact", "artifacts"}
