"""What a piece of research is made of, from the question to what is mailed."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel


class Topic(BaseModel):
    """What somebody wants to know."""

    TYPE_ID: ClassVar[str] = "example.research.Topic"

    text: str
    parts: int


class SubQuestion(BaseModel):
    """One part of a topic, to be looked into by itself."""

    TYPE_ID: ClassVar[str] = "example.research.SubQuestion"

    number: int
    text: str


class Finding(BaseModel):
    """What was found out about one part."""

    TYPE_ID: ClassVar[str] = "example.research.Finding"

    number: int
    text: str


class Report(BaseModel):
    """The synthesis of all findings, as it was approved."""

    TYPE_ID: ClassVar[str] = "example.research.Report"

    text: str


class Approval(BaseModel):
    """What a person says to a report before it is mailed."""

    TYPE_ID: ClassVar[str] = "example.research.Approval"

    approved: bool
