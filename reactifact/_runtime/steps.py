"""What a generation has finished, on its way to stable storage before the generation ends.

Owns the barriers of `per_step`, which executions that end together share, and what `call.memo` keeps from
one try of an execution to the next. What becomes of kept results is `generation`'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from anyio import Lock

from .._context.apply import HeldKey, HeldMemo, held_key, type_trees
from .._context.context import Context
from .._context.push import publish
from .._context.working_copy import WorkingCopy
from .._memo import Memos
from ..guards import redacted_data
from .execution import Result
from .plan import Work


class Steps:
    """The finished executions of one generation and the memos of those in progress.

    With `is_durable` they are written as they come; else they are kept with the turn alone, and saved with
    it where it fails or is cut.
    """

    def __init__(self, context: Context, work: Sequence[Work], *, is_durable: bool) -> None:
        self.context = context
        self.is_durable = is_durable
        self.error: Exception | None = None  # why nothing can be written any more
        self._finished: list[Result] = []
        self._memos: list[HeldMemo] = []
        if context.commits.memos:
            earlier = {alias: item.name for item in work for alias in item.agent.aliases}
            self._memos = [
                memo._replace(agent=earlier.get(memo.agent, memo.agent)) for memo in context.commits.memos
            ]
        self._work = work
        self._known_places: dict[int, tuple[HeldKey, int]] = {}
        self._barrier: Lock | None = None  # made by the first write
        self._asked = self._written = 0
        self._left = len(work)  # executions that have not ended

    @property
    def _places(self) -> dict[int, tuple[HeldKey, int]]:
        """By the identity of work: what its memos are found by, where there are or will be any."""
        places = self._known_places
        if not places:
            count: Counter[HeldKey] = Counter()
            for item in self._work:
                key = held_key(item.event, item.name)
                places[id(item)] = key, count[key]
                count[key] += 1
        return places

    def memos(self, work: Work, view: WorkingCopy, before: WorkingCopy) -> Memos:
        """Return what an earlier try of an execution has kept, and a place for what this one will keep.

        What was made from versions that have changed since, by the snapshot `before`, is not among it.
        """
        known: dict[str, Any] = {}
        if self._memos:
            known = {memo.key: memo.value for memo in self._of([work]) if memo.is_valid(before)}
        return Memos(known, partial(self._remember, work, view, before))

    async def _remember(
        self, work: Work, view: WorkingCopy, before: WorkingCopy, key: str, value: Any
    ) -> Any:
        place = self._places[id(work)][1]
        if self.context.resources.redactor is not None:
            value = redacted_data(value, self.context.resources.redactor)
        reads, types = dict(view.reads), type_trees(before, view.listings)
        memo = HeldMemo(work.name, work.event, place, key, value, reads, types)
        stale = [one for one in self._of([work]) if one.key == key]
        self._memos = [one for one in self._memos if one not in stale] + [memo]
        await self._write()
        return value

    async def finished(self, result: Result) -> None:
        """Keep what an execution came to; one that failed is not kept.

        The last one of a generation is not written here: its generation is committed now.
        """
        self._left -= 1
        if result.error is None:
            self._finished.append(result)
            if self._left:
                await self._write()

    def begin_with(self, results: Iterable[Result | None]) -> None:
        """Take over the results that an earlier try has left behind."""
        found = [result for result in results if result is not None]
        if not found:
            return
        self._finished = [result for result in found if result.error is None]
        self._left -= len(found)

    def hold(self, results: Iterable[Result]) -> None:
        """Let the next commit keep exactly these results, beside the memos."""
        results = list(results)
        commits = self.context.commits
        if results or self._memos or commits.held or commits.memos:
            commits.hold([result.sealed() for result in results], self._memos)

    def keep_memos_of(self, work: Iterable[Work]) -> None:
        """Keep the memos of work that is not done, and of executions of other generations, and no result."""
        if not self._memos:
            return
        mine = {(key, place) for key, place in self._places.values()}
        others = [memo for memo in self._memos if (held_key(memo.event, memo.agent), memo.place) not in mine]
        memos = [*others, *self._of(work)]
        if memos:
            self.context.commits.hold([], memos)

    def _of(self, work: Iterable[Work]) -> list[HeldMemo]:
        places = [self._places[id(item)] for item in work]
        return [memo for memo in self._memos if (held_key(memo.event, memo.agent), memo.place) in places]

    async def _write(self) -> None:
        """Wait until all that was finished by now is on stable storage.

        Whoever comes while a write is under way shares the next one. Where it fails, what else was started
        still ends, and nothing is started any more: the error is the turn's.
        """
        if not self.is_durable:
            return
        self._asked += 1
        mine = self._asked
        if self._barrier is None:
            self._barrier = Lock()
        async with self._barrier:
            if self.error is not None or self._written >= mine:
                return
            asked = self._asked
            try:
                self.hold(self._finished)
                self.context.commits.note_queue(f"reactifact: keep {self._phrase()} of a generation")
                await publish(self.context)
            except Exception as error:
                self.error = error
                return
            self._written = asked

    def _phrase(self) -> str:
        counts = ((len(self._finished), "finished execution"), (len(self._memos), "memo"))
        return " and ".join(f"{count} {what}{'s' * (count != 1)}" for count, what in counts if count)
