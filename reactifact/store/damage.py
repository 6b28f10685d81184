"""Bookkeeping that is not as reactifact writes it: one error that says so, whatever is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from ..errors import StoreError

T = TypeVar("T")


def refusing_damage(what: str) -> Callable[[Callable[[bytes], T]], Callable[[bytes], T]]:
    """Let a function that reads the bytes of a file raise `StoreError`, naming `what` the file is."""

    def decorate(function: Callable[[bytes], T]) -> Callable[[bytes], T]:
        @wraps(function)
        def read(data: bytes) -> T:
            try:
                return function(data)
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                raise StoreError(
                    f"{what} cannot be read ({type(error).__name__}: {error}): it was changed by hand or is "
                    f"damaged; run `git fsck`, and restore it from an earlier commit, a clone or a backup"
                ) from error

        return read

    return decorate
