"""Ready wrappers around a dispatcher."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from ..context import Context
from ..context.artifacts import Artifact
from ..context.interrupts import PendingAction
from ..errors import add_note
from .outbox import Dispatcher


class RetryingDispatcher:
    """Tries a delivery several times before it counts as failed.

    `attempts` is the number of calls, `backoff` the first wait in seconds (doubled each time, at
    most `longest`), `jitter` the share of a wait that is random. Errors not in `retry_on` are raised
    at once. The waits are taken from the context's clock; every try carries the same key.
    """

    def __init__(
        self,
        dispatch: Dispatcher,
        attempts: int = 3,
        backoff: float = 0.5,
        jitter: float = 0.1,
        *,
        longest: float = 60.0,
        retry_on: tuple[type[Exception], ...] = (Exception,),
        random_share: Callable[[], float] = random.random,
    ) -> None:
        if attempts < 1:
            raise ValueError(f"attempts is a number of at least 1, not {attempts!r}")
        if backoff < 0 or not 0 <= jitter <= 1:
            raise ValueError("backoff is a number of seconds, jitter a share from 0 to 1")
        self._dispatch = dispatch
        self._attempts = attempts
        self._backoff = backoff
        self._jitter = jitter
        self._longest = longest
        self._retry_on = retry_on
        self._random = random_share

    async def __call__(self, context: Context, action: Artifact[PendingAction]) -> None:
        """Deliver one action. Raises the last error, with a note saying how often it was tried."""
        for attempt in range(1, self._attempts + 1):
            try:
                result = self._dispatch(context, action)
                if isinstance(result, Awaitable):
                    await result
                return
            except self._retry_on as error:
                if attempt == self._attempts:
                    add_note(error, f"tried {attempt} times")
                    raise
                await context.resources.clock.sleep(self._wait(attempt))

    def _wait(self, attempt: int) -> float:
        wait: float = min(self._backoff * 2.0 ** min(attempt - 1, 64), self._longest)
        return wait * (1 - self._jitter * self._random())
