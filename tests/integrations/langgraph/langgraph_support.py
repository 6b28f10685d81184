"""Checkpoints made by hand, as LangGraph makes them."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.base import empty_checkpoint

from reactifact.integrations.langgraph import ReactifactSaver

THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def put(
    saver: ReactifactSaver,
    config: Any,
    values: dict[str, Any],
    new: dict[str, Any],
    *,
    versions: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    checkpoint_id: str | None = None,
) -> Any:
    """Put a checkpoint after another one, and return its config."""
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = values
    checkpoint["channel_versions"] = new if versions is None else versions
    if checkpoint_id is not None:
        checkpoint["id"] = checkpoint_id
    said: Any = {"source": "loop", "step": 0, "parents": {}, **(metadata or {})}
    return saver.put(config or THREAD, checkpoint, said, new)


class Chat:
    """A thread with one channel, `messages`."""

    newest: Any = THREAD

    def __init__(self, saver: ReactifactSaver) -> None:
        self.saver = saver
        self.config: Any = None
        self.step = 0
        self.now: Any = []

    def say(self, message: Any) -> None:
        """Add a message."""
        self.set([*self.now, message])

    def set(self, value: Any) -> None:
        """Let the channel hold something else."""
        self.now = value
        self.step += 1
        self.config = put(self.saver, self.config, {"messages": value}, {"messages": self.step})

    def messages(self) -> Any:
        """Return what the newest checkpoint holds."""
        found = self.saver.get_tuple(self.newest)
        assert found is not None
        return found.checkpoint["channel_values"]["messages"]
