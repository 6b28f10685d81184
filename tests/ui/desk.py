"""A support desk, whose stores the inspector's tests look at: so many turns, then always the same end."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Annotated, Any, Literal

import anyio
from pydantic import BaseModel, Field

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
    step,
)
from reactifact.branching import BranchStore
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.clock import SystemClock
from reactifact.interrupt import PendingQuestion, TypedQuestion
from reactifact.providers import FakeLLM, LLMRequest, Message
from reactifact.replay import NotingLLM, counter_ids

SESSION = "support desk"
RESEARCH = "late parcels"
REFUNDS = "refunds"
NOW = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
"""When the desk is looked at."""
HOSTILE = "<script>alert('hi')</script>/\u202egnp.exe\x1b[2J\"'&"
"""A name that would steer a terminal, turn a line and run a script, if something let it."""


class Ticket(BaseModel):
    customer: str
    subject: str
    text: str
    urgent: bool = False


class Triage(BaseModel):
    ticket: str
    topic: str
    urgency: int = Field(ge=1, le=5)
    reason: str = ""


class Reply(BaseModel):
    ticket: str
    text: str
    tone: str = "warm"


class Desk(BaseModel):
    answered: int = 0
    last: str = ""
    opened_by: str = "Rosa"
    rota: list[str] = ["Rosa", "Ibrahim"]


class Note(BaseModel):
    texts: dict[str, Any]


class Topic(BaseModel):
    question: str


class Aspect(BaseModel):
    topic: str
    name: str


class Finding(BaseModel):
    aspect: str
    text: str


class Summary(BaseModel):
    findings: list[str]


ASPECTS = ("carriers", "depots", "weather", "complaints")


SUBJECTS = (
    (
        "Where is my parcel?",
        "It was to come on Monday, and tracking has said the same for four days.",
    ),
    ("Charged twice", "My card shows two payments of 42.90 for one order. Please give one back."),
    ("Wrong size", "The boots are a 38, I ordered a 39. How do I send them back?"),
    ("Password", "The link to set a new password has expired by the time the mail arrives."),
)
CUSTOMERS = ("ann@example.com", "li@example.com", "sofia@example.com", "tomek@example.com")
LONG = (
    "Dear Ann, thank you for writing. Your parcel left our house on Friday and waits at the depot since; "
    "the driver comes again tomorrow between nine and twelve. If that does not suit you, answer this mail."
)


class Order(BaseModel):
    customer: str
    cents: int


class Verdict(BaseModel):
    """What a person decides of a refund."""

    approved: bool
    amount: float = Field(ge=0, le=500, description="In euros, 500 at most.")
    way: Literal["card", "voucher", "transfer"]
    comment: Annotated[str, Field(max_length=60)] = ""
    tell: list[Literal["customer", "depot", "accounts"]] = ["customer"]
    until: date | None = None


class Carrier(BaseModel):
    name: str
    days: int


Steering = Enum("Steering", {"hostile": HOSTILE, "other": "another"})


class Hostile(BaseModel):
    text: str = Field(HOSTILE, title=HOSTILE, description=HOSTILE, alias=HOSTILE)
    choice: Steering = Field(title=HOSTILE, description=HOSTILE, alias=f"{HOSTILE}2")


@step(consumes=Order, produces=PendingAction)
async def refund(call: ProduceCall[Order]) -> None:
    order = call.trigger.data
    text = f"May we refund {order.cents / 100:.2f} to {order.customer}?"
    verdict = await call.ask(Verdict, text, deadline=timedelta(hours=4), notes={"order": call.trigger.id})
    options = {
        "the slow one": Carrier(name="Snail", days=4),
        "the fast one": Carrier(name="Swift", days=1),
    }
    carrier = await call.ask(Carrier, "Who fetches the parcel?", options=options)
    if verdict.approved:
        call.effects.act("refund", key=call.trigger.id, payload={"way": verdict.way, "by": carrier.name})


async def refunds_turn(store: SessionStore, resources: RuntimeResources | None = None) -> Context:
    """Let the refunds' agent do what it can, and return the context."""
    async with await store.open(REFUNDS, resources or resources_of()) as session:
        await Runtime(session.context, agents=[refund], session=session).arun()
        return session.context


async def _refunds(store: SessionStore, resources: RuntimeResources) -> None:
    """Write a session that waits for people: one question is open, one has expired, one has options."""
    async with await store.open(REFUNDS, resources) as session:
        session.context.create(Order(customer="li@example.com", cents=4290), id="order:1")
        late = TypedQuestion.asking(
            Verdict, "May we refund the postage, too?", now=NOW, deadline=NOW - timedelta(minutes=5)
        )
        session.context.create(late, id="question:late")
        options = {"yes": Carrier(name="Swift", days=1), "no": Carrier(name="none", days=0)}
        choice = TypedQuestion.asking(Carrier, "Is it fetched?", now=NOW, options=options)
        session.context.create(choice, id="question:carrier")
    await refunds_turn(store, resources)


@produce(Triage, reacts_to=Ticket)
async def triage(call: ProduceCall) -> None:
    ticket = call.trigger
    assert ticket is not None
    urgency = 4 if ticket.data.urgent else 2
    call.effects.upsert(
        Triage(ticket=ticket.id, topic=ticket.data.subject, urgency=urgency), id=f"triage:{ticket.id}"
    )
    call.effects.link(f"triage:{ticket.id}", "about", ticket.id)


@produce(Reply, also_creates=[PendingAction, Desk])
async def write(call: ProduceCall) -> None:
    found = call.trigger
    assert found is not None
    ticket = call.context.get(found.data.ticket)
    assert ticket is not None
    llm = call.context.resources.llm
    assert llm is not None
    said = await llm.complete(LLMRequest([Message.user(ticket.data.text)]))
    call.effects.upsert(Reply(ticket=ticket.id, text=said.text), id=f"reply:{ticket.id}")
    call.effects.link(f"reply:{ticket.id}", "answers", ticket.id)
    call.effects.act("mail", key=f"reply:{ticket.id}", payload={"to": ticket.data.customer})
    # without a look at the desk: each reply would rest on it, and each turn make all replies before it stale
    answered = int(ticket.id.removeprefix("ticket:")) + 1
    call.effects.upsert(Desk(answered=answered, last=ticket.id), id="desk")


@produce(Aspect, reacts_to=Topic)
async def plan(call: ProduceCall) -> None:
    topic = call.trigger
    assert topic is not None
    for name in ASPECTS:
        call.effects.create(Aspect(topic=topic.id, name=name), id=f"aspect:{name}")
        call.effects.link(f"aspect:{name}", "part of", topic.id)


@produce(Finding, reacts_to=Aspect)
async def look_up(call: ProduceCall) -> None:
    aspect = call.trigger
    assert aspect is not None
    llm = call.context.resources.llm
    assert llm is not None
    said = await llm.complete(LLMRequest([Message.user(f"What about {aspect.data.name}?")]))
    call.effects.create(Finding(aspect=aspect.id, text=said.text), id=f"finding:{aspect.data.name}")
    call.effects.link(f"finding:{aspect.data.name}", "answers", aspect.id)


@produce(Summary, reacts_to=Finding)
async def sum_up(call: ProduceCall) -> None:
    assert call.trigger is not None
    findings = [found.id for found in call.context.list_artifacts(Finding)]
    if call.trigger.id == findings[-1]:
        call.effects.create(Summary(findings=findings), id="summary")
        for one in findings:
            call.effects.link("summary", "rests on", one)


def researchers() -> list[Agent]:
    return [
        create_agent("planner", consumes=[Consume(Topic)], produces=[plan]),
        create_agent("researcher", consumes=[Consume(Aspect)], produces=[look_up]),
        create_agent("editor", consumes=[Consume(Finding)], produces=[sum_up]),
    ]


async def _research(store: SessionStore, resources: RuntimeResources) -> None:
    """Write a session of one run in which four agents are woken at once, and one by all of them."""
    session = await store.open(RESEARCH, resources)
    session.context.create(Topic(question="Why were parcels late in February?"), id="topic")
    await Runtime(session.context, agents=researchers(), session=session).arun()


def agents() -> list[Agent]:
    return [
        create_agent("triage", consumes=[Consume(Ticket)], produces=[triage]),
        create_agent("writer", consumes=[Consume(Triage)], produces=[write]),
    ]


class StoppedClock(SystemClock):
    """It is always `NOW`."""

    def now(self) -> datetime:
        return NOW


class SteppingClock(SystemClock):
    """Each look at it is 0.7 s later, so that no two times are equal and every run has the same ones."""

    def __init__(self, start: str) -> None:
        self.time = datetime.fromisoformat(start)

    def now(self) -> datetime:
        self.time += timedelta(seconds=0.7)
        return self.time


class Post:
    """The world: a mail to somebody on the list does not get through."""

    def __init__(self, *failing: str) -> None:
        self.failing = failing
        self.sent: list[str] = []

    async def __call__(self, context: Context, action: Artifact[PendingAction]) -> None:
        if action.data.payload["to"] in self.failing:
            raise ConnectionError(f"451 mailbox of {action.data.payload['to']} is full\nsecond line \x1b[31m")
        self.sent.append(action.data.idempotency_key)


def resources_of() -> RuntimeResources:
    return RuntimeResources(
        llm=NotingLLM(FakeLLM(LONG), model="desk-1"),
        clock=SteppingClock("2026-03-02T09:00:00+00:00"),
        id_factory=counter_ids(),
        principal="front door",
    )


class Shift:
    """The agents at work on one session, or on a branch of it."""

    def __init__(self, session: Any, *failing: str) -> None:
        self.context: Context = session.context
        self._runtimes = [
            Runtime(self.context, agents=agents(), session=session, dispatcher=post, dispatch_errors="record")
            for post in (Post(*failing), None)
        ]

    async def turn(self, number: int, *, is_sent: bool = True, **fields: Any) -> None:
        """Let one ticket come in and be answered."""
        subject, text = SUBJECTS[number % len(SUBJECTS)]
        ticket = Ticket(customer=CUSTOMERS[number % len(CUSTOMERS)], subject=subject, text=text)
        self.context.create(ticket.model_copy(update=fields), id=f"ticket:{number}")
        await self._runtimes[0 if is_sent else 1].arun()


async def make_desk(backend: Any, turns: int, *, hostile: bool = False) -> None:
    """Fill a store: `turns` turns on `main`, then a merge, a fork with a conflict, and what waits."""
    store = SessionStore(backend, durability="os")
    resources = resources_of()
    if hostile:
        await _hostile(store, resources)
    await _research(store, resources)
    await _refunds(store, resources_of())
    for number, name in enumerate(("returns", "wholesale", "press")):
        small = await store.open(name, resources)
        small.context.create(Desk(opened_by=CUSTOMERS[number]), id="desk")
        await Shift(small).turn(number)
    session = await store.open(SESSION, resources)
    context = session.context
    context.create(Desk(), id="desk")
    shift = Shift(session, "tomek@example.com")
    for number in range(turns):
        await shift.turn(number, customer="ann@example.com")
    branches = BranchStore(store.database)
    tone = context.branch(name="friendlier")
    reply = tone.get(f"reply:ticket:{turns - 1}")
    assert reply is not None
    text = LONG.replace("Dear Ann", "Hello Ann") + " Have a good day!"
    tone.update(reply.id, reply.data.model_copy(update={"text": text}))
    tone.commits.commit_edit(author="Rosa", message="Say it in a friendlier way")
    await branches.save_branch(tone, session_id=SESSION, name="friendlier")
    await shift.turn(turns, customer="li@example.com", urgent=True)
    context.merge(tone, message="Merge the friendlier replies")
    await session.save()

    trial = context.branch(name="refund trial")  # in conflict with what follows on main
    desk = trial.get("desk")
    assert desk is not None
    trial.update("desk", desk.data.model_copy(update={"rota": ["Ibrahim", "Rosa", "Mei"], "last": "none"}))
    trial.update("reply:ticket:0", Reply(ticket="ticket:0", text="We refund you at once.", tone="brief"))
    trial.create(Reply(ticket="ticket:0", text="A voucher, too.", tone="brief"), id="reply:extra")
    trial.commits.commit_edit(author="Ibrahim", message="Try refunds without asking")
    await branches.save_branch(trial, session_id=SESSION, name="refund trial")
    await shift.turn(turns + 1, customer="tomek@example.com")

    question = "May we refund 42.90 to li@example.com?"
    context.create(
        PendingQuestion(question=question, kind="approval", notes={"order": "A-1001"}), id="question:refund"
    )
    context.create(PendingQuestion(question="Which depot holds the parcel?"), id="question:depot")
    await session.save()
    await shift.turn(turns + 2, is_sent=False)
    await branches.tag(f"{SESSION}/main", "before the sale")
    await store.aclose()


async def _hostile(store: SessionStore, resources: RuntimeResources) -> None:
    """Write a session in which every text is `HOSTILE`."""
    session = await store.open(HOSTILE, resources)
    ticket = Ticket(customer=HOSTILE, subject=HOSTILE, text=f"{HOSTILE}\nsecond line")
    session.context.create(ticket, id=HOSTILE)
    question = PendingQuestion(question=HOSTILE, kind=HOSTILE, notes={HOSTILE: HOSTILE})
    session.context.create(question, id=f"q {HOSTILE}")
    asking: dict[str, Any] = {
        "question": HOSTILE,
        "kind": HOSTILE,
        "answer_type": "desk.Hostile",
        "answer_schema": Hostile.model_json_schema(),
    }
    session.context.create(TypedQuestion(**asking), id=f"form {HOSTILE}")
    asking["options"] = [{"label": HOSTILE, "answer": {HOSTILE: HOSTILE}}]
    session.context.create(TypedQuestion(**asking), id=f"options {HOSTILE}")
    unknown = TypedQuestion(**{**asking, "answer_type": HOSTILE})
    session.context.create(unknown, id=f"unknown {HOSTILE}")
    session.context.link(HOSTILE, HOSTILE, f"q {HOSTILE}")
    await session.save()
    branch = session.context.branch(name=HOSTILE)
    branch.update(HOSTILE, ticket.model_copy(update={"text": f"{HOSTILE} and more\nthird line"}))
    branch.commits.commit_edit(author=HOSTILE, message=HOSTILE)
    branches = BranchStore(store.database)
    await branches.save_branch(branch, session_id=HOSTILE, name=HOSTILE)
    edited = ticket.model_copy(update={"text": f"{HOSTILE} and less"})
    session.context.update(HOSTILE, edited)  # in conflict with the branch

    async def refuse(context: Context, action: Artifact[PendingAction]) -> None:
        raise ConnectionError(HOSTILE)

    writer = create_agent(HOSTILE, consumes=[Consume(Ticket)], produces=[write_hostile])
    await Runtime(
        session.context, agents=[writer], session=session, dispatcher=refuse, dispatch_errors="record"
    ).arun()
    await branches.tag(f"{HOSTILE}/main", f"tag {HOSTILE}")


@produce(Note, also_creates=[PendingAction])
async def write_hostile(call: ProduceCall) -> None:
    llm = call.context.resources.llm
    assert llm is not None
    await llm.complete(LLMRequest([Message.user(HOSTILE)]))
    call.effects.upsert(Note(texts={HOSTILE: [HOSTILE, {HOSTILE: HOSTILE}]}), id=f"note {HOSTILE}")
    call.effects.act(HOSTILE, key=HOSTILE, payload={HOSTILE: HOSTILE}, ordering_key=HOSTILE)


@step(consumes=Order, produces=PendingAction)
async def ship(call: ProduceCall[Order]) -> None:
    payload = {"to": call.trigger.data.customer}
    call.effects.act("label", key="label", payload=payload)
    call.effects.act("reminder", key="reminder", payload=payload, not_before=NOW + timedelta(hours=20))


def parked() -> Any:
    """Return a store in which one action is parked, and one waits for its time."""
    backend = InMemoryKVBackend()

    async def make() -> None:
        store, resources = SessionStore(backend), resources_of()
        async with await store.open(SESSION, resources) as session:
            session.context.create(Order(customer="tomek@example.com", cents=100), id="order:1")
            await Runtime(session.context, agents=[ship], session=session).arun()
        await store.relay(Post("tomek@example.com"), max_attempts=1, once=True, resources=resources)

    anyio.run(make)
    return backend


def filled(backend: Any, turns: int, **options: Any) -> Any:
    """Fill a store with a desk and return it."""
    anyio.run(lambda: make_desk(backend, turns, **options))
    return backend
