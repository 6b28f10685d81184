"""A disk that takes upper and lower case for the same: ids that differ by case alone are refused.

The disk is a fake layer below the reading of refs: what such a disk does when a file is opened.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support import Note, git

from reactifact import SessionStore
from reactifact._store._backends.git import refs
from reactifact.branching import BranchStore
from reactifact.errors import NameTaken

pytestmark = pytest.mark.anyio


def as_on_the_disk(path: str) -> str:
    """Return the path of the file that a folding disk opens under a name."""
    found = "/"
    for part in Path(path).parts[1:]:
        listed = os.listdir(found) if os.path.isdir(found) else []
        same = [name for name in listed if name.casefold() == part.casefold()]
        found = os.path.join(found, part if part in listed or not same else same[0])
    return found


@pytest.fixture
def folding(monkeypatch: pytest.MonkeyPatch) -> None:
    real = refs.read_plain
    monkeypatch.setattr(refs, "read_plain", lambda path: real(as_on_the_disk(path)))
    monkeypatch.setattr(refs.os.path, "exists", lambda path, real=os.path.exists: real(as_on_the_disk(path)))


async def keep(place: Path, session_id: str, text: str) -> None:
    session = await SessionStore(place).open(session_id)
    session.context.create(Note(text=text), id="note")
    await session.save()


@pytest.mark.usefixtures("folding")
@pytest.mark.parametrize("packed", [False, True])
async def test_a_session_that_differs_by_case_alone_is_not_the_other(tmp_path: Path, packed: bool) -> None:
    place = tmp_path / "state.git"
    await keep(place, "tenant", "private")
    if packed:
        git(place, "pack-refs", "--all")
    store = SessionStore(place)
    assert not await store.has_session("Tenant")
    assert await store.load_session("Tenant") is None
    assert not (await store.open("Tenant")).loaded
    await store.delete_session("Tenant")
    with pytest.raises(NameTaken, match=r"refs/heads/Tenant/main cannot be made.*refs/heads/tenant is there"):
        await keep(place, "Tenant", "of another")
    kept = await SessionStore(place).load_session("tenant")
    assert kept is not None
    assert kept.get("note").data.text == "private"
    assert await SessionStore(place).list_sessions() == ["tenant"]


@pytest.mark.usefixtures("folding")
async def test_a_branch_that_differs_by_case_alone_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "state.git"
    await keep(place, "s", "x")
    branches = BranchStore(place)
    await branches.fork("s/main", "s/plan")
    with pytest.raises(NameTaken, match="upper and lower case"):
        await branches.fork("s/main", "s/Plan")
    assert await branches.list_branches("s") == ["plan"]
    await branches.fork("s/main", "s/other")


async def test_elsewhere_they_are_two_and_names_stay_readable(tmp_path: Path) -> None:
    place = tmp_path / "state.git"
    if os.path.exists(tmp_path.parent / tmp_path.name.upper()):
        pytest.skip("this disk folds case")
    await keep(place, "tenant", "one")
    await keep(place, "Tenant", "other")
    assert await SessionStore(place).list_sessions() == ["Tenant", "tenant"]
    assert "refs/heads/Tenant/main" in git(place, "for-each-ref", "--format=%(refname)")
