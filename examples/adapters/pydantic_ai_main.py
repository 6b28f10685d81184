"""A pydantic-ai agent as a produce: `python -m examples.adapters.pydantic_ai_main`. No key is needed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import anyio
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from reactifact import ProduceCall
from reactifact.integrations.pydantic_ai import run_agent

from .shop import show

calls: list[int] = []


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stand for a model: mail first, then say so."""
    calls.append(len(messages))
    if any(isinstance(part, ToolReturnPart) for message in messages for part in message.parts):
        return ModelResponse([TextPart("The samovar is on its way.")])
    return ModelResponse([ToolCallPart("mail", {"to": "ann", "text": "one samovar"})])


clerk: Agent[None, str] = Agent(FunctionModel(answer), name="clerk")


@clerk.tool_plain
def mail(to: str, text: str) -> str:
    """Mail somebody."""
    raise AssertionError("this tool goes through the outbox")


async def body(call: ProduceCall) -> str:
    """Run the agent on the order."""
    assert call.trigger is not None
    result = await run_agent(call, clerk, f"Confirm: {call.trigger.data.item}", outbox=["mail"])
    return str(result.output)


def main() -> int:
    """Run the example."""
    with tempfile.TemporaryDirectory(prefix="adapters-") as folder:
        anyio.run(show, Path(folder), body, lambda: len(calls))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
