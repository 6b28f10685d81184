"""What every test shares: `--full`, the event loops, hypothesis' profiles, an environment of its own.

Fixtures that only some tests need stand beside those tests.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from postgres_server import PostgresServer, binaries
from support import Place

# Deadlines and "too slow" measure the machine, not the code. In CI the examples are the same in every
# run, so that a red run speaks about the change; elsewhere each run looks in new places.
settings.register_profile(
    "default",
    deadline=None,
    max_examples=30,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("full", parent=settings.get_profile("default"), max_examples=1000)

FULL_TEST_TIMEOUT = 3600
"""Seconds that one test marked `full` may take; the others have pytest's `timeout` of pyproject.toml."""

# Set by git for its hooks: a test run from one would work on the repository of that hook.
GIT_VARIABLES_OF_HOOKS = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_WORK_TREE",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full",
        action="store_true",
        help="run the tests marked `full` too, and many more examples of the property tests",
    )


def pytest_configure(config: pytest.Config) -> None:
    # `--hypothesis-profile` on the command line is loaded later and wins.
    settings.load_profile("full" if config.getoption("--full") else "default")
    for name in GIT_VARIABLES_OF_HOOKS:
        os.environ.pop(name, None)
    os.environ["GIT_CONFIG_GLOBAL"] = str(Path(__file__).with_name("gitconfig"))
    os.environ["GIT_CONFIG_NOSYSTEM"] = "1"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    heavy = [item for item in items if item.get_closest_marker("full")]
    if config.getoption("--full"):
        for item in heavy:
            item.add_marker(pytest.mark.timeout(FULL_TEST_TIMEOUT))
    elif heavy:
        config.hook.pytest_deselected(items=heavy)
        items[:] = [item for item in items if item not in set(heavy)]


needs_uvloop = pytest.mark.skipif(
    importlib.util.find_spec("uvloop") is None, reason="uvloop does not exist for this Python or platform"
)


LOOPS = (
    pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
    pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop", marks=needs_uvloop),
    pytest.param(("trio", {}), id="trio"),
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test marked `every_loop` once on each event loop."""
    if "anyio_backend" in metafunc.fixturenames and metafunc.definition.get_closest_marker("every_loop"):
        metafunc.parametrize("anyio_backend", LOOPS, indirect=True, scope="module")


@pytest.fixture(scope="module")
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """The event loop that a test marked `anyio` runs on: asyncio, or each in turn (`every_loop`)."""
    return getattr(request, "param", ("asyncio", {"use_uvloop": False}))


@pytest.fixture(params=["memory", "git"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A store that can be opened several times: in memory, and as a bare repository."""
    return Place(tmp_path / "state.git" if request.param == "git" else None)


@pytest.fixture
def git_place(tmp_path: Path) -> Place:
    """A bare repository that can be opened several times."""
    return Place(tmp_path / "state.git")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this test run; where none is installed, the test is skipped."""
    found = binaries()
    if found is None:
        pytest.skip("PostgreSQL is not installed: no initdb under /usr/lib/postgresql or on PATH")
    server = PostgresServer(found)
    yield server
    server.remove()


@pytest.fixture
def postgres_dsn(postgres: PostgresServer) -> Iterator[str]:
    """The DSN of an empty database."""
    with postgres.database() as dsn:
        yield dsn
