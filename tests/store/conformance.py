"""The conformance suite of the testing kit, for our own backends."""

from __future__ import annotations

from reactifact.testing.building import commit
from reactifact.testing.conformance import BackendConformance, OpenBackend

__all__ = ["BackendConformance", "OpenBackend", "commit"]
