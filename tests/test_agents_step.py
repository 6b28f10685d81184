"""`@step`: one function makes an agent."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from support import Answer, Echo, Note, Question, trigger_of

import reactifact
from reactifact import Context, ProduceCall, Runtime
from reactifact.agents import Agent, step
from reactifact.consume import Consume, JoinConsume


@step(produces=Answer, consumes=Question)
async def answer(call: ProduceCall) -> Answer:
    """Answers."""
    return Answer(text=f"re: {trigger_of(call).data.text}")


@step(produces=(Echo, Note), consumes=[Question, Answer], reacts_to=Answer, priority=-1)
def echo(call: ProduceCall) -> list[BaseModel]:
    return [Echo(text=trigger_of(call).data.text), Note(text=f"{len(call.inputs)} inputs")]


@pytest.mark.anyio
async def test_a_runtime_takes_steps_as_they_are() -> None:
    context = Context()
    context.create(Question(text="why?"))
    await Runtime(context, agents=[answer, echo]).arun()
    texts = [artifact.data.text for artifact in context.list_artifacts()]
    assert texts == ["why?", "re: why?", "re: why?", "2 inputs"]
    assert [commit.author for commit in context.history()] == ["answer", "echo"]


def test_a_step_is_an_agent_with_the_name_of_its_function() -> None:
    assert isinstance(answer, Agent)
    assert (answer.name, answer.priority, answer.__doc__) == ("answer", 0, "Answers.")
    assert [part.name for part in answer.produces or ()] == ["answer"]
    assert echo.priority == -1


def test_the_other_options_are_those_of_agents_and_produces() -> None:
    ready = JoinConsume(Question, Answer, key=lambda data: data.text)
    made = step(
        produces=Echo,
        consumes=[ready, Note],
        name="other",
        condition=lambda note: note.data.count > 1,
        also_creates=Note,
        capabilities=["mail"],
        concurrency_limit=3,
        retries=2,
        retry_on=KeyError,
    )(lambda call: None)
    assert (made.name, made.capabilities, made.concurrency_limit) == ("other", ("mail",), 3)
    (part,) = made.produces or ()
    assert (part.creates, part.retries, part.retry_on) == ((Echo, Note), 2, KeyError)
    assert made.consumes is not None
    assert made.consumes[0] is ready
    context = Context()
    context.create(Note(count=1))
    wanted = context.create(Note(count=2))
    assert made.collect_inputs(context) == [wanted]


def test_it_is_an_attribute_of_the_package_beside_the_pinned_names() -> None:
    assert reactifact.step is step
    assert "step" in reactifact.__all__


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"produces": Answer, "consumes": []}, ValueError, "consumes nothing"),
        ({"produces": [], "consumes": Question}, ValueError, "produces nothing"),
        ({"produces": Answer, "consumes": [int]}, TypeError, "not an artifact type"),
        (
            {"produces": Answer, "consumes": Consume(Question), "condition": lambda found: True},
            ValueError,
            "no type in consumes",
        ),
    ],
)
def test_what_makes_no_agent_is_refused(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        step(**options)


def test_it_decorates_functions_of_one_argument() -> None:
    with pytest.raises(TypeError, match="exactly one argument"):
        step(produces=Answer, consumes=Question)(lambda: None)  # type: ignore[misc, arg-type]
