"""The examples of the adapters run without a key, and print what they show."""

from __future__ import annotations

from pathlib import Path

import forked
import pytest

ROOT = Path(__file__).parents[2]


def run(module: str) -> list[str]:
    done = forked.run("-m", f"examples.{module}", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", ["pydantic_ai_main", "openai_agents_main"])
def test_the_agent_mails_once_and_is_replayed_without_its_model(name: str) -> None:
    assert run(f"adapters.{name}") == [
        "receipt: The samovar is on its way.",
        "asked the model 2 times; sent ['ann: one samovar']",
        "replayed: The samovar is on its way.",
        "asked the model 0 times",
    ]


def test_fifty_sessions_at_once() -> None:
    assert run("web_sessions.main") == ["50 sessions, 100 receipts", "100 mails, each sent 1 time"]
