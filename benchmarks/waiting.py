"""The cost of branches beside events that wait: fork, merge and diff with 300 and with 30,000 of them.

As `branches`, but the session was filled by an application whose agents have not run: an event waits behind
each artifact, and every fork takes them all along.
"""

from __future__ import annotations

from .branches import measure
from .harness import Report, Settings

NAME = "waiting"
SUMMARY = "fork, merge and diff beside events that wait, by their number"


def run(settings: Settings) -> Report:
    """Build the stores and measure."""
    return measure(settings, NAME, SUMMARY, "events", is_waiting=True)
