"""Trying a produce again: how often, on which errors, after which waits.

Owns `Retries`, and taking back what a failed try has planned and changed. Generations that are
repeated as a whole are the runtime's.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

from anyio.lowlevel import checkpoint_if_cancelled

from ..context import Context
from ..errors import add_note
from .effects import Effects
from .inputs import Inputs

LONGEST_WAIT = 60.0
"""Seconds a doubled wait is cut to; a first wait that is longer stays as long as it is."""

Errors = type[Exception] | Iterable[type[Exception]]


class Retries(NamedTuple):
    """How a produce is tried again: at most `times` times, after `backoff` seconds, then twice that ...

    `jitter` is the largest share of a wait that is added to it at random; 0 adds nothing.
    """

    times: int = 0
    errors: tuple[type[Exception], ...] = (Exception,)
    backoff: float = 0.5
    jitter: float = 0.0

    @classmethod
    def checked(cls, name: str, count: int, errors: Errors, backoff: float, jitter: float) -> Retries:
        """Return the retries of a produce. Raises `ValueError` or `TypeError` naming what is wrong."""
        if isinstance(count, bool) or not isinstance(count, int):
            raise TypeError(f"{name}: retries={count!r} is no number: pass how often to try again")
        if count < 0:
            raise ValueError(f"{name}: retries={count} is below 0: pass how often to try again, 0 for never")
        if not backoff >= 0:
            raise ValueError(f"{name}: backoff={backoff!r} is no wait: pass seconds, 0 for none")
        if not 0 <= jitter <= 1:
            raise ValueError(f"{name}: jitter={jitter!r} is no share of a wait: pass 0 to 1")
        kinds: tuple[Any, ...] = (errors,) if isinstance(errors, type) else tuple(errors)
        for kind in kinds:
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                raise TypeError(
                    f"{name}: retry_on holds {kind!r}, which is no class of Exception: a cancellation "
                    f"and other BaseExceptions are never tried again"
                )
        return cls(count, kinds, float(backoff), float(jitter))

    def wait(self, tries: int) -> float:
        """Return the seconds to wait after `tries` failed tries."""
        doubled = self.backoff * 2.0 ** min(tries - 1, 64)
        bounded = min(doubled, max(self.backoff, LONGEST_WAIT))
        return bounded * (1.0 + self.jitter * random.random()) if self.jitter else bounded


async def run_with_retries(
    once: Callable[[], Awaitable[None]],
    retries: Retries,
    context: Context,
    effects: Effects,
    inputs: Sequence[Any],
) -> None:
    """Run `once`, and again after an error that may be tried again.

    Effects and, inside an execution, direct changes of the failed try are dropped first; what it read
    stays read. The last error is raised as it is, with a note of how many tries there were.
    """
    for tries in range(1, retries.times + 2):
        back = _savepoint(context, effects, inputs)
        try:
            await once()
            return
        except retries.errors as error:
            if tries > retries.times:
                add_note(error, f"raised by the last of {tries} tries (retries={retries.times})")
                raise
        back()
        await checkpoint_if_cancelled()  # an error that a cancellation was turned into ends here
        await context.resources.clock.sleep(retries.wait(tries))


def _savepoint(context: Context, effects: Effects, inputs: Sequence[Any]) -> Callable[[], None]:
    """Return a function that takes back what happens from now on.

    Outside of the runtime an agent works on the context itself, which others see and change too: its
    direct changes are not taken back there.
    """
    working = context.working
    planned = effects.savepoint()
    changed = working.savepoint() if working.is_private else None
    is_loaded = isinstance(inputs, Inputs) and inputs.is_loaded

    def back() -> None:
        effects.rollback(planned)
        if changed is not None:
            working.rollback(changed)
        if isinstance(inputs, Inputs) and not is_loaded:
            inputs.forget()

    return back
