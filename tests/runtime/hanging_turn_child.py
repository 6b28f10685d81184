"""A turn in a process of its own, to be ended by the test beside it.

hanging_turn_child.py PATH BACKEND plain   run a turn that hangs in its second generation
hanging_turn_child.py PATH BACKEND first   run a turn that hangs in its first generation
hanging_turn_child.py PATH BACKEND stop    under `stop_on_signals`; the produce that hangs ends by itself
hanging_turn_child.py PATH BACKEND cut     under `stop_on_signals(timeout=0)`; the turn has to be cut

Prints `hanging` when it hangs, and how the turn ended. The test runs `agents` itself to resume.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Any

import anyio
from support import Answer, Echo, Note, Question, trigger_of

from reactifact import Agent, Consume, ProduceCall, Runtime, SessionStore, create_agent, produce
from reactifact.runtime import stop_on_signals


def agents(ran: Callable[[str], Any], hang: Callable[[], Any] | None = None) -> list[Agent]:
    """Return question -> answer -> (echo, note); the note's agent waits for `hang`."""

    @produce(Answer)
    async def answer(call: ProduceCall) -> Answer:
        ran("answerer")
        return Answer(text="42")

    @produce(Echo)
    async def echo(call: ProduceCall) -> Echo:
        ran("echoer")
        return Echo(text=trigger_of(call).data.text)

    @produce(Note)
    async def note(call: ProduceCall) -> Note:
        ran("noter")
        if hang is not None:
            await hang()
        return Note(text="noted")

    return [
        create_agent("answerer", consumes=[Consume(Question)], produces=[answer]),
        create_agent("echoer", consumes=[Consume(Answer)], produces=[echo]),
        create_agent("noter", consumes=[Consume(Answer)], produces=[note]),
    ]


async def main(path: str, how: str) -> None:
    session = await SessionStore(path).open("s")
    given = Answer(text="42") if how == "first" else Question(text="why")
    session.context.create(given, id="q")
    stopping = anyio.Event()

    async def hang() -> None:
        print("hanging", flush=True)
        await (stopping.wait() if how == "stop" else anyio.sleep_forever())

    runtime = Runtime(session.context, agents(lambda name: None, hang), session=session)
    if how in ("plain", "first"):
        await runtime.arun()
        return
    request_stop = runtime.request_stop

    def stop() -> None:
        request_stop()
        stopping.set()

    runtime.request_stop = stop  # type: ignore[method-assign]
    try:
        async with stop_on_signals(runtime, timeout=None if how == "stop" else 0.0):
            await runtime.arun()
    except BaseException as error:
        print(type(error).__name__, flush=True)
    else:
        print(runtime.outcome, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins without it
    loop, options = sys.argv[2], {}
    if loop == "uvloop":
        loop, options = "asyncio", {"use_uvloop": True}
    anyio.run(main, sys.argv[1], sys.argv[3], backend=loop, backend_options=options)
