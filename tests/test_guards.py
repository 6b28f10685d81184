"""Guard rails: authorizer, guardrails, redactor and quota stand before each write and each send."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr
from support import Answer, Note, Order, Outside, Place, Question, action, git, live, notifier, trigger_of

from reactifact import (
    Agent,
    Budget,
    Consume,
    Context,
    FakeLLM,
    LLMRequest,
    Message,
    PendingAction,
    ProduceCall,
    RunOutcome,
    Runtime,
    RuntimeResources,
    SessionStore,
    Tool,
    ToolOutput,
    create_agent,
    produce,
    tool,
)
from reactifact.branching import BranchStore
from reactifact.errors import (
    BudgetExceeded,
    GuardrailViolation,
    NotAuthorized,
    PayloadError,
    QuotaExceeded,
    ReactifactError,
)
from reactifact.guards import Access, Quota
from reactifact.testing import JumpingClock

pytestmark = pytest.mark.anyio

SECRET = "hunter2-4711"


def redact(text: str) -> str:
    return text.replace(SECRET, "[gone]")


def agent(work: Any, name: str = "worker") -> Agent:
    made = produce(Answer, also_creates=(Note, Order))(work)
    return create_agent(name, consumes=[Consume(Question)], produces=[made])


def asked(**resources: Any) -> Context:
    """Return a context with a question, made before anybody stood guard."""
    context = Context()
    context.create(Note(text="old"), id="n")
    context.create(Question(text="why"), id="q")
    for name, value in resources.items():
        context.resources.set(name, value)
    return context


# -- the authorizer --


async def test_a_write_that_is_not_authorized_does_not_happen() -> None:
    seen: list[str] = []

    def authorizer(access: Access) -> bool | str:
        seen.append(f"{access.verb} {access.artifact_id} by {access.author} for {access.principal}")
        return access.verb != "delete" or "nothing is deleted here"

    context = asked(authorizer=authorizer, principal="ann")

    async def work(call: ProduceCall) -> None:
        call.effects.create(Answer(text="a"), id="a")
        call.effects.delete("n")

    with pytest.raises(NotAuthorized, match=r"delete Note 'n' by 'worker': nothing is deleted here"):
        await Runtime(context, [agent(work)]).arun()
    assert seen == ["create a by worker for ann", "delete n by worker for ann"]
    assert (context.version, context.get("a"), live(context, "n").data.text) == (0, None, "old")
    with pytest.raises(PermissionError):
        context.delete("n")
    assert context.get("n") is not None
    context.update("n", Note(text="new"))
    assert seen[-2:] == ["delete n by ann for ann", "update n by ann for ann"]


@pytest.mark.parametrize(
    "change",
    [
        lambda context: context.create(Note(), id="x"),
        lambda context: context.update("n", Note(text="x")),
        lambda context: context.delete("n"),
        lambda context: context.link("n", "to", "q"),
        lambda context: context.unlink("n"),
        lambda context: context.interrupt("?"),
    ],
)
async def test_every_direct_change_is_asked_about(change: Any) -> None:
    context = asked(authorizer=lambda access: False)
    before = context.snapshot()
    with pytest.raises(NotAuthorized):
        change(context)
    assert (context.snapshot(), context.relations()) == (before, [])


async def test_direct_changes_and_links_of_an_execution_are_asked_about_as_its_agents() -> None:
    seen: list[tuple[str, str, str]] = []

    def authorizer(access: Access) -> bool:
        seen.append((access.verb, access.artifact_id, access.author))
        return True

    context = asked(authorizer=authorizer)

    async def work(call: ProduceCall) -> None:
        call.context.update("n", Note(text="direct"))
        call.effects.link("n", "to", "q")
        call.effects.create(Answer(text="a"), id="a")

    await Runtime(context, [agent(work)]).arun()
    assert seen == [("update", "n", "worker"), ("link", "n", "worker"), ("create", "a", "worker")]


async def test_a_send_that_is_not_authorized_is_a_failure_of_its_action(place: Place) -> None:
    outside = Outside()
    resources = RuntimeResources(authorizer=lambda access: access.verb != "send" or "not on a Sunday")
    async with await place.store().open("s", resources) as session:
        session.context.create(Order(item="tea"), id="o")
        runtime = Runtime(session.context, [notifier()], session=session, dispatcher=outside)
        with pytest.raises(NotAuthorized, match="not on a Sunday"):
            await runtime.arun()
    assert outside.tried == []
    stored = action(await place.load("s"), "notify:o")
    assert (stored.status, stored.attempts) == ("failed", 1)
    assert "not on a Sunday" in (stored.error or "")
    report = await place.store().drain(outside, resources=resources, retry_failed=True)
    assert (report.delivered, len(report.failed)) == (0, 1)
    assert (await place.store().drain(outside, retry_failed=True)).delivered == 1


async def test_an_authorizer_that_gives_no_answer_is_an_error() -> None:
    async def late(access: Access) -> bool:
        raise AssertionError("nobody waits for it")

    for wrong in (lambda access: None, late):
        context = asked(authorizer=wrong)
        with pytest.raises(TypeError, match="no async function"):
            context.create(Note())
    for name in ("authorizer", "redactor", "guardrails", "quota"):
        with pytest.raises(TypeError, match=f"{name}="):
            RuntimeResources(**{name: 7 if name != "guardrails" else [7]})  # type: ignore[arg-type]


# -- guardrails --


async def test_a_guardrail_refuses_what_is_written_by_name() -> None:
    def no_shouting(access: Access) -> str | None:
        text = getattr(access.data, "text", "")
        return "it shouts" if text.isupper() else None

    def grows(access: Access) -> str | None:
        if isinstance(access.data, Note) and isinstance(access.current, Note):
            return None if access.data.count >= access.current.count else "the count goes down"
        return None

    context = asked(guardrails=[no_shouting, grows])

    async def work(call: ProduceCall) -> Answer:
        return Answer(text="WHY")

    with pytest.raises(GuardrailViolation, match=r"no_shouting refuses to create Answer .*: it shouts"):
        await Runtime(context, [agent(work)]).arun()
    with pytest.raises(GuardrailViolation, match="the count goes down"):
        context.update("n", Note(count=-1))
    context.update("n", Note(count=1))
    errors: list[BaseException] = []
    runtime = Runtime(
        context, [agent(work)], isolate_errors=True, on_agent_error=lambda a, e, error: errors.append(error)
    )
    await runtime.arun()
    assert [type(error) for error in errors] == [GuardrailViolation]
    assert context.list_artifacts(Answer) == []


async def test_a_guardrail_sees_what_is_sent() -> None:
    outside = Outside()

    def only_tea(access: Access) -> str | None:
        sends = access.verb == "send" and access.data is not None
        return "not tea" if sends and access.data.payload["item"] != "tea" else None  # type: ignore[union-attr]

    context = Context(RuntimeResources(guardrails=only_tea))
    for item in ("tea", "rum"):
        context.create(Order(item=item), id=item)
    runtime = Runtime(context, [notifier()], dispatcher=outside, dispatch_errors="record")
    await runtime.arun()
    assert outside.tried == ["notify:tea"]
    assert "not tea" in (action(context, "notify:rum").error or "")


# -- the redactor, and secrets --


def everything(path: Path) -> str:
    """Return every object of a repository, and every message, as text."""
    names = git(path, "cat-file", "--batch-check", "--batch-all-objects").splitlines()
    found = [git(path, "log", "--all", "--format=%B")]
    for name in names:
        oid, kind, _ = name.split()
        if kind in ("blob", "commit"):
            found.append(git(path, "cat-file", kind, oid))
    return "\n".join(found)


async def test_what_is_redacted_reaches_no_object_no_log_and_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "state.git"
    store = SessionStore(path, durability="os")
    resources = RuntimeResources(redactor=redact)
    fails = True

    async def work(call: ProduceCall) -> None:
        assert await call.memo("m", lambda: {"answer": f"a {SECRET}"}) == {"answer": "a [gone]"}
        call.context.update(
            "n", Note(text=f"direct {SECRET}", tags=[SECRET], extra={"deep": [{"er": SECRET}]})
        )
        call.effects.create(Answer(text=f"answer {SECRET}"), id="a")
        call.effects.act("mail", key="k", payload={"body": f"mail {SECRET}"})
        if fails:
            raise ConnectionError(f"no route for {SECRET}")

    async def send(context: Context, found: Any) -> None:
        assert found.data.payload == {"body": "mail [gone]"}
        raise ConnectionError(f"not sent: {SECRET}")

    worker = create_agent("worker", consumes=[Consume(Question)], produces=[_with_actions(work)])
    async with await store.open("s", resources) as session:
        session.context.create(Note(), id="n")
        session.context.create(Question(text=f"why {SECRET}"), id="q")
        runtime = Runtime(
            session.context,
            [worker],
            session=session,
            dispatcher=send,
            dispatch_errors="record",
            session_save_policy="per_step",
        )
        with pytest.raises(ConnectionError, match=SECRET):  # the caller gets its own error as it was raised
            await runtime.arun()
        fails = False
        await runtime.arun()
        question = session.context.interrupt(f"Is it {SECRET}?")
        session.context.resume(question.id, f"It is {SECRET}")
        session.context.mark_failed("action:k", f"by hand {SECRET}")
    async with BranchStore(store.database).edit(
        "s", author="ann", message=f"Change {SECRET}", resources=resources
    ) as context:
        context.update("n", Note(text=f"edited {SECRET}"))
    found = everything(path)
    assert "direct [gone]" in found
    assert "edited [gone]" in found
    assert "not sent: [gone]" in found
    assert SECRET not in found
    said = "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    assert "no route for [gone]" in said
    assert SECRET not in said


def _with_actions(work: Any) -> Any:
    return produce(Answer, also_creates=PendingAction)(work)


async def test_an_intent_that_is_redacted_is_the_same_intent_when_it_is_planned_again() -> None:
    outside = Outside()
    context = Context(RuntimeResources(redactor=redact))

    async def work(call: ProduceCall) -> None:
        call.effects.act("mail", key="k", payload={"body": SECRET})

    runtime = Runtime(
        context,
        [create_agent("w", consumes=[Consume(Question)], produces=[_with_actions(work)])],
        dispatcher=outside,
    )
    for number in range(2):
        context.create(Question(text=str(number)))
        await runtime.arun()
    assert outside.sent == ["k"]


async def test_a_redactor_that_breaks_a_model_or_returns_no_text_is_an_error() -> None:
    context = asked(redactor=lambda text: 7)
    with pytest.raises(TypeError, match="it returns a text"):
        context.create(Note(text="x"))


class Login(BaseModel):
    user: str
    password: SecretStr
    count: int = 0


async def test_a_secret_reaches_no_commit_no_log_and_no_error_of_ours(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path, said = tmp_path / "state.git", []
    store = SessionStore(path, durability="os")
    login = Login(user="ann", password=SecretStr(SECRET))

    async def plan(call: ProduceCall) -> None:
        call.effects.create(login)

    async def keep(call: ProduceCall) -> None:
        await call.memo("login", lambda: login)

    async def leak(call: ProduceCall) -> None:
        Login.model_validate({"user": "ann", "password": SECRET, "count": SECRET})

    async with await store.open("s") as session:
        with pytest.raises(PayloadError, match="a secret is written as asterisks") as raised:
            session.context.create(login)
        said.append(str(raised.value))
        for number, work in enumerate((plan, keep, leak)):
            session.context.create(Question(text=str(number)), id=f"q{number}")
            made = produce(Login)(work)
            worker = create_agent("worker", consumes=[Consume(Question)], produces=[made])
            errors: list[BaseException] = []
            runtime = Runtime(
                session.context,
                [worker],
                session=session,
                isolate_errors=True,
                on_agent_error=lambda a, e, error, errors=errors: errors.append(error),
            )
            await runtime.arun()
            assert errors
            said += [str(error) for error in errors if isinstance(error, ReactifactError)]
        session.context.create(Order(item="tea"), id="o")

        async def send(context: Context, found: Any) -> None:
            Login.model_validate({"user": "ann", "password": SECRET, "count": SECRET})

        await Runtime(
            session.context, [notifier()], session=session, dispatcher=send, dispatch_errors="record"
        ).arun()
        assert "count: Input should be a valid integer" in (action(session.context, "notify:o").error or "")
    said.append(everything(path))
    said += [f"{record.getMessage()} {record.__dict__}" for record in caplog.records]
    assert any("count: Input should be a valid integer" in one for one in said)
    assert all(SECRET not in one for one in said)


# -- the quota --


def quota(clock: JumpingClock, **limits: Any) -> RuntimeResources:
    return RuntimeResources(clock=clock, quota=Quota(per=timedelta(hours=1), **limits))


@pytest.mark.every_loop
async def test_a_quota_of_runs_ends_the_turn_and_holds_over_turns() -> None:
    clock = JumpingClock()
    context = Context(quota(clock, runs=3))
    ran: list[str] = []

    async def work(call: ProduceCall) -> None:
        ran.append(trigger_of(call).id)

    runtime = Runtime(context, [agent(work)])
    for number in range(5):
        context.create(Question(text="?"), id=f"q{number}")
    assert await runtime.arun() == 3
    assert runtime.outcome == RunOutcome.QUOTA_EXCEEDED
    assert await runtime.arun() == 0
    assert runtime.outcome == RunOutcome.QUOTA_EXCEEDED
    await clock.sleep(3601)
    assert await runtime.arun() == 2
    assert runtime.outcome == RunOutcome.COMPLETED
    assert ran == [f"q{number}" for number in range(5)]
    assert await runtime.arun() == 0
    assert runtime.outcome == RunOutcome.COMPLETED


async def test_a_quota_of_tokens_refuses_the_next_call_of_the_model() -> None:
    clock = JumpingClock()
    resources = quota(clock, tokens=10)
    usage = {"prompt_tokens": 6, "completion_tokens": 6}
    resources.llm = FakeLLM("x", usage)
    context = Context(resources)
    context.create(Question(text="?"), id="q")
    refused: list[QuotaExceeded] = []

    async def work(call: ProduceCall) -> None:
        request = LLMRequest(messages=[Message(role="user", content="?")])
        await call.context.resources.llm.complete(request)
        try:
            await call.context.resources.llm.complete(request)
        except QuotaExceeded as error:
            refused.append(error)
            raise

    model = resources.llm
    runtime = Runtime(context, [agent(work)])
    with pytest.raises(QuotaExceeded, match="quota of 10 tokens in 1:00:00 is used up"):
        await runtime.arun()
    assert resources.llm is model
    assert await runtime.arun() == 0
    assert runtime.outcome == RunOutcome.QUOTA_EXCEEDED
    assert len(refused) == 1


async def test_a_quota_of_sends_leaves_the_rest_pending(place: Place) -> None:
    clock, outside = JumpingClock(), Outside()
    resources = quota(clock, sends=2)
    async with await place.store().open("s", resources) as session:
        for number in range(3):
            session.context.create(Order(item="tea"), id=str(number))
        runtime = Runtime(session.context, [notifier()], session=session, dispatcher=outside)
        assert await runtime.arun() == 3
        assert runtime.outcome == RunOutcome.QUOTA_EXCEEDED
    assert outside.sent == ["notify:0", "notify:1"]
    left = action(await place.load("s"), "notify:2")
    assert (left.status, left.attempts) == ("pending", 0)
    await clock.sleep(3601)
    assert (await place.store().drain(outside, resources=resources)).delivered == 1
    assert outside.sent == ["notify:0", "notify:1", "notify:2"]


def test_what_is_no_quota() -> None:
    with pytest.raises(ValueError, match="no span of time"):
        Quota(per=timedelta(0))
    with pytest.raises(ValueError, match="below 0"):
        Quota(per=timedelta(1), runs=-1)
    assert "runs=3" in repr(Quota(per=timedelta(1), runs=3))


# -- max_tool_calls --


class Own(Tool):
    name = "own"

    async def run(self, arguments: Any) -> ToolOutput:
        return ToolOutput("own")


class Handing(Own):
    async def run(self, arguments: Any) -> ToolOutput:
        return await super().run(arguments)


@pytest.mark.every_loop
async def test_one_tool_call_more_than_the_budget_is_not_made() -> None:
    made: list[int] = []
    refused: list[str] = []

    @tool
    def add(number: int) -> int:
        """Add."""
        made.append(number)
        return number

    context = Context()
    context.create(Question(text="?"), id="q")

    async def work(call: ProduceCall) -> Answer:
        await Own().run({})
        await Handing().run({})  # counted once, though it hands on to its base class
        for number in range(9):
            try:
                await add.run({"number": number})
            except BudgetExceeded as error:
                refused.append(str(error))
                break
        return Answer(text="done")

    runtime = Runtime(context, [agent(work)])
    await runtime.arun(budget=Budget(max_tool_calls=4))
    assert made == [0, 1]
    assert "max_tool_calls=4" in refused[0]
    assert runtime.outcome == RunOutcome.COMPLETED  # the produce went on without the call
    assert runtime.last_stats is not None
    assert runtime.last_stats.tool_calls == 4
    assert len(context.list_artifacts(Answer)) == 1
    made.clear()
    context.create(Question(text="?"), id="q2")
    await runtime.arun()  # each turn starts afresh, and this one has no limit
    assert len(made) == 9
    assert (await add.run({"number": 1})).content == 1  # outside of any turn


# -- merges, reverts and undoes --


class Watch:
    """An authorizer that notes what it is asked, and refuses some ids."""

    def __init__(self, *refused: str) -> None:
        self.asked: list[tuple[str, str]] = []
        self.data: dict[str, Any] = {}
        self.refused = set(refused)

    def __call__(self, access: Access) -> bool | str:
        self.asked.append((access.verb, access.artifact_id))
        self.data[access.artifact_id] = (access.current, access.data)
        assert access.author == "ann"
        return "not this one" if access.artifact_id in self.refused else True

    @property
    def resources(self) -> RuntimeResources:
        return RuntimeResources(authorizer=self, principal="ann")


async def forked(place: Place) -> BranchStore:
    """Store a session whose branch `exp` created, changed, linked and deleted something."""
    branches = place.branches()
    async with branches.edit("s") as context:
        context.create(Note(text="one"), id="n1")
        context.create(Note(text="two"), id="n2")
        context.create(Note(text="three"), id="n3")
    await branches.fork("s", "s/exp")
    async with branches.edit("s", "exp") as context:
        context.update("n1", Note(text="one more"))
        context.delete("n2")
        context.create(Note(text="four"), id="n4")
        context.link("n3", "to", "n4")
    return branches


WRITTEN = [("update", "n1"), ("delete", "n2"), ("create", "n4"), ("link", "n3")]


async def test_a_merge_is_asked_about_before_anything_is_written(place: Place) -> None:
    branches = await forked(place)
    watch = Watch("n4")
    with pytest.raises(NotAuthorized, match=r"create Note 'n4' by 'ann': not this one"):
        await branches.merge("s/main", "s/exp", resources=watch.resources)
    assert (await place.load("s")).snapshot()["n1"]["text"] == "one"
    watch = Watch()
    assert await branches.merge("s/main", "s/exp", resources=watch.resources) is not None
    assert sorted(watch.asked) == sorted(WRITTEN)
    assert watch.data["n1"] == (Note(text="one"), Note(text="one more"))
    assert watch.data["n2"] == (Note(text="two"), None)
    assert (await place.load("s")).get("n4") is not None


async def test_a_merge_of_contexts_is_asked_about_and_refused_as_a_whole() -> None:
    ours = Context()
    ours.create(Note(text="one"), id="n1")
    theirs = ours.branch()
    theirs.update("n1", Note(text="other"))
    theirs.create(Note(text="new"), id="n2")
    watch, before = Watch("n2"), ours.snapshot()
    ours.resources.set("authorizer", watch)
    ours.resources.set("principal", "ann")
    for merge in (ours.merge, ours.merge_from):
        with pytest.raises(NotAuthorized):
            merge(theirs)
        assert ours.snapshot() == before
    assert ("update", "n1") in watch.asked
    ours.resources.set("authorizer", None)
    ours.resources.set("guardrails", lambda access: "no" if access.artifact_id == "n1" else None)
    with pytest.raises(GuardrailViolation, match="update Note 'n1'"):
        ours.merge(theirs)


async def test_a_revert_an_undo_and_a_redo_are_asked_about(place: Place) -> None:
    branches = await forked(place)
    back = [("update", "n1"), ("create", "n2"), ("delete", "n4"), ("unlink", "n3")]
    watch = Watch("n2")
    with pytest.raises(NotAuthorized, match=r"create Note 'n2'"):
        await branches.revert("s/exp", "s/exp", resources=watch.resources)
    with pytest.raises(NotAuthorized, match=r"create Note 'n2'"):
        await branches.undo("s", "exp", resources=watch.resources)
    assert (await place.load("s", "exp")).get("n2") is None

    watch = Watch()
    await branches.undo("s", "exp", resources=watch.resources)
    assert sorted(watch.asked) == sorted(back)
    assert watch.data["n1"] == (Note(text="one more"), Note(text="one"))
    watch = Watch("n4")
    with pytest.raises(NotAuthorized, match=r"create Note 'n4'"):
        await branches.redo("s", "exp", resources=watch.resources)
    watch = Watch()
    await branches.redo("s", "exp", resources=watch.resources)
    assert sorted(watch.asked) == sorted(WRITTEN)
    watch = Watch()
    assert await branches.revert("s/exp", "s/exp", resources=watch.resources) is not None
    assert sorted(watch.asked) == sorted(back)


async def test_without_guards_nobody_is_asked_and_no_class_is_needed(place: Place) -> None:
    branches = await forked(place)
    await branches.undo("s", "exp")
    await branches.redo("s", "exp")
    assert await branches.merge("s/main", "s/exp") is not None
