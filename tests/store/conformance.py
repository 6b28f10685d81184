"""The conformance suite of the testing kit, for our own backends."""

from __future__ import annotations

from reactifact.testing.conformance import BackendConformance, OpenBackend, commit

__all__ = ["BackendConformance", "OpenBackend", "commit"]
