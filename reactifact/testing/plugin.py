"""The pytest plugin: fixtures for tests of agents, and `--update-golden`.

pytest loads it wherever reactifact is installed, by the entry point `reactifact`; `-p no:reactifact`
leaves it out. Every fixture begins with `reactifact_` and is made anew for each test. It owns no
behaviour of its own: what the fixtures are stands in the modules beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .._store._backends.kv import InMemoryKVBackend
from ..replay.hashes import counter_ids
from ..resources import RuntimeResources
from ..session import SessionStore
from .clock import JumpingClock
from .dispatcher import RecordingDispatcher
from .golden import GoldenFiles

# A wheel lets pytest rewrite the asserts of its modules; an editable install does not name them.
for _suite in ("reactifact.testing.conformance", "reactifact.testing.kv_conformance"):
    if _suite not in sys.modules:
        pytest.register_assert_rewrite(_suite)

_WRITTEN = pytest.StashKey[dict[Path, str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-golden`."""
    parser.getgroup("reactifact").addoption(
        "--update-golden",
        action="store_true",
        help="write the golden files that reactifact_golden.check compares with, instead of comparing",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Begin a run: no golden file has been written."""
    config.stash[_WRITTEN] = {}


@pytest.fixture
def reactifact_store() -> SessionStore:
    """A `SessionStore` in memory, empty."""
    return SessionStore(InMemoryKVBackend())


@pytest.fixture
def reactifact_clock() -> JumpingClock:
    """A `JumpingClock`: waiting costs no time."""
    return JumpingClock()


@pytest.fixture
def reactifact_ids() -> Callable[[str], str]:
    """An `id_factory` that gives `order:0000`, `note:0001` ..."""
    return counter_ids()


@pytest.fixture
def reactifact_resources(
    reactifact_clock: JumpingClock, reactifact_ids: Callable[[str], str]
) -> RuntimeResources:
    """`RuntimeResources` with the two above."""
    return RuntimeResources(clock=reactifact_clock, id_factory=reactifact_ids)


@pytest.fixture
def reactifact_dispatcher() -> RecordingDispatcher:
    """A dispatcher that notes what it was asked to send."""
    return RecordingDispatcher()


@pytest.fixture
def reactifact_golden(request: pytest.FixtureRequest) -> GoldenFiles:
    """The golden files of this test: those in the folder `golden` beside it.

    A check without a name is called after the test function, without the parameters in brackets.
    """
    return GoldenFiles(
        request.path.parent / "golden",
        name=getattr(request.function, "__name__", "golden"),
        update=bool(request.config.getoption("--update-golden")),
        written=request.config.stash[_WRITTEN],
    )
