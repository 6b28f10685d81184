"""Picking artifacts out of the inputs of a call by their type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import BaseModel

from ..context.artifacts import Artifact

M = TypeVar("M", bound=BaseModel)


def find(inputs: Iterable[Artifact[Any]], model: type[M]) -> Artifact[M] | None:
    """Return the first artifact of a type (subclasses included), or `None`."""
    return next((artifact for artifact in inputs if isinstance(artifact.data, model)), None)


def find_all(inputs: Iterable[Artifact[Any]], model: type[M]) -> list[Artifact[M]]:
    """Return all artifacts of a type (subclasses included), in the order of the inputs."""
    return [artifact for artifact in inputs if isinstance(artifact.data, model)]
