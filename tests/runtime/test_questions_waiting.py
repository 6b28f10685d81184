"""`call.ask`, and `effects.ask` with a model: waiting for a person, the answer, the deadline."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import anyio
import pytest
from pydantic import BaseModel
from stores import KINDS, place_of
from support import Answer, Note, Order, Outside, Question, live, notifier, trigger_of

from reactifact import (
    Agent,
    Artifact,
    Consume,
    Context,
    PendingAction,
    ProduceCall,
    Runtime,
    RuntimeResources,
    SessionStore,
    create_agent,
    produce,
)
from reactifact.errors import (
    AnswerConflict,
    AnswerInvalid,
    QuestionExpired,
    ReactifactError,
    UnknownQuestion,
)
from reactifact.interrupt import TypedQuestion
from reactifact.testing import JumpingClock

pytestmark = pytest.mark.anyio


class Approval(BaseModel):
    approved: bool
    comment: str = ""


class Clerk:
    """An agent that pays for a draft, asks for approval, and then sends it."""

    def __init__(self, **options: Any) -> None:
        self.drafted = 0
        self.runs = 0
        self.answers: list[Any] = []
        self.options = options

        async def draft() -> str:
            self.drafted += 1
            return "draft"

        @produce(Answer, also_creates=PendingAction)
        async def work(call: ProduceCall) -> None:
            self.runs += 1
            text = await call.memo("draft", draft)
            call.effects.create(Note(text="planned before the question"), id="before")
            try:
                answer = await call.ask(Approval, f"Send {text}?", **self.options)
            except QuestionExpired as expired:
                self.answers.append(expired)
                call.effects.create(Answer(text="nobody answered"), id="a")
                return
            except (ValueError, ReactifactError):
                raise
            except Exception:  # a produce may catch all errors; waiting is none
                raise AssertionError("an execution that waits was taken for one that failed") from None
            self.answers.append(answer)
            call.effects.create(Answer(text=f"{text}: {answer.comment}"), id="a")
            if answer.approved:
                call.effects.act("mail", key="mail:a")

        produces = [work, *([])]
        work.also_creates = (*work.also_creates, Note)
        self.agents: list[Agent] = [create_agent("clerk", consumes=[Consume(Order)], produces=produces)]


def clocked() -> tuple[JumpingClock, RuntimeResources]:
    clock = JumpingClock()
    return clock, RuntimeResources(clock=clock)


def question(context: Context) -> Artifact[Any]:
    (found,) = context.list_artifacts(TypedQuestion)
    return found


def ordered(resources: RuntimeResources | None = None) -> Context:
    context = Context(resources)
    context.create(Order(item="tea"), id="o")
    return context


@pytest.mark.every_loop
async def test_an_execution_waits_and_is_run_again_with_the_answer() -> None:
    context, clerk = ordered(), Clerk()
    runtime = Runtime(context, clerk.agents, dispatcher=(outside := Outside()))
    assert await runtime.arun() == 1
    assert context.get("before") is None  # nothing but the question is committed
    asked = question(context)
    assert (asked.data.question, asked.data.asked_by) == ("Send draft?", "clerk")
    assert context.pending_questions() == [asked]
    assert await runtime.arun() == 0  # it waits without running
    context.resume(asked.id, {"approved": "true", "comment": "fine"})
    assert await runtime.arun() == 1
    assert clerk.answers == [Approval(approved=True, comment="fine")]
    assert live(context, "a").data.text == "draft: fine"
    assert live(context, "before").data.text == "planned before the question"
    assert outside.sent == ["mail:a"]
    assert (clerk.runs, clerk.drafted) == (2, 1)  # what was paid before the question is not paid again
    last = context.history()[-1]
    assert last.reads[0].artifact_id == "o"
    assert asked.id in {read.artifact_id for read in last.reads}
    assert context.commits.memos == []
    assert context.pending_questions() == []


@pytest.fixture(params=[kind for kind in KINDS if kind != "own"])
def store(request: pytest.FixtureRequest, tmp_path: Any) -> SessionStore:
    dsn = request.getfixturevalue("postgres_dsn") if request.param == "postgres" else None
    return SessionStore(place_of(request.param, tmp_path, dsn))


@pytest.mark.parametrize("policy", ["per_commit", "per_step"])
async def test_it_waits_over_processes_and_is_answered_from_outside(store: SessionStore, policy: Any) -> None:
    async with await store.open("s") as session:
        session.context.create(Order(item="tea"), id="o")
        first = Clerk(options={"yes": Approval(approved=True), "no": Approval(approved=False)})
        await Runtime(session.context, first.agents, session=session, session_save_policy=policy).arun()
    (waiting,) = await store.questions()
    assert (waiting.session, waiting.branch, waiting.status, waiting.question) == (
        "s",
        "main",
        "open",
        "Send draft?",
    )
    assert waiting.options == {
        "yes": {"approved": True, "comment": ""},
        "no": {"approved": False, "comment": ""},
    }
    assert waiting.answer_schema is not None
    assert "approved" in waiting.answer_schema["properties"]
    with pytest.raises(AnswerInvalid, match="takes one of its options, 'yes', 'no'"):
        await store.answer(waiting.id, Approval(approved=True, comment="but"))
    with pytest.raises(AnswerInvalid, match="no option 'perhaps': it has 'yes', 'no'"):
        await store.answer(waiting.id, option="perhaps")
    done = await store.answer(waiting.id, option="yes")
    assert (done.status, done.answer) == ("answered", {"approved": True, "comment": ""})
    assert await store.questions() == []
    assert [one.status for one in await store.questions("s", only_open=False)] == ["answered"]
    await store.answer(waiting.id, option="yes")  # the same once more: a request that was tried again
    with pytest.raises(AnswerConflict):
        await store.answer(waiting.id, option="no")
    with pytest.raises(UnknownQuestion, match="no question 'other'"):
        await store.answer("other", {})
    outside = Outside()
    async with await store.open("s") as again:
        later = Clerk(**first.options)
        await Runtime(
            again.context, later.agents, session=again, session_save_policy=policy, dispatcher=outside
        ).arun()
    assert (later.runs, later.drafted) == (1, 0)
    assert outside.sent == ["mail:a"]


async def test_an_answer_is_validated_and_what_is_wrong_is_named_without_repeating_it() -> None:
    context, clerk = ordered(), Clerk()
    await Runtime(context, clerk.agents).arun()
    asked = question(context)
    for wrong in ({"approved": "hunter2"}, {"comment": "hunter2"}, "hunter2", None, ["hunter2"]):
        with pytest.raises(AnswerInvalid, match=r"is not a .*Approval") as raised:
            context.resume(asked.id, wrong)
        assert "hunter2" not in str(raised.value)
    assert not asked.data.answered
    context.resume(asked.id, Approval(approved=False))
    assert asked.data.resolution == {"approved": False, "comment": ""}
    assert asked.data.answer() == Approval(approved=False)
    with pytest.raises(AnswerConflict):
        context.resume(asked.id, Approval(approved=True))


@pytest.mark.every_loop
async def test_a_question_that_expires_wakes_the_agent_with_that() -> None:
    clock, resources = clocked()
    context, clerk = ordered(resources), Clerk(deadline=timedelta(hours=1))
    runtime = Runtime(context, clerk.agents)
    await runtime.arun()
    asked = question(context)
    assert asked.data.deadline == clock.now() + timedelta(hours=1)
    await clock.sleep(3599)
    assert await runtime.arun() == 0
    await clock.sleep(2)
    assert context.pending_questions() == []
    with pytest.raises(QuestionExpired, match="open until"):
        context.resume(asked.id, Approval(approved=True))
    assert await runtime.arun() == 1
    assert asked.data.expired
    assert isinstance(clerk.answers[0], QuestionExpired)
    assert live(context, "a").data.text == "nobody answered"
    assert (clerk.runs, clerk.drafted) == (2, 1)
    assert await runtime.arun() == 0
    with pytest.raises(QuestionExpired):
        context.resume(asked.id, Approval(approved=True), change=True)


async def test_an_answer_in_time_stays_when_the_deadline_passes() -> None:
    clock, resources = clocked()
    context, clerk = ordered(resources), Clerk(deadline=timedelta(hours=1))
    runtime = Runtime(context, clerk.agents)
    await runtime.arun()
    context.resume(question(context).id, Approval(approved=True))
    await clock.sleep(7200)
    assert await runtime.arun() == 1
    assert clerk.answers == [Approval(approved=True)]
    assert not question(context).data.expired


async def test_retries_of_a_produce_do_not_take_waiting_for_a_failure() -> None:
    _, resources = clocked()
    context, tries = ordered(resources), 0

    @produce(Answer, retries=3)
    async def work(call: ProduceCall) -> Answer:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ConnectionError("no route")
        first = await call.ask(Approval, "First?")
        second = await call.ask(Approval, "Second?")
        return Answer(text=f"{first.comment} {second.comment}")

    runtime = Runtime(context, [create_agent("worker", consumes=[Consume(Order)], produces=[work])])
    for text in ("one", "two"):
        await runtime.arun()
        (asked,) = context.pending_questions()
        context.resume(asked.id, Approval(approved=True, comment=text))
    await runtime.arun()
    assert [answer.data.text for answer in context.list_artifacts(Answer)] == ["one two"]
    assert len(context.list_artifacts(TypedQuestion)) == 2


@pytest.mark.every_loop
async def test_questions_that_a_task_group_asks_are_waited_for_too() -> None:
    context = ordered()
    answers: list[str] = []

    @produce(Answer)
    async def work(call: ProduceCall) -> Answer:
        async def one(key: str) -> None:
            answers.append((await call.ask(Approval, key, key=key)).comment)

        async with anyio.create_task_group() as group:
            for key in ("a", "b"):
                group.start_soon(one, key)
        return Answer(text="done")

    runtime = Runtime(context, [create_agent("worker", consumes=[Consume(Order)], produces=[work])])
    for _ in range(2):
        await runtime.arun()
        for asked in context.pending_questions():
            context.resume(asked.id, Approval(approved=True, comment=asked.data.question))
    await runtime.arun()
    assert len(context.list_artifacts(Answer)) == 1
    assert set(answers) == {"a", "b"}


async def test_an_error_beside_a_question_is_an_error() -> None:
    context = ordered()

    @produce(Answer)
    async def work(call: ProduceCall) -> None:
        async def ask() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await call.ask(Approval, "?")

        async def fail() -> None:
            await anyio.sleep(0)
            raise ConnectionError("no route")

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            group.start_soon(fail)

    runtime = Runtime(context, [create_agent("worker", consumes=[Consume(Order)], produces=[work])])
    with pytest.raises(ExceptionGroup) as raised:
        await runtime.arun()
    assert isinstance(raised.value.exceptions[0], ConnectionError)
    assert context.list_artifacts(TypedQuestion) == []


async def test_a_question_of_an_agent_that_is_not_registered_waits_for_it() -> None:
    context, clerk = ordered(), Clerk()
    await Runtime(context, clerk.agents).arun()
    context.resume(question(context).id, Approval(approved=False))
    other = Runtime(context, [notifier("other")])
    await other.arun()
    assert other.last_stats is not None
    assert other.last_stats.absent == {"clerk": 1}
    renamed = create_agent(
        "secretary", consumes=[Consume(Order)], produces=clerk.agents[0].produces, aliases=["clerk"]
    )
    assert await Runtime(context, [renamed]).arun() == 1
    assert clerk.answers == [Approval(approved=False)]


async def test_outside_of_a_runtime_nobody_could_wait() -> None:
    call = ProduceCall(Context(), [], None, None)
    with pytest.raises(RuntimeError, match="needs a Runtime"):
        await call.ask(Approval, "?")


async def test_options_and_deadlines_are_checked_when_they_are_asked() -> None:
    context = ordered()
    for options, error in (
        ({"deadline": datetime(2030, 1, 1)}, ValueError),
        ({"options": []}, AnswerInvalid),
        ({"options": {"yes": Note()}}, AnswerInvalid),
    ):
        with pytest.raises(error):
            await Runtime(context, Clerk(**options).agents).arun()


# -- effects.ask with a model --


async def test_a_typed_question_as_an_effect_wakes_agents_that_consume_it() -> None:
    clock, resources = clocked()
    context = Context(resources)
    context.create(Question(text="why"), id="q")
    seen: list[str] = []

    @produce(TypedQuestion)
    async def ask(call: ProduceCall) -> None:
        source = trigger_of(call).id
        call.effects.ask(Approval, "Well?", deadline=timedelta(minutes=5), id=f"ask:{source}")
        call.effects.ask(Approval, "Late?", deadline=timedelta(minutes=1), id=f"late:{source}")

    @produce(Answer)
    async def react(call: ProduceCall) -> None:
        data = trigger_of(call).data
        seen.append(f"{trigger_of(call).id} {data.answer()} {data.expired}")

    agents = [
        create_agent("asker", consumes=[Consume(Question)], produces=[ask]),
        create_agent(
            "reactor",
            consumes=[
                Consume.by_field(TypedQuestion, "answered", True),
                Consume.by_field(TypedQuestion, "expired", True),
            ],
            produces=[react],
        ),
    ]
    runtime = Runtime(context, agents)
    await runtime.arun()
    assert [one.data.question for one in context.pending_questions()] == ["Well?", "Late?"]
    context.resume("ask:q", {"approved": True})
    await clock.sleep(61)
    await runtime.arun()
    assert sorted(seen) == ["ask:q approved=True comment='' False", "late:q None True"]


async def test_what_effects_ask_takes() -> None:
    context = Context()
    context.create(Question(text="why"), id="q")

    @produce(TypedQuestion)
    async def ask(call: ProduceCall) -> None:
        with pytest.raises(TypeError, match="a model class and a text"):
            call.effects.ask("text", deadline=timedelta(1))  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="a model class and a text"):
            call.effects.ask(Approval)  # type: ignore[call-overload]
        handle = call.effects.ask(Approval, "?", options=[Approval(approved=True)], kind="k", notes={"n": 1})
        call.effects.resume(handle, {"approved": True})

    await Runtime(context, [create_agent("a", consumes=[Consume(Question)], produces=[ask])]).arun()
    data = question(context).data
    assert ([one.label for one in data.options], data.kind, data.notes) == (["1"], "k", {"n": 1})
    assert data.answer() == Approval(approved=True)
