"""A merge made with git in a clone and pushed is what its tree says, on top of both sides."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from support import Note, Outside, fsck, git, live, notifier
from support import Order as Order

from reactifact import Context, Runtime, SessionStore
from reactifact._context.context import Context as AnyContext
from reactifact.branching import BranchStore
from reactifact.cli import main
from reactifact.errors import StaleSession

MAIN = "refs/heads/s/main"


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

    def save(self) -> Context:
        """Open the session and save it: what was adopted is written."""

        async def opened() -> Context:
            store = SessionStore(self.path, durability="os")
            session = await store.open("s")
            await session.save()
            await store.aclose()
            return session.context

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
    assert texts(desk.open()) == {"root": "root", "of main": "main", "of try": "try"}
    assert desk.head() == made  # opening writes nothing
    context = desk.save()
    head = desk.head()
    assert git(desk.path, "rev-parse", f"{head}^", f"{made}^1", f"{made}^2").split() == [made, *parents]
    assert git(desk.path, "log", "-1", "--format=%s", head).strip() == f"adopt {made[:7]}: Merge the trial"
    # what a merge keeps: versions, times, who wrote it
    assert live(context, "of try").version == 0
    assert context.history()[-1].author == "Tester <tester@example.com>"
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
    context = desk.save()
    found = live(context, "n")
    assert found.data == Note(text="both", count=3)
    assert found.version == 2
    assert texts(context)["of try"] == "try"
    # stored as ever, however it was written
    shown = git(desk.path, "show", f"s/main:{desk.file('n').relative_to(desk.work)}")
    assert shown == '{\n  "count": 3,\n  "extra": {},\n  "tags": [],\n  "text": "both"\n}\n'
    fsck(desk.path)


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


def test_what_git_takes_for_a_rename_is_what_its_tree_says(tmp_path: Path) -> None:
    """Git may mix two artifacts into one file by its guess: the tree that was pushed counts."""
    desk = Desk(tmp_path, note("a"), note("c"), lambda context: context.delete("n") and None)
    desk.merge(options=("-X", "find-renames=1"))
    held = {path.stem for path in desk.work.glob("artifacts/*/*/*/*/*.json")}
    assert {name.replace("%20", " ") for name in held} == set(texts(desk.open()))


def test_an_edit_beside_the_merge_is_a_version_above_both(tmp_path: Path) -> None:
    desk = Desk(tmp_path, nothing, nothing, nothing)
    desk.merge(lambda work: write(next(work.glob("artifacts/*/*/*/*/root.json")), '{"text": "better"}'))
    context = desk.save()
    assert live(context, "root").version == 1
    assert texts(context) == {"root": "better", "of main": "main", "of try": "try"}


def test_what_a_person_keeps_against_a_later_version_is_later_still(tmp_path: Path) -> None:
    def twice(context: Context) -> None:
        note("c")(context)
        note("d")(context)

    desk = Desk(tmp_path, note("a"), note("b"), twice)
    desk.merge(lambda work: git(work, "checkout", "--ours", "--", str(desk.file("n"))))
    found = live(desk.save(), "n")
    assert (found.data.text, found.version) == ("b", 3)
    assert [old.text for old in found.history] == ["a", "c", "d"]


def test_a_strategy_that_takes_one_side_is_believed(tmp_path: Path) -> None:
    desk = Desk(tmp_path, note("a"), nothing, note("c"))
    git(desk.work, "merge", "-q", "-s", "ours", "-m", "Take none", "origin/s/try")
    desk.push()
    context = desk.save()
    assert texts(context) == {"root": "root", "of main": "main", "n": "a"}
    assert live(context, "n").version == 2  # above the one that was not taken


def test_links_of_both_sides_are_what_the_tree_holds(tmp_path: Path) -> None:
    def change(source: str) -> Change:
        return lambda context: context.link(source, "knows", "root") and None

    desk = Desk(tmp_path, nothing, change("of main"), change("of try"))
    desk.merge()
    found = {(one.source_id, one.relation, one.target_id) for one in desk.save().relations()}
    assert found == {("of main", "knows", "root"), ("of try", "knows", "root")}


def test_one_of_two_that_adopt_at_once_goes_on_from_the_other(tmp_path: Path) -> None:
    desk = Desk(tmp_path, nothing, nothing, nothing)
    made = desk.merge()

    async def both() -> None:
        store = SessionStore(desk.path, durability="os")
        one, other = await store.open("s"), await store.open("s")
        one.context.create(Note(text="one"), id="one")
        other.context.create(Note(text="other"), id="other")
        await one.save()
        with pytest.raises(StaleSession):
            await other.save()
        assert await other.refresh()
        await other.save()
        await store.aclose()

    anyio.run(both)
    assert set(texts(desk.open())) == {"root", "of main", "of try", "one", "other"}
    above = git(desk.path, "log", "--format=%s", f"{made}..s/main").splitlines()
    assert sum(subject.startswith("adopt ") for subject in above) == 1


def test_reading_alone_looks_and_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    desk = Desk(tmp_path, note("a"), nothing, note("c"))
    made = desk.merge()
    assert main(["outbox", str(desk.path), "s", "--branch", "main"]) == 0
    parent = git(desk.path, "rev-parse", f"{made}^1").strip()
    assert main(["diff", str(desk.path), parent, made]) == 0
    shown = capsys.readouterr().out
    assert "text" in shown
    assert "of try" in shown
    assert desk.head() == made


def test_a_merge_of_what_was_there_already_changes_nothing(tmp_path: Path) -> None:
    desk = Desk(tmp_path, nothing, nothing, nothing)
    tree = git(desk.path, "rev-parse", "s/main^{tree}").strip()
    made = git(desk.path, "commit-tree", tree, "-p", "s/main", "-p", "s/main^", "-m", "Merge").strip()
    git(desk.path, "update-ref", MAIN, made)
    before = desk.open().version
    context = desk.save()
    assert set(texts(context)) == {"root", "of main"}
    assert context.version == before


def write(file: Path, text: str) -> None:
    file.write_text(text)
