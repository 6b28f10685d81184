"""Any id a user thinks of goes through a real repository and comes back; git can clone and check it out."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest
from support import Note, Place, commit, fsck, git, live

from reactifact import Context, ProduceCall
from reactifact.errors import InvalidName

pytestmark = pytest.mark.anyio

NFC = "\u00e9"
NFD = unicodedata.normalize("NFD", NFC)
ODD_IDS = [
    "a",
    "A",
    "a/b",
    "..",
    ".",
    ".git",
    ".GIT",
    "git~1",
    "CON",
    "con.txt",
    "nul",
    "COM1.json",
    NFC,
    NFD,
    "a:b*?",
    'q"u|o<t>e\\',
    " lead and trail ",
    "trail.",
    "new\nline\ttab\r",
    "nul\0byte",
    "%41",
    "100%",
    "-rf",
    "~",
    "@{-1}",
    "HEAD",
    "x.lock",
    "x..y",
    "x" * 1000,
    "\u0436" * 1000,
    "x" * 999 + "y",
    "\U0001f600",
    "\u202egnp.exe",
    "action:note",
]


async def test_better_34_every_id_comes_back_and_the_repository_checks_out(
    git_place: Place, tmp_path: Path
) -> None:
    session = await git_place.store().open("s")
    for number, name in enumerate(ODD_IDS):
        session.context.create(Note(text=name, count=number), id=name)
        session.context.link(name, f"next {name}"[:60], ODD_IDS[number - 1])

    def tag_all(call: ProduceCall) -> None:
        for name in ODD_IDS:
            call.effects.update(name, tags=["c"])

    await commit(session.context, tag_all)
    await session.save()

    context = await git_place.load("s")
    for number, name in enumerate(ODD_IDS):
        assert live(context, name).data == Note(text=name, count=number, tags=["c"])
        assert live(context, name).id == name
        assert [r.target_id for r in context.relations(name)] == [ODD_IDS[number - 1]]
    assert [found.id for found in context.list_artifacts(Note)] == ODD_IDS
    assert set(context.diff(0, context.version)["added"]) == set(ODD_IDS)
    assert [write.artifact_id for write in context.history()[-1].writes] == ODD_IDS

    path = git_place.path
    assert path is not None
    fsck(path)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--branch", "s/main", str(path), str(clone))
    assert git(clone, "status", "--porcelain") == ""
    files = [name for _, _, names in os.walk(clone / "artifacts") for name in names]
    assert len(files) == len(ODD_IDS) + 1  # and the kick of `commit`
    for name in files:
        assert name.isascii()
        assert not set(name) & set('<>:"|?*\\')


async def test_better_33_session_ids_and_branch_names_of_every_kind(git_place: Place) -> None:
    store, branches = git_place.store(), git_place.branches()
    for name in ODD_IDS:
        session = await store.open(name)
        assert not session.loaded
        session.context.create(Note(text=name), id="n")
        await session.save()
        await branches.save_branch(session.context.branch(), session_id="one", name=name)
    assert await git_place.store().list_sessions() == sorted(ODD_IDS)
    assert await git_place.branches().list_branches("one") == sorted(ODD_IDS)
    for name in ODD_IDS:
        assert live(await git_place.load(name), "n").data.text == name
        assert live(await git_place.load("one", name), "n").data.text == name
    assert git_place.path is not None
    fsck(git_place.path)


@pytest.mark.parametrize("bad", ["", "\ud800", "ok\udfff", "x" * 4097], ids=ascii)
async def test_ids_that_cannot_be_stored_are_refused(bad: str, git_place: Place) -> None:
    context = Context()
    with pytest.raises(InvalidName):
        context.create(Note(), id=bad)
    assert context.list_artifacts() == []
    assert context.pending_events() == []
    with pytest.raises(InvalidName):
        await commit(context, lambda call: call.effects.create(Note(), id=bad))
    assert context.version == 0
    assert [found.id for found in context.list_artifacts()] == ["kick"]
    with pytest.raises(InvalidName):
        await git_place.store().open(bad)
    with pytest.raises(InvalidName):
        await git_place.branches().save_branch(context, session_id="s", name=bad)
    assert await git_place.store().list_sessions() == []


async def test_an_id_of_4096_characters_is_kept_whole(place: Place) -> None:
    name = "\u0436" * 4096
    session = await place.store().open(name)
    session.context.create(Note(text="long"), id=name)
    await session.save()
    assert await place.store().list_sessions() == [name]
    assert [found.id for found in (await place.load(name)).list_artifacts()] == [name]
