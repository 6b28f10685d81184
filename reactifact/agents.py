"""The public path of agents."""

from __future__ import annotations

from .authoring.agents import Agent, create_agent

__all__ = ["Agent", "create_agent"]
