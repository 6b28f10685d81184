"""The seven cases, one function each: they assert what they show and return the line that says it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from reactifact import Agent, Artifact, Context, PendingAction, Runtime, Session, SessionStore
from reactifact.branching import BranchStore

from .models import Order, notifier

ORDER = Order(id="42", customer="a@example.com")
ACTION = "action:notify:42"


class World:
    """The outside world: it remembers every key it was sent."""

    def __init__(self, failures: int = 0) -> None:
        self.sent: list[str] = []
        self._failures = failures

    async def __call__(self, context: Context, action: Artifact[PendingAction]) -> None:
        """Receive one delivery."""
        if self._failures:
            self._failures -= 1
            raise ConnectionError("smtp temporarily unavailable")
        self.sent.append(action.data.idempotency_key)


def _runtime(session: Session, dispatcher: Callable[..., Awaitable[None]], *agents: Agent) -> Runtime:
    return Runtime(
        session.context,
        agents=list(agents) or [notifier()],
        session=session,
        dispatcher=dispatcher,
    )


def _status(context: Context) -> Any:
    action = context.get(ACTION)
    assert action is not None
    return action.data.status


async def commit_then_dispatch(store: SessionStore) -> str:
    """What was decided is committed, then sent, then recorded as sent."""
    session, world = await store.open("demo"), World()
    session.context.create(ORDER, id="order:42")
    await _runtime(session, world).arun()
    assert world.sent == ["notify:42"]
    assert _status(session.context) == "dispatched"
    return f"commit -> dispatch sent={world.sent} status={_status(session.context)}"


async def derived_again(store: SessionStore) -> str:
    """An agent that comes to the same conclusion again does not send again."""
    session, world = await store.open("derived-again"), World()
    runtime = _runtime(session, world)
    session.context.create(ORDER, id="order:42")
    await runtime.arun()
    first = len(world.sent)
    session.context.update("order:42", ORDER.model_copy(update={"note": "deliver in the morning"}))
    assert await runtime.arun() == 1
    again = len(world.sent) - first
    assert (first, again) == (1, 0)
    return f"re-derivation first run sent {first}; the re-run sent {again}"


async def same_generation(store: SessionStore) -> str:
    """Two agents that decide the same in one generation make one intent."""
    session, world = await store.open("same-generation"), World()
    producers = [notifier("notifier"), notifier("second-notifier")]
    session.context.create(ORDER, id="order:42")
    runs = await _runtime(session, world, *producers).arun()
    intents = len(session.context.list_artifacts(PendingAction))
    assert (runs, intents, len(world.sent)) == (2, 1, 1)
    return f"same generation producers={runs} intents={intents} sent={len(world.sent)}"


async def merged_branches(store: SessionStore) -> str:
    """Two branches that each plan the intent merge to one, which is sent once."""
    session, world = await store.open("merged-branches"), World()
    branches = BranchStore(store.database)
    await session.save()
    forks = {name: session.context.branch(name=name) for name in ("left", "right")}
    for name, fork in forks.items():
        fork.create(ORDER, id="order:42")
        await Runtime(fork, agents=[notifier()]).arun_once()
        await branches.save_branch(fork, session_id="merged-branches", name=name)
    for fork in forks.values():
        session.context.merge(fork)
    await session.save()
    intents = len(session.context.pending_actions())
    assert world.sent == []
    await _runtime(session, world).arun()
    assert (len(forks), intents, world.sent) == (2, 1, ["notify:42"])
    return f"two merged branches branches={len(forks)} intents-after-merge={intents} sent={len(world.sent)}"


async def replayed(store: SessionStore) -> str:
    """Opening what is stored and running again sends nothing."""
    session, world = await store.open("replayed"), World()
    session.context.create(ORDER, id="order:42")
    await _runtime(session, world).arun()
    before = len(world.sent)
    again = await store.open("replayed")
    assert again.loaded
    assert _status(again.context) == "dispatched"
    assert len(again.context.history()) == 1
    assert await _runtime(again, world, notifier()).arun() == 0
    assert (before, len(world.sent)) == (1, 1)
    return f"replay sent before replay={before} after replay={len(world.sent)}"


async def failed_then_retried(store: SessionStore) -> str:
    """A failure is state: it raises, stays failed, and is sent when it is re-armed."""
    session, world = await store.open("failed-then-retried"), World(failures=1)
    runtime = _runtime(session, world)
    session.context.create(ORDER, id="order:42")
    raised = ""
    try:
        await runtime.arun()
    except ConnectionError as error:
        raised = str(error)
    assert _status(session.context) == "failed"
    assert _status((await store.open("failed-then-retried")).context) == "failed"
    await runtime.arun()
    assert world.sent == []
    session.context.retry_action(ACTION)
    await runtime.flush_pending_actions()
    assert raised == "smtp temporarily unavailable"
    assert world.sent == ["notify:42"]
    assert _status(session.context) == "dispatched"
    return f"failure -> retry raised {raised!r}; retry sent once"


async def retried_by_the_application(store: SessionStore) -> str:
    """An application may wrap its dispatcher in a retry policy of its own."""
    session, world = await store.open("retried-by-the-application"), World(failures=2)

    async def patient(context: Context, action: Artifact[PendingAction]) -> None:
        for attempt in range(3):
            try:
                await world(context, action)
            except ConnectionError:
                if attempt == 2:
                    raise
            else:
                return

    session.context.create(ORDER, id="order:42")
    await _runtime(session, patient).arun()
    assert world.sent == ["notify:42"]
    assert _status(session.context) == "dispatched"
    return "app-owned retry transient outage absorbed by the wrapper"


CASES = (
    commit_then_dispatch,
    derived_again,
    same_generation,
    merged_branches,
    replayed,
    failed_then_retried,
    retried_by_the_application,
)
