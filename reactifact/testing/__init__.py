"""What tests of agents need: a clock that jumps, a recorded world, injected faults, golden snapshots.

Owns helpers for users' tests as well as our own. Nothing of the library depends on it. The fixtures are
`plugin`'s, the suites for backends `conformance`'s and `kv_conformance`'s: these need pytest and are not
imported here.
"""

from __future__ import annotations

from ..replay.hashes import counter_ids
from .clock import JumpingClock
from .dispatcher import Delivery, RecordingDispatcher
from .faults import Crash, FaultyBackend, InjectedFault, crashing, failing
from .golden import GoldenFiles, golden, golden_text

__all__ = [
    "Crash",
    "Delivery",
    "FaultyBackend",
    "GoldenFiles",
    "InjectedFault",
    "JumpingClock",
    "RecordingDispatcher",
    "counter_ids",
    "crashing",
    "failing",
    "golden",
    "golden_text",
]
