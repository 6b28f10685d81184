"""Which execution the present code runs in, so that a context can answer with its view.

Owns the context variable behind `call.context`: inside an execution every method of a context
works on the execution's own view, also through a variable that was captured outside.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .context import Context
    from .working import Working


class Scope:
    """One execution: the context it belongs to and its own view of it."""

    def __init__(self, context: Context, working: Working, effects: Any = None) -> None:
        self.context = context
        self.working = working
        self.effects = effects
        self.calls: list[dict[str, str]] = []  # what was asked of models, for the record of the commit


_scope: ContextVar[Scope | None] = ContextVar("reactifact_scope", default=None)


def current_scope() -> Scope | None:
    """Return the execution that the present code runs in, or `None`."""
    return _scope.get()


def note_call(*, model: str, request: str, response: str) -> None:
    """Note, inside an execution, a model call for the record of its commit: two hashes and a name."""
    scope = _scope.get()
    if scope is not None:
        scope.calls.append({"model": model, "request": request, "response": response})


def too_late(what: str) -> str:
    """Return the message of an error: a task that outlives its execution would lose what it does."""
    return (
        f"{what} after its execution had ended, by a task that outlived it, and would be lost: wait for the "
        f"task in the produce, or start it with an empty contextvars.Context() to change the context itself"
    )


class entered:  # noqa: N801 - reads as the verb of a with statement; a generator costs thrice as much
    """Run a block inside a scope (`None`: outside of any)."""

    __slots__ = ("_scope", "_token")

    def __init__(self, scope: Scope | None) -> None:
        self._scope = scope

    def __enter__(self) -> None:
        self._token = _scope.set(self._scope)

    def __exit__(self, *_: object) -> None:
        _scope.reset(self._token)
