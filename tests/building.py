"""Objects and commits to fill a store with: those of the testing kit, also for child processes."""

from __future__ import annotations

from reactifact.testing.conformance import ABSENT, MAIN, WHO, blob, commit, put

__all__ = ["ABSENT", "MAIN", "WHO", "blob", "commit", "put"]
