"""Versions that are kept beside a squashed history: as tree entries, so that git never loses them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reactifact._store.layout import Meta, Roots, file_path, versions_path
from reactifact._store.object_db import Database, Staging, blob_entry
from reactifact._store.objects import Oid
from reactifact._store.trees import subtree, update
from reactifact._store.versions import (
    TRIMMED_FILE,
    VersionKeeper,
    earlier_versions,
    folder_of,
    oldest_kept,
    oldest_kept_in,
)
from reactifact.checkpoints import InMemoryKVBackend

WHEN = "2030-01-01T00:00:00+00:00"
Chain = list[tuple[Oid, Meta]]


@pytest.fixture
def objects() -> Staging:
    return Staging(Database(InMemoryKVBackend()))


def chain(objects: Staging, count: int, *, committed: int | None = None, name: str = "a") -> Chain:
    """Write versions 0 to `count` - 1 of an artifact; those from `committed` on were made by no commit."""
    found: Chain = []
    for version in range(count):
        payload = objects.put("blob", f"{name} {version}".encode())
        is_committed = committed is None or version < committed
        meta = Meta(
            id=name,
            type_id="shop.Order",
            version=version,
            sequence=1,
            written=version + 1,
            created_at=WHEN,
            updated_at=WHEN,
            payload=payload,
            content_hash="",
            revision="r",
            author="desk",
            commit=f"c{version}" if is_committed else None,
            created_by="c0",
            writer=None,
            writer_author=None,
            previous=found[-1][0] if found else None,
        )
        found.append((objects.put("blob", meta.encode()), meta))
    return found


def roots(objects: Staging, *newest: tuple[Oid, Meta], versions: Oid | None = None) -> Roots:
    edits = {file_path(meta.id): blob_entry(oid) for oid, meta in newest}
    return Roots(meta=update(objects, None, dict(edits)), versions=versions)


def kept(objects: Staging, versions: Oid | None, name: str = "a") -> list[str]:
    folder = subtree(objects, versions, versions_path(name))
    return [] if folder is None else sorted(objects.tree(folder))


def test_the_versions_before_one_are_found_down_to_the_oldest(objects: Staging) -> None:
    made = chain(objects, 6)
    found = earlier_versions(objects, made[-1][1], oldest=2)
    assert found == {version: made[version] for version in (2, 3, 4)}
    assert earlier_versions(objects, made[-1][1], oldest=0, stop=made[3][0]) == {4: made[4]}
    assert earlier_versions(objects, made[0][1], oldest=0) == {}


def test_the_last_that_a_commit_made_is_kept_whatever_is_trimmed(objects: Staging) -> None:
    made = chain(objects, 6, committed=2)
    assert set(earlier_versions(objects, made[-1][1], oldest=5)) == {1, 2, 3, 4}


def test_a_folder_holds_what_git_must_not_lose(objects: Staging) -> None:
    made = chain(objects, 3)
    folder = folder_of(objects, dict(enumerate(made[:2])), oldest=1)
    assert folder is not None
    tree = objects.tree(folder)
    assert set(tree) == {"0", "1", TRIMMED_FILE}
    first = objects.tree(tree["0"].oid)
    assert (first["meta.json"].oid, first["payload.json"].oid) == (made[0][0], made[0][1].payload)
    assert oldest_kept_in(objects, folder) == 1
    versions = update(objects, None, {versions_path("a"): tree["0"]._replace(oid=folder)})
    assert oldest_kept(objects, versions, "a") == 1
    assert oldest_kept(objects, versions, "b") == 0
    assert oldest_kept(objects, None, "a") == 0
    assert folder_of(objects, {}) is None


@pytest.mark.parametrize(("keep", "expected"), [(None, ["0", "1", "2", "3"]), (2, ["2", "3", TRIMMED_FILE])])
def test_what_is_folded_keeps_its_versions(objects: Staging, keep: int | None, expected: list[str]) -> None:
    made = chain(objects, 5)
    keeper = VersionKeeper(objects, keep)
    versions = keeper.versions("c4", roots(objects, made[4]), line=None, others=None)
    assert kept(objects, versions) == expected


def test_a_commit_that_stays_adds_nothing_that_its_line_still_holds(objects: Staging) -> None:
    made = chain(objects, 5)
    keeper = VersionKeeper(objects, None)
    below = keeper.versions("c2", roots(objects, made[2]), line=None, others=None)
    above = keeper.versions("c4", roots(objects, made[4]), line="c2", others=[])
    assert kept(objects, below) == kept(objects, above) == ["0", "1"]


def test_an_artifact_that_is_gone_takes_its_versions_along(objects: Staging) -> None:
    made, other = chain(objects, 3), chain(objects, 3, name="b")
    keeper = VersionKeeper(objects, None)
    below = keeper.versions("c2", roots(objects, made[-1], other[-1]), line=None, others=None)
    above = keeper.versions("c3", roots(objects, other[-1]), line="c2", others=[])
    assert kept(objects, below) == ["0", "1"]
    assert kept(objects, above) == []
    assert kept(objects, above, "b") == ["0", "1"]


def test_what_was_made_anew_under_an_id_is_not_trimmed_as_the_one_before(objects: Staging) -> None:
    made = chain(objects, 5)
    keeper = VersionKeeper(objects, 1)
    keeper.versions("c4", roots(objects, made[-1]), line=None, others=None)
    oid = objects.put("blob", (anew := replace(made[0][1], sequence=9)).encode())
    above = keeper.versions("c5", roots(objects, (oid, anew)), line="c4", others=None)
    assert kept(objects, above) == []
