"""The agents: split the topic, look into each part, put it together, ask, and mail.

Each call of the model is paid for, so each is kept as soon as it is there: an execution that has ended by the
runtime's `per_step`, a call inside one that goes on by `call.memo`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from reactifact import Agent, Artifact, PendingAction, ProduceCall, step

from .models import Approval, Finding, Report, SubQuestion, Topic

Model = Callable[[str], Awaitable[str]]
"""Answers a prompt, for money."""


def agents(model: Model) -> list[Agent]:
    """Return the agents, asking this model."""

    @step(consumes=Topic, produces=SubQuestion)
    async def split(call: ProduceCall) -> None:
        topic = _trigger(call).data
        outline = await model(f"split {topic.text}")
        for number in range(topic.parts):
            text = f"{outline}, part {number}"
            call.effects.upsert(SubQuestion(number=number, text=text), id=f"sub-question:{number}")

    @step(consumes=SubQuestion, produces=Finding)
    async def look_into(call: ProduceCall) -> None:
        part = _trigger(call).data
        text = await model(f"find {part.number}")
        call.effects.upsert(Finding(number=part.number, text=text), id=f"finding:{part.number}")

    @step(consumes=Finding, produces=[Report, PendingAction])
    async def synthesize(call: ProduceCall) -> None:
        findings = call.context.list_artifacts(Finding)
        parts = call.context.list_artifacts(SubQuestion)
        if len(findings) < len(parts) or _trigger(call).id != findings[-1].id:
            return  # the last of them is not there yet, or this is not it
        joined = "; ".join(finding.data.text for finding in findings)
        text = await call.memo("synthesis", lambda: model(f"synthesize {len(findings)} findings"))
        answer = await call.ask(Approval, f"Mail this report? {text}", options=OPTIONS)
        if answer.approved:
            call.effects.upsert(Report(text=f"{text}: {joined}"), id="report")
            call.effects.act("mail", key="mail:report", payload={"text": text})

    return [split, look_into, synthesize]


OPTIONS = {"mail": Approval(approved=True), "discard": Approval(approved=False)}


def _trigger(call: ProduceCall) -> Artifact[Any]:
    assert call.trigger is not None
    return call.trigger
