"""What git shows of a commit: trailers that git reads, subjects, authors; nothing in an id can forge them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support import Note, Order, Outside, Place, Question, answering_agents, commit, fsck, git, live, notifier

from reactifact import Agent, Consume, Context, Event, Patch, ProduceCall, Runtime, RuntimeResources
from reactifact.cli import main

pytestmark = pytest.mark.anyio

FORGERIES = [
    "x\n\nChange-Id: forged",
    "x\nSession-Id: forged",
    "x\r\nState: forged",
    "---",
    "--- a/file",
    "x\n---\ny",
    "-- >8 --",
    "Change-Id: forged",
    "Signed-off-by: Mallory <m@example.com>",
    "a <b> c",
    "<",
    ">",
    "<>",
    "name <mail@example.com>",
    "x\0y",
    "x\x1b[31mred",
    "x\u2028Change-Id: forged",
    "x\x85Change-Id: forged",
    " leading",
    "trailing ",
    "#comment",
    "100%",
    "\u202eforged",
]
KEYS = {"Agent", "Trigger", "Run"}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The text of a commit does not depend on the event loop, and each git process costs time."""
    return "asyncio"


def trailers(path: Path, revision: str) -> list[tuple[str, str]]:
    """Return the trailers of a commit as `git interpret-trailers` reads them."""
    message = git(path, "log", "-1", "--format=%B", revision)
    parsed = git(path, "interpret-trailers", "--parse", text=message)
    return [tuple(line.split(": ", 1)) for line in parsed.splitlines()]  # type: ignore[misc]


def record_of(path: Path, revision: str) -> dict[str, Any]:
    """Return the record in the header of a commit, as `git cat-file` shows it."""
    headers = git(path, "cat-file", "commit", revision).partition("\n\n")[0].split("\n")
    return dict(json.loads(headers[-1].removeprefix("reactifact ")))


def revisions(path: Path, ref: str) -> list[str]:
    return git(path, "rev-list", ref).split()


class Writer(Agent):
    """Writes one note under each of `ids`, with links between them."""

    consumes = (Consume(Question),)
    ids: tuple[str, ...] = ()

    async def run(self, event: Event | None, context: Context) -> Patch:
        patch = Patch()
        for name in self.ids:
            patch.create(Note(text=name), id=name).link(name, name, name)
        return patch


async def test_the_trailers_are_for_people_and_the_record_for_programs(git_place: Place) -> None:
    session = await git_place.store().open("s")
    session.context.create(Question(text="why"), id="q")
    await Runtime(session.context, answering_agents(), session=session).arun()
    path = git_place.path
    assert path is not None
    last, first = session.context.history()[::-1]
    found = dict(trailers(path, "s/main"))
    assert found["Agent"] == last.author
    assert found["Trigger"] == f"artifact_created {first.writes[0].artifact_id}"
    assert found["Run"] == dict(trailers(path, "s/main~1"))["Run"]
    record = record_of(path, "s/main")
    assert (record["change"], record["context_version"], record["generation"]) == (last.id, 2, 2)
    assert (record["session"], record["branch"], record["run_id"]) == ("s", "main", found["Run"])
    assert record_of(path, "s/main~1")["change"] == first.id
    for revision in revisions(path, "s/main"):
        names = [name for name, _ in trailers(path, revision)]
        assert set(names) <= KEYS
        assert len(names) == len(set(names))
        assert {"change", "session", "state", "tree"} <= record_of(path, revision).keys()
    fsck(path)


async def test_the_state_is_equal_for_equal_states_and_changes_with_them(git_place: Place) -> None:
    path = git_place.path
    assert path is not None
    states = []
    for text in ("a", "b", "a"):
        async with git_place.store().edit("s") as context:
            if context.get("n") is None:
                context.create(Note(text=text), id="n")
            context.update("n", Note(text=text))
        states.append(record_of(path, "s/main")["state"])
    assert states[0] == states[2] != states[1]


async def test_the_subject_is_a_sentence_and_a_body_stands_only_where_it_says_more(git_place: Place) -> None:
    session = await git_place.store().open("s")
    session.context.create(Order(item="x"), id="42")
    outside = Outside()
    await Runtime(session.context, [notifier()], session=session, dispatcher=outside).arun()
    path = git_place.path
    assert path is not None
    message = git(path, "log", "-1", "--author=notifier", "--format=%B", "s/main")
    lines = message.splitlines()
    assert lines[0] == "notifier: create Receipt receipt:42, act notify:42"
    assert lines[1] == ""
    assert lines[2].startswith("Agent: notifier")  # a body only where it says more
    assert len([line for line in lines if line]) == 4
    people = git(path, "log", "-1", "--author=notifier", "--format=%an|%cn", "s/main").strip()
    assert people == "notifier|reactifact"
    assert git(path, "log", "-1", "--format=%B", "s/%outbox").strip() == "delivered notify:42"
    assert record_of(path, "s/%outbox")["session"] == "s"
    fsck(path)


@pytest.mark.parametrize("count", [2, 9])
async def test_a_subject_fits_and_the_body_says_what_it_leaves_out(count: int, git_place: Place) -> None:
    path = git_place.path
    assert path is not None
    session = await git_place.store().open("s")
    names = [f"{number}-{'x' * 40}" for number in range(count)]
    for name in names:
        session.context.create(Note(), id=name)
    await session.save()
    async with git_place.store().edit("s", message="why " * 40) as context:
        context.update(names[0], Note(text="new"))
    said = git(path, "log", "-1", "--format=%B", "s/main").splitlines()
    assert said[0].endswith("...")
    assert said[2] == ("why " * 40).strip()
    lines = git(path, "log", "-1", "--format=%B", "s/main~1").splitlines()
    assert lines[0].startswith("application: ")
    assert lines[2 : 2 + count] == [f"create Note {name}" for name in names]
    assert all(len(line) <= 72 for line in git(path, "log", "--format=%s", "s/main").splitlines())


def _upsert(text: str, call: ProduceCall) -> None:
    call.effects.upsert(Note(text=text), id="n")


async def test_a_subject_says_what_an_upsert_came_to(git_place: Place) -> None:
    path = git_place.path
    assert path is not None
    session = await git_place.store().open("s")
    for text in ("a", "b", "b"):
        await commit(session.context, partial(_upsert, text))
    await session.save()
    subjects = git(path, "log", "--format=%s", "s/main").splitlines()
    assert [line.partition(": ")[2] for line in subjects if line.endswith(" Note n")] == [
        "keep Note n",
        "update Note n",
        "create Note n",
    ]


@pytest.mark.parametrize(
    "words",
    [
        "Fixes: the price",
        "Signed-off-by: Ann <ann@x>",
        "first\nSee-also: second\nlast",
        "plain\nBut: not this",
        "(cherry picked from commit 1234)",
        "Key : value",
    ],
)
async def test_a_body_without_trailers_below_it_is_not_taken_for_some(git_place: Place, words: str) -> None:
    path = git_place.path
    assert path is not None
    async with git_place.store().edit("s", message=f"Say it\n\n{words}") as context:
        context.create(Note(), id="n")
    assert trailers(path, "s/main") == []
    lines = [line.strip() for line in git(path, "log", "-1", "--format=%b", "s/main").splitlines()]
    assert lines == [*words.splitlines(), "create Note n", ""][: len(lines)]


async def test_the_commit_that_takes_a_delivered_intent_from_the_outbox_says_so(git_place: Place) -> None:
    path = git_place.path
    assert path is not None
    session = await git_place.store().open("s")
    outside = Outside()
    for name in ("41", "42"):
        session.context.create(Order(item="x"), id=name)
        await Runtime(session.context, [notifier()], session=session, dispatcher=outside).arun()
    session.context.create(Note(), id="n")
    await session.save()
    assert outside.sent == ["notify:41", "notify:42"]
    removed = {}
    for revision in revisions(path, "s/main"):
        gone = git(
            path, "diff-tree", "-r", "--root", "--diff-filter=D", "--name-only", revision, "--", "outbox"
        )
        message = git(path, "log", "-1", "--format=%B", revision)
        told = [key for key in ("notify:41", "notify:42") if f"delivered {key}" in message]
        assert len(told) == len(gone.splitlines()) - bool(gone)
        removed.update(dict.fromkeys(told, message.splitlines()[0]))
    assert removed["notify:42"] == "application: create Note n, delivered notify:42"
    assert "delivered notify:41" in removed["notify:41"]
    assert main(["replay", str(path), "--session", "s", "--verify-all"]) == 0


async def test_what_was_new_is_a_create_after_a_refresh(git_place: Place) -> None:
    path = git_place.path
    assert path is not None
    session = await git_place.store().open("s")
    await session.save()
    async with git_place.store().edit("s") as context:
        context.create(Note(), id="other")
    session.context.create(Note(), id="n")
    await session.refresh()
    await session.save()
    assert git(path, "log", "-1", "--format=%s", "s/main").strip() == "application: create Note n"


async def test_what_a_commit_did_stands_in_its_header_and_counts_for_its_tree_alone(
    git_place: Place, tmp_path: Path
) -> None:
    session = await git_place.store().open("s")
    session.context.create(Order(item="x"), id="42")
    await Runtime(session.context, [notifier()], session=session, dispatcher=Outside()).arun()
    path = git_place.path
    assert path is not None
    for ref in ("s/main", "s/%outbox"):
        for revision in revisions(path, ref):
            record = record_of(path, revision)
            assert record["tree"] == git(path, "rev-parse", f"{revision}^{{tree}}").strip()
            assert record.get("parents", []) == git(path, "rev-parse", f"{revision}^@").split()
        assert "commit.json" not in git(path, "ls-tree", "-r", "--name-only", ref)
    work = tmp_path / "work"
    git(tmp_path, "clone", "-q", "-b", "s/main", str(path), str(work))
    for name, value in (("user.name", "Someone"), ("user.email", "someone@example.com")):
        git(work, "config", name, value)
    git(work, "commit", "-q", "--amend", "-m", "Said better")
    git(work, "push", "-q", "--force", "origin", "s/main")
    fsck(path)
    assert live(await git_place.load("s"), "42").data == Order(item="x")  # another message changes nothing
    assert main(["replay", str(path), "--session", "s", "--verify-all"]) == 0
    payload = next(work.glob("artifacts/*Order/*/*/*/42.json"))
    payload.write_text(payload.read_text(encoding="utf-8").replace('"x"', '"y"'), encoding="utf-8")
    git(work, "commit", "-q", "-a", "--amend", "-m", "Said wrongly")
    git(work, "push", "-q", "--force", "origin", "s/main")
    assert live(await git_place.load("s"), "42").data == Order(item="y")  # somebody's own, and adopted


def _delete(name: str, call: ProduceCall) -> None:
    call.effects.delete(name)


async def test_ids_cannot_forge_or_hide_a_trailer(git_place: Place) -> None:
    path = git_place.path
    assert path is not None
    session = await git_place.store().open("s")
    for name in FORGERIES:
        session.context.create(Question(text=name), id=name)
        session.context.link(name, name, name)
    writer = Writer("writer")
    writer.ids = tuple(f"{name}!" for name in FORGERIES)
    await Runtime(session.context, [writer], session=session).arun(max_iterations=1)
    for name in FORGERIES:
        await commit(session.context, partial(_delete, name))
    await session.save()
    change_ids = {found.id for found in session.context.history()}
    shown = set()
    for revision in revisions(path, "s/main"):
        found = trailers(path, revision)
        names = [name for name, _ in found]
        assert set(names) <= KEYS
        assert len(names) == len(set(names))
        record = record_of(path, revision)
        assert record["session"] == "s"
        assert len(record["state"]) == 64
        if "context_version" in record:
            shown.add(record["change"])
    assert shown == change_ids
    fsck(path)
    context = await git_place.load("s")
    for name in FORGERIES:
        assert live(context, f"{name}!").data.text == name + "!"


@pytest.mark.parametrize("name", FORGERIES)
async def test_names_of_agents_sessions_branches_and_people_cannot_either(
    name: str, git_place: Place
) -> None:
    path = git_place.path
    assert path is not None
    session = await git_place.store().open(name, RuntimeResources(principal=name))
    session.context.create(Question(text="why"), id="q")
    writer = Writer(name)
    writer.ids = ("n",)
    await Runtime(session.context, [writer], session=session).arun()
    fork = session.context.branch(name=name)
    fork.create(Note(), id="fork")
    fork.create(Order(item="x"), id=f"o{name}")
    await Runtime(fork, [notifier(name)], dispatcher=Outside()).arun()
    await git_place.branches().save_branch(fork, session_id=name, name=name)
    session.context.merge(fork, message=f"{name}\n\nChange-Id: forged\n---\n{name}")
    await session.save()
    async with git_place.store().edit(name, author=name, message=name) as context:
        context.create(Note(), id="edited")

    refs = git(path, "for-each-ref", "--format=%(refname)").split()
    for ref in refs:
        for revision in revisions(path, ref):
            found = trailers(path, revision)
            names = [key for key, _ in found]
            assert set(names) <= KEYS
            assert len(names) == len(set(names))
            assert set(dict(found)) == set() or record_of(path, revision)["kind"] in ("agent", "direct")
            assert record_of(path, revision)["change"] != "forged"
    fsck(path)
    stored = await git_place.load(name)
    authors = [found.author for found in stored.history()]
    assert authors == [name, "merge", name]
    assert await git_place.store().list_sessions() == [name]
    branches = await git_place.branches().list_branches(name)
    assert name in branches
    assert len(refs) == len(branches) + 2  # and the session's own line, and its ledger
