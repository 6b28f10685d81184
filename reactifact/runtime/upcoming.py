"""What is to begin next: items in their order, as far as the limit of each item's group lets them.

Owns the choice alone. How many run at once, and running them, is `native.run_all`'s.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Upcoming(Generic[T]):
    """Items to begin, the first that may come first; items of one group never overtake one another.

    `group` names what an item shares its limit with, `limit` says how many of that may be in progress at
    once (`None`: any number).
    """

    def __init__(
        self, items: Iterable[T], group: Callable[[T], Hashable], limit: Callable[[T], int | None]
    ) -> None:
        self._waiting = deque(enumerate(items))
        self._group = group
        self._limit = limit
        self._held_back: dict[Hashable, deque[tuple[int, T]]] = {}  # all of it comes before what waits
        self._running: Counter[Hashable] = Counter()

    def next(self) -> T | None:
        """Take the first that may begin now, if any; `ended` has to be told when it ends."""
        ready = [held[0] for held in self._held_back.values() if self._has_room(held[0][1])]
        if ready:
            _, item = min(ready, key=lambda place: place[0])
            group = self._group(item)
            self._held_back[group].popleft()
            if not self._held_back[group]:
                del self._held_back[group]
            return self._begin(item)
        while self._waiting:
            place = self._waiting.popleft()
            if self._has_room(place[1]):
                return self._begin(place[1])
            self._held_back.setdefault(self._group(place[1]), deque()).append(place)
        return None

    def ended(self, item: T) -> None:
        """Make room for another item of its group."""
        group = self._group(item)
        self._running[group] -= 1
        if not self._running[group]:
            del self._running[group]

    def _has_room(self, item: T) -> bool:
        limit = self._limit(item)
        return limit is None or self._running[self._group(item)] < limit

    def _begin(self, item: T) -> T:
        self._running[self._group(item)] += 1
        return item
