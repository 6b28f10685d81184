"""`verify_run` catches what varies between equal runs, and says where."""

from __future__ import annotations

from pathlib import Path

import nondeterminism as builds
import pytest
from support import Note, trigger_of

from reactifact import (
    Consume,
    Context,
    FakeLLM,
    LLMRequest,
    Message,
    ProduceCall,
    Runtime,
    RuntimeResources,
    create_agent,
    produce,
)
from reactifact.clock import SystemClock
from reactifact.replay import ReplayLLM, ReplayMiss, RunApartFailed, SteppingClock, verify_run

pytestmark = pytest.mark.anyio


async def test_equal_runs_agree_also_in_another_process() -> None:
    report = await verify_run(builds.steady)
    assert report.ok, report
    assert report.is_separate
    assert report.divergence is None
    assert (report.repeat, len(report.hashes), len(set(report.hashes))) == (2, 2, 1)
    assert str(report) == f"2 runs agree: {report.hashes[0]}"


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (builds.random_ids, "id"),
        (builds.random_data, "number"),
        (builds.wall_time, "when"),
        (builds.set_order, "words[0]"),
    ],
)
async def test_what_varies_is_located(build: object, field: str) -> None:
    report = await verify_run(build)  # type: ignore[arg-type]
    assert not report.ok
    found = report.divergence
    assert found is not None
    assert (found.generation, found.agent) == (1, "drafter")
    if build is builds.set_order:  # by chance the first words of two orders may be the same
        assert found.field.startswith("words[")
    else:
        assert found.field == field
    assert found.first != found.other
    assert found.artifact_id.startswith("draft:")
    assert f"generation 1, drafter: artifact {found.artifact_id}, {found.field}" in str(report)


async def test_a_set_is_in_one_order_all_through_a_process() -> None:
    assert (await verify_run(builds.set_order, separate=False)).ok


async def test_a_build_from_a_function_body_stays_here() -> None:
    numbers = iter(range(100))

    async def build(resources: RuntimeResources) -> Context:
        return await builds.run(resources, number=lambda: float(next(numbers)))

    report = await verify_run(build, repeat=3)
    assert not report.is_separate
    assert (report.ok, len(set(report.hashes))) == (False, 3)
    assert report.divergence is not None
    assert (report.divergence.field, report.divergence.first, report.divergence.other) == (
        "number",
        "0.0",
        "1.0",
    )
    with pytest.raises(ValueError, match="another process can import"):
        await verify_run(build, separate=True)


async def test_a_run_that_fails_only_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "SET_BY_A_TEST", "yes")
    report = await verify_run(builds.fails_elsewhere)
    assert (report.ok, report.is_separate) == (True, False)
    assert "this process was not prepared" in report.note
    with pytest.raises(RunApartFailed, match="this process was not prepared"):
        await verify_run(builds.fails_elsewhere, separate=True)


async def test_one_commit_more_is_located() -> None:
    calls = iter(range(10))

    async def build(resources: RuntimeResources) -> Context:
        context = Context(resources)
        context.create(Note(text="a"), id="a")
        context.commits.commit_direct()
        if next(calls):
            context.create(Note(text="b"), id="b")
        return context

    report = await verify_run(build)
    assert report.divergence is not None
    assert report.divergence.artifact_id == "b"


async def test_bad_input() -> None:
    with pytest.raises(ValueError, match="repeat=1"):
        await verify_run(builds.steady, repeat=1)

    async def nothing(resources: RuntimeResources) -> None:
        return None

    with pytest.raises(TypeError, match="which is not a context"):
        await verify_run(nothing)


async def test_resources_of_ones_own() -> None:
    made: list[RuntimeResources] = []

    def factory() -> RuntimeResources:
        made.append(RuntimeResources(id_factory=lambda name: f"mine:{name}", clock=SystemClock()))
        return made[-1]

    report = await verify_run(builds.steady, resources_factory=factory, separate=False)
    assert not report.ok  # its clock is the machine's
    assert len(made) == 2
    assert report.divergence is not None
    assert report.divergence.field == "when"


async def ask(call: ProduceCall) -> None:
    request = LLMRequest([Message.user(trigger_of(call).data.text)])
    answer = await call.context.resources.llm.complete(request)
    call.effects.create(Note(text=answer.text))


async def asking(resources: RuntimeResources) -> Runtime:
    context = Context(resources)
    context.create(builds.Ticket(text="What is up?"))
    agent = create_agent("asker", consumes=[Consume(builds.Ticket)], produces=[produce(Note)(ask)])
    runtime = Runtime(context, agents=[agent])
    await runtime.arun()
    return runtime


async def test_with_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    llm = ReplayLLM(path, mode="record", inner=FakeLLM("the sky"), model="m-1")
    await asking(RuntimeResources(llm=llm))
    report = await verify_run(asking, recording=path)
    assert report.ok, report
    assert report.is_separate, report.note
    assert report.recording == str(path)
    path.write_text("")
    with pytest.raises(ReplayMiss):
        await verify_run(asking, recording=path)


async def test_the_clock_steps_and_waits_for_nobody() -> None:
    clock = SteppingClock()
    first, second = clock.now(), clock.now()
    assert first < second
    before = clock.monotonic()
    await clock.sleep(3600)
    assert clock.monotonic() == before + 3600
    assert (clock.now() - second).total_seconds() > 3600
