"""Histories of one session against a plain-Python model, in memory and on a git store.

Create, update, delete, link, unlink, commit, fork, merge, checkout, compact, undo, save, reopen and
`git gc --prune=now` in any order; after each step every branch shows what the model says, and the store
that is left passes `git fsck --strict`.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from history_model import Branch, Item, Node, State, merge_bases, merged
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from postgres_server import PostgresServer
from support import Note, Place, fsck, git

from reactifact import Context, MergeConflict
from reactifact._sessions.undo import undo_last
from reactifact._store.graph import first_parents
from reactifact.commit import Commit, Write
from reactifact.errors import StoreError

IDS = st.sampled_from(["a", "b", "c", "d/e"])
TEXTS = st.sampled_from(["one", "two", "three"])
CHOICE = st.integers(0, 1_000_000)


def run(function: Any, *arguments: Any, **named: Any) -> Any:
    return anyio.run(partial(function, *arguments, **named))


class Compacted(NamedTuple):
    """What a compaction changed, so that the model can undo it."""

    tips: dict[str, Node]
    baselines: dict[str, int]
    states: dict[Node, State]
    refs: dict[str, str]  # after it


class GoneBack(NamedTuple):
    """Where a branch stood before a checkout, so that the model can undo it."""

    tip: Node
    baseline: int
    was_collected: list[bool]  # whether git gc has run since
    compactions: int  # that were made before it


class History(RuleBasedStateMachine):
    """One session with several branches, every one open all the time."""

    file = ""  # none: in memory
    in_git = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="history-")) if self.file else None
        self.place = self.new_place()
        self.store, self.branches = self.place.store(), self.place.branches()
        self.branches.database = self.store.database
        self.contexts: dict[str, Context] = {}
        self.model: dict[str, Branch] = {}
        self.is_collected = True  # whether git gc has run since the last compaction
        self.compactions: list[Compacted] = []
        self.checkouts: dict[tuple[str, str], list[GoneBack]] = {}  # by branch and commit that they led to

    def new_place(self) -> Place:
        """Return the store of one example, empty."""
        return Place(None if self.folder is None else self.folder / self.file)

    def teardown(self) -> None:
        if self.folder is not None:
            for name in self.contexts:
                self.save(name)
            if self.in_git:
                fsck(self.folder / self.file)
            self.reload()
            self.shows_what_the_model_says()
            run(self.store.aclose)
            shutil.rmtree(self.folder)

    def save(self, name: str) -> None:
        context = self.contexts[name]
        run(self.branches.save_branch, context, session_id="s", name=name)
        self.model[name].settle()

    def reload(self) -> None:
        if self.folder is not None:
            run(self.store.aclose)
            self.store, self.branches = self.place.store(), self.place.branches()
            self.branches.database = self.store.database
        for name in self.contexts:
            found = run(self.branches.load_branch, "s", name)
            assert found is not None
            self.contexts[name] = found

    def pick(self, number: int) -> str:
        names = sorted(self.contexts)
        return names[number % len(names)]

    @initialize()
    def begin(self) -> None:
        session = run(self.store.open, "s")
        self.contexts["main"] = session.context
        root = Node(State(), 0, False)
        self.model["main"] = Branch(root, State())
        run(session.save)

    # -- changes -------------------------------------------------------------------------------

    @rule(where=CHOICE, name=IDS, text=TEXTS)
    def write(self, where: int, name: str, text: str) -> None:
        branch = self.pick(where)
        self.apply(branch, name, text)

    def apply(self, branch: str, name: str, text: str | None) -> str | None:
        """Make a direct change on both sides; return the kind of write it was."""
        context, model = self.contexts[branch], self.model[branch]
        items = dict(model.state.items)
        known = items.get(name)
        if text is None:
            assert context.delete(name) is (known is not None)
            items.pop(name, None)
            kind = None if known is None else "delete"
        elif known is None:
            context.create(Note(text=text), id=name)
            items[name] = Item(text)
            kind = "create"
        else:
            context.update(name, Note(text=text))
            kind = None if known.text == text else "update"
            if kind:
                items[name] = known.updated(text)
        model.state = State(items, model.state.links)
        return kind

    @rule(where=CHOICE, name=IDS)
    def delete(self, where: int, name: str) -> None:
        self.apply(self.pick(where), name, None)

    @rule(where=CHOICE, ends=st.tuples(IDS, IDS), there=st.booleans())
    def link(self, where: int, ends: tuple[str, str], there: bool) -> None:
        source, target = ends
        branch = self.pick(where)
        context, model = self.contexts[branch], self.model[branch]
        links = set(model.state.links)
        if there:
            context.link(source, "to", target)
            links.add((source, target))
        else:
            assert context.unlink(source, "to", target) == ((source, target) in links)
            links.discard((source, target))
        model.state = State(model.state.items, frozenset(links))

    @rule(where=CHOICE, changes=st.lists(st.tuples(IDS, st.none() | TEXTS), min_size=1, max_size=3))
    def commit(self, where: int, changes: list[tuple[str, str | None]]) -> None:
        branch = self.pick(where)
        context, model = self.contexts[branch], self.model[branch]
        run(self.branches.save_branch, context, session_id="s", name=branch)
        model.settle()
        writes = []
        for name, text in changes:
            kind = self.apply(branch, name, text)
            if kind is not None:
                found = model.state.items.get(name)
                writes.append(Write(name, 0 if found is None else found.version, kind))
        context.log_commit(Commit("tester", "change", [], writes=writes))
        model.commit(model.state, wrote=[write.artifact_id for write in writes])

    # -- history -------------------------------------------------------------------------------

    @precondition(lambda self: len(self.contexts) < 4)
    @rule(where=CHOICE)
    def fork(self, where: int) -> None:
        source = self.pick(where)
        name = f"fork{len(self.contexts)}"
        self.contexts[name] = self.contexts[source].branch(name=name)
        old = self.model[source]
        old.settle()
        self.model[name] = Branch(old.tip, old.state, old.baseline)
        self.save(name)

    @rule(into=CHOICE, source=CHOICE)
    def merge(self, into: int, source: int) -> None:
        target, other = self.pick(into), self.pick(source)
        if target == other:
            return
        ours, theirs = self.model[target], self.model[other]
        for name in (target, other):
            self.save(name)
        bases = merge_bases(ours.tip, theirs.tip)
        if len(bases) != 1:
            return
        expected = merged(bases[0].state, ours.state, theirs.state)
        context = self.contexts[target]
        before = context.version
        if expected is None:
            with pytest.raises(MergeConflict):
                context.merge(self.contexts[other])
            return
        context.merge(self.contexts[other])
        if context.version > before:
            ours.commit(expected, theirs.tip)
        else:
            assert expected == ours.state
            if theirs.state.content != bases[0].state.content:
                ours.meet(theirs.tip)

    @rule(where=CHOICE, version=CHOICE)
    def checkout(self, where: int, version: int) -> None:
        name = self.pick(where)
        context, model = self.contexts[name], self.model[name]
        if model.baseline:
            with pytest.raises(ValueError, match="compaction baseline"):
                context.checkout(model.baseline - 1)
        target = model.baseline + version % (model.tip.version - model.baseline + 1)
        self.save(name)
        before = GoneBack(model.tip, model.baseline, [False], len(self.compactions))
        is_logged = target != model.tip.version
        context.checkout(target)
        model.go_to(target)
        if is_logged:
            assert context.line.tip is not None
            self.checkouts.setdefault((name, context.line.tip), []).append(before)
        assert context.version == target
        # a commit that branches share may have more history than this branch kept
        assert context.compacted_at <= model.baseline
        model.baseline = context.compacted_at
        assert context.pending_events() == []

    @rule(where=CHOICE, keep=st.integers(0, 4), versions=st.none() | st.integers(0, 3))
    def compact(self, where: int, keep: int, versions: int | None) -> None:
        name = self.pick(where)
        for other in self.contexts:
            self.save(other)
        context = self.contexts[name]
        low = max(context.version - keep, context.compacted_at)
        differences = [context.diff(v, context.version) for v in range(low, context.version + 1)]
        refs = self.store.database.backend.refs("refs/heads/")
        folded = context.compact(keep_commits=keep, keep_versions=versions)
        assert context.compact(keep_commits=keep, keep_versions=versions) == 0
        assert [context.diff(v, context.version) for v in range(low, context.version + 1)] == differences
        held = self.model.items()
        undoable = Compacted(
            {other: model.tip for other, model in held},
            {other: model.baseline for other, model in held},
            {node: node.state for _, model in held for node in model.tip.ancestors().values()},
            {},
        )
        for other, model in self.model.items():
            floor = max(model.tip.version - keep, model.baseline)
            if other == name:
                assert folded == floor - model.baseline
            model.baseline = floor
            if versions is not None:
                self.trim(model, versions)
        now = self.store.database.backend.refs("refs/heads/")
        if refs != now:
            moved = {name: oid for name, oid in now.items() if refs[name] != oid}
            self.compactions.append(undoable._replace(refs=moved))
        self.is_collected = False
        self.reload()

    def trim(self, branch: Branch, keep: int) -> None:
        """Trim every version of every state of a branch: the model's commits are not rewritten else."""
        for node in branch.tip.ancestors().values():
            items = {name: item.trimmed(keep) for name, item in node.state.items.items()}
            node.state = State(items, node.state.links)
        branch.state = branch.tip.state

    @rule(where=CHOICE)
    def undo(self, where: int) -> None:
        name = self.pick(where)
        for other in self.contexts:
            self.save(other)
        model = self.model[name]
        last = self.compactions[-1] if self.compactions else None
        held = self.store.database.backend.refs("refs/heads/")
        standing = self.standing(held[f"refs/heads/s/{name}"])
        if any(standing & {*done.refs.values()} for done in self.compactions) and (
            last is None
            or f"refs/heads/s/{name}" not in last.refs
            or any(last.tips.get(other) is not branch.tip for other, branch in self.model.items())
            # a checkout that drops no commit moves a branch all the same: it empties the queue
            or any(held[ref] != oid for ref, oid in last.refs.items())
        ):
            return  # some branches would stay compacted: the model has one history for all
        checkouts = self.checkouts_below(name, held)
        if checkouts and checkouts[-1].compactions < len(self.compactions):
            return  # likewise: it would go back to before a compaction that others went through
        try:
            done = undo_last(self.store.database, "s", name)
        except StoreError as error:
            done = str(error)
        if "direct changes came after it" in done:
            assert not model.tip.is_versioned
            return
        if done.startswith("the checkout of version") and "cannot be undone" not in done:
            gone = checkouts.pop()
            model.tip, model.state, model.baseline = gone.tip, gone.tip.state, gone.baseline
            self.reload()
            return
        if "the checkout of version" in done:
            assert checkouts[-1].was_collected == [True]
            return
        if "nothing to undo" in done or "cannot be undone" in done:
            is_empty = model.tip.version == model.baseline
            assert is_empty if "nothing" in done else self.is_collected
            return
        if "compaction" in done:
            assert last is not None
            self.compactions.pop()
            for node, state in last.states.items():
                node.state = state
            for other, branch in self.model.items():
                assert branch.tip is last.tips[other]
                branch.state, branch.baseline = branch.tip.state, last.baselines[other]
        else:
            model.go_to(model.tip.version - 1)
            self.reload()
            model.baseline = self.contexts[name].compacted_at
        self.reload()

    def standing(self, tip: str) -> set[str]:
        """Return where an undo finds a branch: its tip, and what stands below notes of its queue."""
        found = set()
        for oid, record in first_parents(self.store.database, tip):
            found.add(oid)
            if record is None or record.kind not in ("queue", "adopt"):
                break
        return found

    def checkouts_below(self, name: str, held: dict[str, str]) -> list[GoneBack]:
        """Return the checkouts that led to where a branch stands, the last of them at the end."""
        below = (oid for oid, _ in first_parents(self.store.database, held[f"refs/heads/s/{name}"]))
        return next((self.checkouts[name, oid] for oid in below if self.checkouts.get((name, oid))), [])

    @rule()
    def reopen(self) -> None:
        for name in self.contexts:
            self.save(name)
        self.reload()

    @precondition(lambda self: self.in_git)
    @rule()
    def collect(self) -> None:
        assert self.folder is not None
        for name in self.contexts:
            self.save(name)
        git(self.folder / self.file, "gc", "--prune=now", "--quiet")
        self.is_collected = True
        for gone in (one for stack in self.checkouts.values() for one in stack):
            gone.was_collected[0] = True
        self.reload()

    @invariant()
    def shows_what_the_model_says(self) -> None:
        for name, context in self.contexts.items():
            model = self.model[name]
            shown = {
                found.id: Item(found.data.text, found.version, tuple(old.text for old in found.history))
                for found in context.list_artifacts(Note)
            }
            assert shown == model.state.items, name
            links = {(found.source_id, found.target_id) for found in context.relations()}
            assert links == model.state.links, name
            assert context.version == model.tip.version, name
            assert context.compacted_at == model.baseline, name
            assert len(context.history()) == context.version - context.compacted_at


class HistoryInGit(History):
    file = "state.git"
    in_git = True


class HistoryInSQLite(History):
    file = "state.db"


def in_postgres(server: PostgresServer) -> type[History]:
    """Return the machine whose every example has a database of its own on a server."""

    class HistoryInPostgres(History):
        file = "postgresql"

        def new_place(self) -> Place:
            self.database = server.database()
            return Place(self.database.__enter__())

        def teardown(self) -> None:
            try:
                super().teardown()
            finally:
                self.database.__exit__(None, None, None)

    return HistoryInPostgres


def test_history_in_postgres(postgres: PostgresServer) -> None:
    run_state_machine(in_postgres(postgres), 4, 25)


TestHistoryInMemory = History.TestCase
TestHistoryInMemory.settings = settings(max_examples=25, stateful_step_count=40)
TestHistoryInGit = HistoryInGit.TestCase
TestHistoryInGit.settings = settings(max_examples=6, stateful_step_count=30)

TestHistoryInSQLite = HistoryInSQLite.TestCase
TestHistoryInSQLite.settings = settings(max_examples=6, stateful_step_count=30)


@pytest.mark.full
def test_thousands_of_steps_in_memory() -> None:
    run_state_machine(History, 300, 100)


@pytest.mark.full
def test_thousands_of_steps_in_git() -> None:
    run_state_machine(HistoryInGit, 60, 80)


@pytest.mark.full
def test_thousands_of_steps_in_postgres(postgres: PostgresServer) -> None:
    run_state_machine(in_postgres(postgres), 40, 80)


@pytest.mark.full
def test_thousands_of_steps_in_sqlite() -> None:
    run_state_machine(HistoryInSQLite, 60, 80)


def run_state_machine(machine: type[History], examples: int, steps: int) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=steps))
