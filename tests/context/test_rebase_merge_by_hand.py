"""A merge made with git in a clone and pushed is merged again by our rules when its branch is opened."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel
from support import Note, Outside, fsck, git, live, notifier
from support import Order as Order

from reactifact import Context, Runtime, SessionStore, register_type
from reactifact._context import rebase as rejoining
from reactifact._context.context import Context as AnyContext
from reactifact._sessions.stores import open_database
from reactifact._store.branch import Branch
from reactifact._store.object_db import Database
from reactifact.branching import BranchStore, MergeConflict
from reactifact.cli import main
from reactifact.errors import MergedByHand, StoreError
from reactifact.merging import counter, per_field

MAIN = "refs/heads/s/main"


class Tally(BaseModel):
    count: int = 0
    by: str = ""


register_type(Tally, merge=per_field(count=counter))

Change = Callable[[Context], None]


def nothing(context: Context) -> None:
    pass


class Desk:
    """A store with two branches, and a clone of it in which a person works with git."""

    def __init__(self, folder: Path, start: Change, ours: Change, theirs: Change) -> None:
        self.path = folder / "state.git"
        self.work = folder / "clone"
        anyio.run(self._make, start, ours, theirs)
        git(folder, "clone", "-q", "--branch", "s/main", str(self.path), str(self.work))
        self.before = git(self.path, "rev-parse", "s/main").strip()

    async def _make(self, start: Change, ours: Change, theirs: Change) -> None:
        branches = BranchStore(self.path, durability="os")
        async with branches.edit("s") as context:
            context.create(Note(text="root"), id="root")
            start(context)
        await branches.fork("s", "s/try")
        for branch, change in (("try", theirs), ("main", ours)):
            async with branches.edit("s", branch) as context:
                context.create(Note(text=branch), id=f"of {branch}")
                change(context)
        await branches.aclose()

    def merge(
        self,
        resolve: Callable[[Path], Any] = lambda work: None,
        options: tuple[str, ...] = ("-X", "find-renames=100%"),
    ) -> str:
        """Merge as a person does: where bookkeeping is a conflict, it is taken as it stands."""
        done = subprocess.run(
            ["git", "-C", str(self.work), "merge", "--no-commit", *options, "origin/s/try"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (0, 1), done.stderr  # nothing of ours is in every tree
        resolve(self.work)
        git(self.work, "add", "-A")
        git(self.work, "commit", "-q", "-m", "Merge the trial\n\nit went well")
        return self.push()

    def push(self) -> str:
        git(self.work, "push", "-q", "origin", "HEAD:s/main")
        made = git(self.path, "rev-parse", "s/main").strip()
        assert made != self.before
        return made

    def open(self) -> Context:
        async def opened() -> Context:
            store = SessionStore(self.path, durability="os")
            context = (await store.open("s")).context
            await store.aclose()
            return context

        return anyio.run(opened)

    def head(self) -> str:
        return git(self.path, "rev-parse", "s/main").strip()

    def file(self, name: str) -> Path:
        (found,) = self.work.glob(f"artifacts/*/*/*/*/{name}.json")
        return found


def texts(context: Context) -> dict[str, str]:
    return {note.id: note.data.text for note in context.list_artifacts(Note)}


def note(text: str, count: int = 0) -> Change:
    def change(context: Context) -> None:
        if context.update("n", Note(text=text, count=count)) is None:
            context.create(Note(text=text, count=count), id="n")

    return change


def test_a_merge_by_git_becomes_one_of_ours(tmp_path: Path) -> None:
    desk = Desk(tmp_path, nothing, nothing, nothing)
    parents = git(desk.path, "rev-parse", "s/main", "s/try").split()
    made = desk.merge()
    context = desk.open()
    assert texts(context) == {"root": "root", "of main": "main", "of try": "try"}
    head = desk.head()
    assert head != made
    assert git(desk.path, "rev-parse", f"{head}^1", f"{head}^2").split() == parents
    said = git(desk.path, "log", "-1", "--format=%B", head)
    assert said.startswith("Merge the trial\n")
    assert f"Made by hand by Tester as {made}" in said
    # what a merge keeps: versions, times, who wrote it
    assert live(context, "of try").version == 0
    assert context.history()[-1].author == "merge"
    assert len(context.history()[-1].writes) == 1
    fsck(desk.path)
    again = desk.open()
    assert desk.head() == head
    assert again.head_id == context.head_id

    # the next merge starts from there
    async def go_on() -> Any:
        branches = BranchStore(desk.path, durability="os")
        async with branches.edit("s", "try") as trial:
            trial.update("of try", Note(text="try again"))
        await branches.merge("s", "s/try")
        return await branches.load_branch("s", "main")

    assert texts(anyio.run(go_on))["of try"] == "try again"


def test_what_a_person_wrote_settles_a_conflict(tmp_path: Path) -> None:
    desk = Desk(tmp_path, note("a"), note("b", 1), note("c", 2))
    desk.merge(lambda work: write(desk.file("n"), '{"text": "both", "count": 3, "tags": [], "extra": {}}'))
    context = desk.open()
    found = live(context, "n")
    assert found.data == Note(text="both", count=3)
    assert found.version == 2
    assert texts(context)["of try"] == "try"
    # stored as ever, however it was written
    shown = git(desk.path, "show", f"s/main:{desk.file('n').relative_to(desk.work)}")
    assert shown == '{\n  "count": 3,\n  "extra": {},\n  "tags": [],\n  "text": "both"\n}\n'
    fsck(desk.path)


@pytest.mark.parametrize(("side", "text"), [("ours", "b"), ("theirs", "c")])
def test_a_side_that_a_person_took_settles_a_conflict(tmp_path: Path, side: str, text: str) -> None:
    desk = Desk(tmp_path, note("a"), note("b"), note("c"))

    def resolve(work: Path) -> None:
        git(work, "checkout", f"--{side}", "--", str(desk.file("n")))

    desk.merge(resolve)
    assert texts(desk.open())["n"] == text


@pytest.mark.parametrize("deleted_by", ["ours", "theirs"])
@pytest.mark.parametrize("keep", [True, False], ids=["kept", "deleted"])
def test_a_deletion_against_a_change_is_what_the_person_made_of_it(
    tmp_path: Path, deleted_by: str, keep: bool
) -> None:
    def delete(context: Context) -> None:
        context.delete("n")

    ours, theirs = (delete, note("c")) if deleted_by == "ours" else (note("c"), delete)
    desk = Desk(tmp_path, note("a"), ours, theirs)

    def resolve(work: Path) -> None:
        if not keep:
            desk.file("n").unlink()

    desk.merge(resolve)
    assert texts(desk.open()).get("n") == ("c" if keep else None)


def test_what_git_takes_for_a_rename_is_never_half_taken_over(tmp_path: Path) -> None:
    """Git's guess mixes two artifacts into one file: that is seen, and nothing moves."""
    desk = Desk(tmp_path, note("a"), note("c"), lambda context: context.delete("n") and None)
    made = desk.merge(options=("-X", "find-renames=1"))
    with pytest.raises(StoreError, match=r"of%20try\.json in it is neither what a side has nor"):
        desk.open()
    assert desk.head() == made


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ("<<<<<<< HEAD\n", "is not valid"),
        ('{"text": 7}', "is not valid"),
        ('{"text": "x", "count": 1, "tags": [], "extra": {}, "txet": "y"}', "not what its class would store"),
        ('{"text": "x"}', "not what its class would store"),
        (None, "no payload of it"),
    ],
)
def test_a_conflict_that_is_left_open_moves_nothing(tmp_path: Path, payload: str | None, reason: str) -> None:
    desk = Desk(tmp_path, note("a"), note("b"), note("c"))

    def resolve(work: Path) -> None:
        if payload is None:
            desk.file("n").unlink()
        else:
            write(desk.file("n"), payload)

    made = desk.merge(resolve)
    refs = git(desk.path, "for-each-ref")
    with pytest.raises(MergeConflict) as caught:
        desk.open()
    text = str(caught.value)
    assert [detail.artifact_id for detail in caught.value.details] == ["n"]
    assert text.startswith(f"{MAIN} points at {made[:12]}, a merge made by hand, which leaves conflicts open")
    assert "text: base 'a', ours 'b', theirs 'c'" in text
    assert reason in text
    assert git(desk.path, "for-each-ref") == refs
    # the way out, taken
    command = text[text.rindex("`git ") + 5 : text.rindex("`, then")]
    git(desk.path, *command.split())
    assert texts(desk.open())["n"] == "b"

    async def merge() -> Any:
        branches = BranchStore(desk.path, durability="os")
        assert f"merge {git(desk.path, 'rev-parse', 's/try')[:12]} with" in text
        await branches.merge("s", "s/try", policy="theirs")
        return await branches.load_branch("s", "main")

    assert texts(anyio.run(merge))["n"] == "c"


def test_an_edit_beside_the_merge_is_refused_and_not_dropped(tmp_path: Path) -> None:
    for number, edit in enumerate(
        [
            lambda work: write(next(work.glob("artifacts/*/*/*/*/root.json")), '{"text": "evil"}'),
            lambda work: next(work.glob("artifacts/*/*/*/*/root.json")).unlink(),
            lambda work: write(work / "artifacts" / "notes.txt", "remember"),
            lambda work: write(work / "README", "remember"),
        ]
    ):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        desk = Desk(folder, nothing, nothing, nothing)
        made = desk.merge(edit)
        with pytest.raises(StoreError, match=r"neither what a side has nor .*BranchStore\.edit.*was moved"):
            desk.open()
        assert desk.head() == made


def test_where_one_side_alone_changed_something_our_rules_hold(tmp_path: Path) -> None:
    """`-s ours` takes no file of the other side; whoever wants that keeps from merging."""
    desk = Desk(tmp_path, note("a"), nothing, note("c"))
    git(desk.work, "merge", "-q", "-s", "ours", "-m", "Take none", "origin/s/try")
    desk.push()
    assert texts(desk.open()) == {"root": "root", "of main": "main", "of try": "try", "n": "c"}


def test_relations_and_merge_functions_are_merged_by_our_rules(tmp_path: Path) -> None:
    def start(context: Context) -> None:
        context.create(Tally(count=10), id="t")
        context.link("root", "sees", "t")

    def change(add: int, target: str) -> Change:
        def work(context: Context) -> None:
            context.update("t", Tally(count=live(context, "t").data.count + add))
            context.link("root", "knows", target)

        return work

    desk = Desk(tmp_path, start, change(1, "x"), change(5, "y"))
    desk.merge()
    context = desk.open()
    assert live(context, "t").data == Tally(count=16)
    assert {(found.relation, found.target_id) for found in context.relations("root")} == {
        ("sees", "t"),
        ("knows", "x"),
        ("knows", "y"),
    }


def test_what_a_person_wrote_where_a_merge_function_decides_is_refused(tmp_path: Path) -> None:
    def tally(count: int) -> Change:
        def change(context: Context) -> None:
            if context.update("t", Tally(count=count)) is None:
                context.create(Tally(count=count), id="t")

        return change

    desk = Desk(tmp_path, tally(10), tally(11), tally(15))
    made = desk.merge(lambda work: write(desk.file("t"), '{"count": 99, "by": ""}'))
    with pytest.raises(StoreError, match=r"artifacts/\S+/t\.json in it is neither"):
        desk.open()
    assert desk.head() == made


def test_the_queue_and_what_waits_to_be_sent_survive(tmp_path: Path) -> None:
    def order(context: Context) -> None:
        context.create(Order(item="tea"), id="o")

    desk = Desk(tmp_path, nothing, nothing, nothing)
    outside = Outside()

    async def plan() -> None:
        store = SessionStore(desk.path, durability="os")
        session = await store.open("s")
        order(session.context)
        await Runtime(session.context, [notifier()], session=session).arun()
        session.context.create(Order(item="cake"), id="o2")
        await session.save()
        await store.aclose()

    anyio.run(plan)
    git(desk.work, "pull", "-q")
    desk.merge()

    async def run() -> None:
        store = SessionStore(desk.path, durability="os")
        session = await store.open("s")
        await Runtime(session.context, [notifier()], session=session, dispatcher=outside).arun()
        await store.aclose()

    anyio.run(run)
    anyio.run(run)
    assert sorted(outside.sent) == ["notify:o", "notify:o2"]


def test_every_way_of_opening_a_branch_does_it(tmp_path: Path) -> None:
    async def load_session(path: Path) -> Any:
        return await SessionStore(path, durability="os").load_session("s")

    async def load_branch(path: Path) -> Any:
        return await BranchStore(path, durability="os").load_branch("s", "main")

    async def edit(path: Path) -> Any:
        async with SessionStore(path, durability="os").edit("s") as context:
            return context

    async def merge(path: Path) -> Any:
        target, _ = await BranchStore(path, durability="os").sides("s/main", "s/try")
        return target

    for number, way in enumerate([load_session, load_branch, edit]):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        desk = Desk(folder, nothing, nothing, nothing)
        desk.merge()
        assert set(texts(anyio.run(way, desk.path))) == {"root", "of main", "of try"}


def test_a_context_that_is_open_gets_it_with_a_refresh(tmp_path: Path) -> None:
    desk = Desk(tmp_path, nothing, nothing, nothing)

    async def work() -> AnyContext:
        store = SessionStore(desk.path, durability="os")
        session = await store.open("s")
        await anyio.to_thread.run_sync(desk.merge)
        session.context.create(Note(text="mine"), id="mine")
        assert await session.refresh()
        await session.save()
        await store.aclose()
        return session.context

    assert set(texts(anyio.run(work))) == {"root", "of main", "of try", "mine"}
    assert set(texts(desk.open())) == {"root", "of main", "of try", "mine"}


def test_two_that_open_it_at_once_make_one_merge(tmp_path: Path) -> None:
    desk = Desk(tmp_path, nothing, nothing, nothing)
    desk.merge()
    heads: list[str | None] = []

    async def both() -> None:
        async def one() -> None:
            store = SessionStore(desk.path, durability="os")
            heads.append((await store.open("s")).context.head_id)
            await store.aclose()

        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(one)

    anyio.run(both)
    assert len(heads) == 4
    assert len(set(heads)) == 1


def test_one_that_is_merged_again_between_two_looks_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path, nothing, nothing, nothing)
    desk.merge()
    load = Branch.load
    others: list[str | None] = []

    def late(database: Database, session: str, branch: str) -> Branch | None:
        try:
            return load(database, session, branch)
        except MergedByHand:
            monkeypatch.undo()
            line = rejoining.load(open_database(desk.path), session, branch)
            others.append(None if line is None else line.head)
            raise

    monkeypatch.setattr(Branch, "load", staticmethod(late))
    line = rejoining.load(open_database(desk.path), "s", "main")
    assert line is not None
    assert others == [line.head]


def test_reading_alone_tells_and_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    desk = Desk(tmp_path, nothing, nothing, nothing)
    made = desk.merge()
    assert main(["outbox", str(desk.path), "s", "--branch", "main"]) == 2
    assert "SessionStore.open" in capsys.readouterr().err
    assert desk.head() == made


def test_three_parents_or_a_side_that_is_not_ours_are_refused(tmp_path: Path) -> None:
    desk = Desk(tmp_path, nothing, nothing, nothing)
    tree = git(desk.path, "rev-parse", "s/main^{tree}").strip()
    foreign = git(desk.path, "commit-tree", tree, "-p", "s/try", "-m", "by hand").strip()
    for parents in (
        ["s/main", "s/try", "s/try^"],
        ["s/main", foreign],
        [foreign, "s/main"],
    ):
        options = [word for parent in parents for word in ("-p", parent)]
        made = git(desk.path, "commit-tree", tree, *options, "-m", "Merge").strip()
        git(desk.path, "update-ref", MAIN, made)
        with pytest.raises(MergedByHand, match=r"git update-ref refs/heads/s/main"):
            desk.open()
        assert desk.head() == made
        git(desk.path, "update-ref", MAIN, desk.before)


def test_a_merge_of_what_was_there_already_goes_back_to_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path, nothing, nothing, nothing)
    tree = git(desk.path, "rev-parse", "s/main^{tree}").strip()
    made = git(desk.path, "commit-tree", tree, "-p", "s/main", "-p", "s/main^", "-m", "Merge").strip()
    git(desk.path, "update-ref", MAIN, made)
    assert set(texts(desk.open())) == {"root", "of main"}
    assert desk.head() == desk.before


def write(file: Path, text: str) -> None:
    file.write_text(text)
