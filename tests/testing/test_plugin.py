"""The pytest plugin, as a project that uses reactifact meets it: pytest in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROJECT = """
import pytest
from pydantic import BaseModel

from reactifact import Consume, PendingAction, Runtime, create_agent, produce
from reactifact.testing import JumpingClock


class Order(BaseModel):
    item: str


class Receipt(BaseModel):
    text: str


@produce(Receipt, also_creates=PendingAction)
async def confirm(call):
    await call.context.resources.clock.sleep(3600)
    call.effects.act("mail", key=f"mail:{call.trigger.id}")
    return Receipt(text=f"confirmed {call.trigger.data.item}")


@pytest.mark.anyio
async def test_an_order_is_confirmed(
    reactifact_store, reactifact_resources, reactifact_clock, reactifact_dispatcher, reactifact_golden
):
    session = await reactifact_store.open("s", reactifact_resources)
    session.context.create(Order(item="tea"))
    agents = [create_agent("confirmer", consumes=[Consume(Order)], produces=[confirm])]
    await Runtime(session.context, agents, dispatcher=reactifact_dispatcher, session=session).arun()
    assert [found.id for found in session.context.list_artifacts(Receipt)] == ["receipt:0001"]
    assert isinstance(reactifact_clock, JumpingClock)
    assert reactifact_clock.slept == [3600]
    assert reactifact_dispatcher.keys == ["mail:order:0000"]
    reactifact_golden.check(session)


@pytest.mark.anyio
async def test_each_test_has_a_store_of_its_own(reactifact_store, reactifact_ids):
    assert await reactifact_store.list_sessions() == []
    assert reactifact_ids("Order") == "order:0000"
"""

CONFORMANCE = """
import pytest

from reactifact._store._backends.kv import MemoryBackend
from reactifact.testing.conformance import BackendConformance


class Forgetful(MemoryBackend):
    def refs(self, prefix="refs/"):
        return {}


class TestForgetful(BackendConformance):
    @pytest.fixture
    def open_backend(self):
        backend = Forgetful()
        return lambda: backend


class TestUnfinished(BackendConformance):
    pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with tests, and an environment in which reactifact's entry point is installed."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    info = tmp_path / "site" / "reactifact_testing_probe-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: reactifact-testing-probe\nVersion: 0\n")
    lines = [f"{name} = {module}" for name, module in declared.items()]
    (info / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (folder / "conftest.py").write_text(
        'import pytest\n\n\n@pytest.fixture\ndef anyio_backend():\n    return "asyncio"\n'
    )
    return folder


OTHER_PLUGINS = ("cacheprovider", "hypothesispytest", "langsmith_plugin", "xdist", "timeout")
"""What is installed and not looked at here; some take a second to import."""


def run_pytest(folder: Path, *arguments: str) -> tuple[int, str]:
    path = os.pathsep.join([str(ROOT), str(folder.parent / "site")])
    others = [option for plugin in OTHER_PLUGINS for option in ("-p", f"no:{plugin}")]
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *others, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_fixtures_and_golden_files_in_a_project(project: Path) -> None:
    (project / "test_orders.py").write_text(PROJECT)
    golden = project / "golden" / "test_an_order_is_confirmed.json"

    code, output = run_pytest(project)
    assert (code, golden.exists()) == (1, False), output
    assert "there is no golden file" in output
    assert "1 failed, 1 passed" in output

    code, output = run_pytest(project, "--update-golden")
    assert code == 0, output
    assert '"text": "confirmed tea"' in golden.read_text()

    code, output = run_pytest(project)
    assert code == 0, output
    assert "warning" not in output

    (project / "test_orders.py").write_text(PROJECT.replace("confirmed {", "shipped {"))
    code, output = run_pytest(project)
    assert code == 1, output
    assert '"text": "confirmed tea"' in output
    assert '"text": "shipped tea"' in output
    assert "this run" in output


def test_the_plugin_is_listed_with_its_fixtures_and_can_be_left_out(project: Path) -> None:
    (project / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
    code, output = run_pytest(project, "--fixtures")
    assert code == 0, output
    for name in ("store", "clock", "ids", "resources", "dispatcher", "golden"):
        assert f"reactifact_{name}" in output
    code, output = run_pytest(project, "-p", "no:reactifact", "--fixtures")
    assert code == 0, output
    assert "reactifact_store" not in output


def test_the_conformance_suite_finds_a_backend_that_breaks_its_promises(project: Path) -> None:
    (project / "test_backend.py").write_text(CONFORMANCE)
    code, output = run_pytest(project, "-k", "ref_is_created or several_refs or (Unfinished and new_store)")
    assert code == 1, output
    assert "2 failed" in output
    assert "AssertionError: assert {} == {'refs" in output, (
        output
    )  # the asserts of the suite explain themselves
    assert "TestUnfinished has no fixture open_backend" in output


def test_pytest_is_no_runtime_dependency() -> None:
    code = "import sys, reactifact.testing; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
