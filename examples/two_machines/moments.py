"""The moments between two steps of a machine, at which it can be made to stand still and be killed.

Owns what a machine and its coordinator say to each other through the machine's pipes. Nothing of this
is needed to run two machines, only to kill one of them in the right moment.
"""

from __future__ import annotations

import sys
from enum import StrEnum

READY = "ready"
AT_ORDER = 2
"""A machine stands still at its second order, so that the stream is in full flow."""


class Moment(StrEnum):
    """What a machine has done with an order when it stands still."""

    CLAIMED = "claimed"
    """It has the order's session to itself, and has written nothing."""
    DECIDING = "deciding"
    """It is in the middle of the turn: nothing of it is committed."""
    DECIDED = "decided"
    """The mail is planned and committed, and not sent."""
    SENT = "sent"
    """The server has the mail, and the store does not know."""
    RECORDED = "recorded"
    """The delivery is recorded; the session is not given back."""


def say(line: str) -> None:
    """Tell the coordinator something."""
    print(line, flush=True)


class Halt:
    """Stands still, once, in a chosen moment; without one it never does."""

    def __init__(self, moment: Moment | None) -> None:
        self._moment = moment
        self._orders = 0

    def reached(self, moment: Moment) -> None:
        """Stand still here if this is the moment: the process hangs, with all the locks it holds.

        It hangs until it is killed, or goes on when nobody is left to kill it.
        """
        if moment is not self._moment:
            return
        self._orders += 1
        if self._orders == AT_ORDER:
            say(moment)
            sys.stdin.read()
