"""The public path of agents."""

from __future__ import annotations

from .authoring.agents import Agent, create_agent
from .authoring.steps import step

__all__ = ["Agent", "create_agent", "step"]
