"""An agent of the OpenAI SDK as a produce: `python -m examples.adapters.openai_agents_main`. No key."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
from agents import Agent, Model, ModelResponse, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from reactifact import ProduceCall
from reactifact.integrations.openai_agents import run_agent

from .shop import show


class Stand(Model):
    """Stands for a model, by the SDK's own interface: mail first, then say so."""

    def __init__(self) -> None:
        self.asked = 0

    async def get_response(
        self, system_instructions: str | None, input: Any, *args: Any, **options: Any
    ) -> ModelResponse:
        """Answer by what has happened so far."""
        self.asked += 1
        if any(isinstance(item, dict) and item.get("type") == "function_call_output" for item in input):
            text = ResponseOutputText(type="output_text", text="The samovar is on its way.", annotations=[])
            output: Any = ResponseOutputMessage(
                id="m", type="message", role="assistant", status="completed", content=[text]
            )
        else:
            arguments = '{"to": "ann", "text": "one samovar"}'
            output = ResponseFunctionToolCall(
                type="function_call", name="mail", arguments=arguments, call_id="1"
            )
        return ModelResponse(output=[output], usage=Usage(requests=1), response_id=None)

    async def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        """Refuse: the example does not stream."""
        raise NotImplementedError("this stand-in does not stream")
        yield


@function_tool
def mail(to: str, text: str) -> str:
    """Mail somebody."""
    raise AssertionError("this tool goes through the outbox")


model = Stand()
clerk: Agent[Any] = Agent(name="clerk", instructions="Confirm orders.", model=model, tools=[mail])


async def body(call: ProduceCall) -> str:
    """Run the agent on the order."""
    assert call.trigger is not None
    result = await run_agent(call, clerk, f"Confirm: {call.trigger.data.item}", outbox=["mail"])
    return str(result.final_output)


def main() -> int:
    """Run the example."""
    with tempfile.TemporaryDirectory(prefix="adapters-") as folder:
        anyio.run(show, Path(folder), body, lambda: model.asked)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
