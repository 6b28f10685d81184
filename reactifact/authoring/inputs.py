"""The inputs of a call: a list that is made when it is first looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

from ..context.artifacts import Artifact


class Inputs(Sequence[Artifact[Any]]):
    """The artifacts an agent's consumes match, in the snapshot of its execution.

    Behaves like a list (indexing, slicing, `+`, equality with lists). An execution that never
    looks at it pays nothing for it, and records no read.
    """

    def __init__(self, load: Callable[[], list[Artifact[Any]]]) -> None:
        self._load = load
        self._items: list[Artifact[Any]] | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether the list has been made."""
        return self._items is not None

    def forget(self) -> None:
        """Make the list anew when it is next looked at."""
        self._items = None

    def _list(self) -> list[Artifact[Any]]:
        if self._items is None:
            self._items = self._load()
        return self._items

    @overload
    def __getitem__(self, index: int) -> Artifact[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Artifact[Any]]: ...
    def __getitem__(self, index: int | slice) -> Artifact[Any] | list[Artifact[Any]]:
        return self._list()[index]

    def __len__(self) -> int:
        return len(self._list())

    def __iter__(self) -> Iterator[Artifact[Any]]:
        return iter(self._list())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Inputs):
            return self._list() == other._list()
        return self._list() == other if isinstance(other, list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Sequence[Artifact[Any]]) -> list[Artifact[Any]]:
        return [*self._list(), *other]

    def __radd__(self, other: Sequence[Artifact[Any]]) -> list[Artifact[Any]]:
        return [*other, *self._list()]

    def __repr__(self) -> str:
        return repr(self._list())
