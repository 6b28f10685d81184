"""The built-in models are built when they are first needed, and nobody sees that but who imports them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from pydantic import PydanticUserError, ValidationError

from reactifact import Budget, PendingAction, PendingQuestion


def said_by(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_they_are_built_by_the_first_context_or_the_first_use() -> None:
    names = "from reactifact import Budget, Context, PendingAction, PendingQuestion\n"
    shown = "print(*(m.__pydantic_complete__ for m in (PendingAction, PendingQuestion)))"
    assert said_by(f"{names}{shown}") == "False False"
    assert said_by(f"{names}Context()\n{shown}") == "True True"
    assert said_by(f"{names}PendingAction(kind='k', idempotency_key='i')\n{shown}") == "True False"
    refused = "try: Budget(max_runs=-1)\nexcept ValueError as error: print(error.error_count())"
    assert said_by(f"{names}{refused}") == "1"


@pytest.mark.parametrize("name", ["Budget", "PendingAction", "PendingQuestion"])
def test_their_signature_is_there_before_they_are_built(name: str) -> None:
    code = f"from reactifact import {name}\nimport inspect\nprint(*inspect.signature({name}).parameters)"
    before = said_by(code)
    assert before == said_by(code.replace("print", f"{name}.model_rebuild()\nprint"))
    assert "data" not in before.split()


class _Unknown:
    """Nothing that pydantic knows."""


@pytest.mark.parametrize("base", [PendingQuestion, PendingAction, Budget])
def test_a_class_of_the_users_below_one_is_built_at_once(base: type[PendingQuestion]) -> None:
    made: Any = type("Made", (base,), {"__annotations__": {"more": int}, "__module__": __name__})
    assert made.__pydantic_complete__
    with pytest.raises(ValidationError):
        made(more="no number")
    with pytest.raises(PydanticUserError, match="_Unknown"):
        type("Wrong", (base,), {"__annotations__": {"more": _Unknown}, "__module__": __name__})
