"""A merge costs what differs, not what the branches hold."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from pydantic import BaseModel
from support import Note

from reactifact import Context, MergeConflict, register_type
from reactifact._store.objects import Oid
from reactifact.branching import BranchStore
from reactifact.merging import counter, per_field

SMALL, LARGE = 300, 3_000


class Score(BaseModel):
    points: int = 0


register_type(Score, merge=per_field(points=counter))


async def _fill(path: Path, size: int, model: type[BaseModel]) -> None:
    store = BranchStore(path, durability="os")
    one = Context()
    for number in range(size):
        one.create(model(), id=f"n{number}")
        one.link(f"n{number}", "follows", f"n{number - 1}")
    one.drain_events()
    two = one.branch()
    for number in range(10):
        one.update(f"n{number}", Note(text="one") if model is Note else Score(points=1))
        two.update(f"n{number + 100}", Note(text="two") if model is Note else Score(points=2))
        one.link(f"n{number}", "cites", "n99")
        two.unlink(f"n{number + 100}", "follows")
    for name, context in (("one", one), ("two", two)):
        context.drain_events()
        await store.save_branch(context, session_id="s", name=name)
    await store.aclose()


def objects_read(path: Path, size: int, model: type[BaseModel], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many objects a merge, a preview and the save of the merge read from a store just opened."""

    async def measure() -> list[int]:
        await _fill(path, size, model)
        found = []
        for dry_run in (True, False):
            store = BranchStore(path, durability="os")
            backend = store.database.backend
            read: list[Oid] = []
            read_many = backend.read_many

            def counted(oids: list[Oid], read: list[Oid] = read, read_many=read_many) -> object:  # type: ignore[no-untyped-def]
                read.extend(oids)
                return read_many(oids)

            monkeypatch.setattr(backend, "read_many", counted)
            one = await store.load_branch("s", "one")
            two = await store.load_branch("s", "two")
            assert one is not None
            assert two is not None
            read.clear()
            one.merge(two, dry_run=dry_run)
            found.append(len(read))
            if not dry_run:
                assert one.version == 1
                await store.save_branch(one, session_id="s", name="one")
                found.append(len(read))
            await store.aclose()
        return found

    return anyio.run(measure)


@pytest.mark.parametrize("model", [Note, Score], ids=["plain", "with-a-merge-function"])
def test_ten_changes_a_side_cost_the_same_in_a_large_store(
    model: type[BaseModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = objects_read(tmp_path / "small.git", SMALL, model, monkeypatch)
    large = objects_read(tmp_path / "large.git", LARGE, model, monkeypatch)
    assert all(count > 20 for count in small)  # it has to read what differs at all
    assert all(many <= 2 * few for few, many in zip(small, large, strict=True)), (small, large)


def test_a_conflict_costs_no_more_than_a_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def conflicting(size: int) -> int:
        one = Context()
        for number in range(size):
            one.create(Note(), id=f"n{number}")
        two = one.branch()
        for context, text in ((one, "one"), (two, "two")):
            context.update("n1", Note(text=text))
        reads: list[Oid] = []
        read = type(one.line.objects).read

        def counted(self: object, oid: Oid) -> object:
            reads.append(oid)
            return read(self, oid)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(type(one.line.objects), "read", counted)
            with pytest.raises(MergeConflict):
                one.merge(two)
        return len(reads)

    assert conflicting(LARGE) <= 2 * conflicting(SMALL)
