"""One store for all tests of the command line: reading does not change it, and a test says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shop import make_shop

from reactifact.cli import main


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "state.git"
    make_shop(path)
    return path


class Output:
    """What one call of the command line did."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Output]:
    """Run the command line in this process."""

    def call(*arguments: object) -> Output:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Output(code, captured.out, captured.err)

    return call
