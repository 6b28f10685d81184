"""The command that installs an extra: from where this copy came from, never by its name from an index."""

from __future__ import annotations

import importlib
import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from reactifact import _extras

ROOT = Path(_extras.__file__).resolve().parents[1]


class Installed:
    """A distribution as `importlib.metadata` gives it."""

    def __init__(self, origin: dict[str, Any] | None) -> None:
        self._origin = origin
        self.requires = [
            "pydantic>=2.11",
            "psycopg[binary]>=3.1; extra == 'pg'",
            'starlette>=0.37; extra == "ui"',
            'uvicorn>=0.29; python_version >= "3.11" and extra == "ui"',
        ]

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self._origin is None else json.dumps(self._origin)


def command(monkeypatch: pytest.MonkeyPatch, origin: dict[str, Any] | None) -> list[str]:
    monkeypatch.setattr(_extras, "distribution", lambda name: Installed(origin))
    return shlex.split(_extras.install_command("ui"))[1:]


PIP = ["-m", "pip", "install"]


def test_from_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    origin = {"url": "file:///srv/my%20copy", "dir_info": {"editable": True}}
    assert command(monkeypatch, origin) == [*PIP, "--editable", "/srv/my copy[ui]"]
    assert command(monkeypatch, {"url": "file:///srv/x", "dir_info": {}}) == [*PIP, "/srv/x[ui]"]


def test_from_a_repository_at_the_very_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    origin = {"url": "https://git.example/r.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}
    assert command(monkeypatch, origin) == [*PIP, "reactifact[ui] @ git+https://git.example/r.git@abc"]


def test_from_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    origin = {"url": "file:///srv/reactifact-0.1.0-py3-none-any.whl", "archive_info": {}}
    assert command(monkeypatch, origin) == [*PIP, f"reactifact[ui] @ {origin['url']}"]


def test_where_that_is_not_known_what_the_extra_needs_is_named_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert command(monkeypatch, None) == [*PIP, "starlette>=0.37", "uvicorn>=0.29"]


def test_from_a_source_folder_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(_extras, "distribution", absent)
    assert shlex.split(_extras.install_command("ui"))[1:] == [*PIP, f"{ROOT}[ui]"]


def test_every_extra_of_this_package_is_named() -> None:
    for extra in ("ui", "pg"):
        assert extra in _extras.install_command(extra) or "psycopg" in _extras.install_command(extra)


@pytest.mark.parametrize(
    ("module", "missing", "extra"),
    [
        ("langgraph", "langgraph.checkpoint.base", "langgraph"),
        ("pydantic_ai", "pydantic_ai", "pydantic-ai"),
        ("openai_agents", "agents", "openai-agents"),
    ],
)
def test_an_adapter_without_its_library_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, module: str, missing: str, extra: str
) -> None:
    name = f"reactifact.integrations.{module}"
    for loaded in [one for one in sys.modules if one == name or one.startswith(f"{name}.")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=f"extra `{extra}` brings: run ") as failed:
        importlib.import_module(name)
    assert _extras.install_command(extra) in str(failed.value)
