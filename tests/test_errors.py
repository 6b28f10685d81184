"""The tree of exceptions: drawn as it is, and each error says what its message promises."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from reactifact import errors
from reactifact.errors import (
    DamagedRef,
    MissingObject,
    NoCheckpoint,
    Problem,
    ReactifactError,
    StoreError,
    add_note,
    told,
)


def drawn(kind: type[BaseException], level: int = 0) -> Iterator[str]:
    """Yield the lines of an exception and of those below it, in the order of the module."""
    also = ", ".join(base.__name__ for base in kind.__bases__[1:])
    yield "    " * level + kind.__name__ + (f" (also {also})" if also else "")
    for other in vars(errors).values():
        if inspect.isclass(other) and other.__module__ == errors.__name__ and other.__bases__[0] is kind:
            yield from drawn(other, level + 1)


def test_the_tree_is_drawn_as_it_is() -> None:
    lines = inspect.getdoc(errors)
    assert lines is not None
    tree = [line.removeprefix("    ") for line in lines.splitlines() if line.startswith("    ")]
    assert tree == list(drawn(ReactifactError)), "\n".join(f"    {line}" for line in drawn(ReactifactError))


def test_whoever_catches_the_builtin_catches_ours() -> None:
    missing = MissingObject("ab" * 20, "shop.git")
    assert isinstance(missing, LookupError)
    assert "ab" * 20 in str(missing)
    assert "shop.git" in str(missing)
    assert "git fsck" in str(missing)
    assert issubclass(NoCheckpoint, FileNotFoundError)
    assert issubclass(NoCheckpoint, StoreError)


def test_a_damaged_ref_says_which_where_and_what_to_do() -> None:
    error = DamagedRef("refs/heads/s/main", "shop.git/refs/heads/s/main", "is empty", "fetch it anew")
    assert error.ref == "refs/heads/s/main"
    assert str(error) == ("refs/heads/s/main is damaged: shop.git/refs/heads/s/main is empty; fetch it anew")


def test_a_problem_names_commit_path_line_and_field() -> None:
    problem = Problem("0123456789abcdef", "artifacts/a.json", 3, "amount", "is not a number")
    assert str(problem) == "artifacts/a.json:3: amount: is not a number (commit 0123456789ab)"
    assert str(Problem("0123456789abcdef", "x", None, "", "is gone")) == "x: is gone (commit 0123456789ab)"


class Refusing(Exception):
    """An error of somebody's that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Frozen(Exception):
    """An error of somebody's that takes no note."""

    def add_note(self, note: str, /) -> None:
        raise AttributeError(note)


def test_an_error_that_cannot_be_shown_is_told_all_the_same() -> None:
    assert told(ValueError("what")) == "ValueError: what"
    assert told(Refusing()).startswith("Refusing")
    add_note(Frozen(), "dropped rather than raised")
    error = ValueError("x")
    add_note(error, "agent desk")
    assert error.__notes__ == ["agent desk"]


@given(st.text())
def test_whatever_an_error_says_is_text_that_can_be_stored(text: str) -> None:
    assert told(ValueError(text)).encode()


def test_what_pydantic_refused_is_told_without_the_values() -> None:
    class Model(BaseModel):
        amount: int

    with pytest.raises(ValidationError) as error:
        Model.model_validate({"amount": "a secret"})
    assert "a secret" not in told(error.value)
    assert "amount" in told(error.value)
