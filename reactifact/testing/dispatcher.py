"""The outside world as a list: a dispatcher that notes what it was asked to send.

Owns `RecordingDispatcher`. It sends nothing; whether and when it is called is the runtime's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._context.context import Context
from ..artifacts import Artifact
from ..interrupt import PendingAction
from .faults import InjectedFault, raised


@dataclass(frozen=True)
class Delivery:
    """One call of the dispatcher: what was to be sent, under which key."""

    key: str
    kind: str
    payload: dict[str, Any]
    ordering_key: str | None = None


class RecordingDispatcher:
    """A dispatcher that notes every call and succeeds, unless it was told to fail.

    `attempts` lists every call in order, failed ones included; `sent` those that succeeded.
    """

    def __init__(self) -> None:
        self.attempts: list[Delivery] = []
        self.sent: list[Delivery] = []
        self._at: dict[int, BaseException | type[BaseException] | None] = {}
        self._for: dict[str, BaseException | type[BaseException] | None] = {}

    @property
    def keys(self) -> list[str]:
        """The keys of what was sent, in order."""
        return [delivery.key for delivery in self.sent]

    @property
    def attempted_keys(self) -> list[str]:
        """The keys of all calls, in order."""
        return [delivery.key for delivery in self.attempts]

    def fail_for(self, key: str, error: BaseException | type[BaseException] | None = None) -> None:
        """Fail every send of an idempotency key until `heal`; by default with an `InjectedFault`."""
        self._for[key] = error

    def fail_at(self, n: int, error: BaseException | type[BaseException] | None = None) -> None:
        """Fail the n-th call from the first of all, counted from 1. Raises `ValueError` for a past one."""
        if n <= len(self.attempts):
            raise ValueError(
                f"call {n} cannot be made to fail: {len(self.attempts)} were made already, counted from 1; "
                f"name a later one"
            )
        self._at[n] = error

    def heal(self) -> None:
        """Let every send from now on succeed."""
        self._at.clear()
        self._for.clear()

    async def __call__(self, context: Context, action: Artifact[PendingAction]) -> None:
        """Note a call. Raises what `fail_at` and `fail_for` asked for."""
        data = action.data
        delivery = Delivery(data.idempotency_key, data.kind, dict(data.payload), data.ordering_key)
        self.attempts.append(delivery)
        number = len(self.attempts)
        default = InjectedFault(f"injected: send {number}, of {delivery.key!r}, fails")
        if number in self._at:
            raise raised(self._at[number], default)
        if delivery.key in self._for:
            raise raised(self._for[delivery.key], default)
        self.sent.append(delivery)

    def __repr__(self) -> str:
        return f"RecordingDispatcher({len(self.sent)} sent of {len(self.attempts)} tried)"
