"""The blocks of the manual run as they stand, each on the small surroundings that its page leaves out."""

from __future__ import annotations

import ast
import json
import operator
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from inspect import CO_COROUTINE
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Annotated, Any, ClassVar, TypedDict

import forked
import httpx
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai.models.test import TestModel
from support import Note, Order, Outside, Receipt, notifier

from reactifact import (
    Agent,
    Consume,
    Context,
    FakeLLM,
    LLMRequest,
    Message,
    PendingAction,
    ProduceCall,
    Runtime,
    SessionStore,
    create_agent,
    produce,
)
from reactifact.branching import BranchStore
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.integrations.langgraph import ReactifactSaver
from reactifact.replay import ReplayMiss
from reactifact.types import TypeNotFoundError, limit_imports, resolve

ROOT = Path(__file__).parents[2]

SHOP = """
from pydantic import BaseModel
from reactifact import Consume, PendingAction, create_agent, produce


class Order(BaseModel):
    item: str


@produce(PendingAction, reacts_to=Order)
async def confirm(call):
    call.effects.act("mail", key=f"mail:{call.trigger.id}")


def agents():
    return [create_agent("confirmer", consumes=[Consume(Order)], produces=[confirm])]
"""

MY_STORE = """
from reactifact.checkpoints import SQLiteKVBackend


class MyBackend(SQLiteKVBackend):
    def __init__(self, path):
        super().__init__(f"{path}.db")
"""

PROGRAMS = (
    ("deploy.md", "async def work(", "ann 1\none mail\n"),
    ("durable-steps.md", 'session_save_policy="per_step"', "20\n"),
    (
        "guard-rails.md",
        "def authorizer(",
        "my key is [key]\n"
        "guardrail polite refuses to create Letter 'l2' by 'ann': it shouts\n"
        "not authorized: delete Letter 'l1' by 'ann': ann deletes nothing\n"
        "{'text': 'my key is [key]'}\n",
    ),
    (
        "large.md",
        "class Book(",
        "reads Leaves\nreads Water\nreads Water\n['Leaves and more', 'Hot water']\n",
    ),
    ("large.md", "class Attachment(", "20 b'not really a picture'\n"),
    (
        "erase.md",
        "store.erase",
        "[('customer:1', 2)] 2\nNone name='[erased]' born=None orders=0\n2 True\n",
    ),
    ("people.md", "call.ask(Approval", "Refund 900 cents? open\n['action:refund:r1']\n"),
)
"""Page, a text of a block that is a whole program, and what it prints."""

CASES = (
    *((page, text) for page, text, _ in PROGRAMS),
    ("adapters.md", "clerk = Agent("),
    ("adapters.md", "recorder("),
    ("adapters.md", "app = FastAPI("),
    ("branching.md", 'context.branch(name="experiment")'),
    ("branching.md", "BranchStore("),
    ("branching.md", 'store.open("shop", branch="trial")'),
    ("branching.md", "branches.race("),
    ("branching.md", "register_type(Post"),
    ("langgraph.md", "builder.compile("),
    ("fan-out.md", "GATHER.gathered(call)"),
    ("model-sdk.md", "class OpenAIModel("),
    ("model-sdk.md", "async def first_verdict("),
    ("model-sdk.md", "first_verdict(FakeLLM("),
    ("moving.md", "def copy_threads("),
    ("moving.md", "async def take_over("),
    ("observability.md", "astream(lifecycle=True)"),
    ("observability.md", "get_tracer("),
    ("pruning.md", "store.prune(grace=0)  # at once"),
    ("pruning.md", "rewrite=True"),
    ("relay.md", "store.relay("),
    ("replay.md", "replay_context("),
    ("replay.md", 'mode="record"'),
    ("replay.md", "class MyProvider"),
    ("stores.md", "store.drain("),
    ("sync.md", "for conflict in report.conflicts"),
    ("sync.md", "lease=3600"),
    ("testing.md", "test_an_order_is_confirmed"),
    ("testing.md", "dispatcher.fail_for("),
    ("testing.md", "FaultyBackend(kept)"),
    ("testing.md", "class TestMyBackend"),
    ("types.md", "register_type("),
    ("types.md", "limit_imports("),
)
"""Page and a text of each block that a test below runs."""


def blocks(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def block(page: str, containing: str) -> str:
    assert (page, containing) in CASES
    (found,) = [text for text in blocks(ROOT / "docs" / page) if containing in text]
    return found


async def run(page: str, containing: str, **names: Any) -> dict[str, Any]:
    """Run a block with these names known; return all the names it leaves."""
    text = block(page, containing)
    code: CodeType = compile(text, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    known: dict[str, Any] = {"__name__": "shop", **names}
    done = eval(code, known)
    if code.co_flags & CO_COROUTINE:
        await done
    return known


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # the pages are about what is written, not about event loops


async def order_and_turn(store: SessionStore, dispatcher: Any, agents: Sequence[Agent] = ()) -> None:
    session = await store.open("s")
    session.context.create(Order(item="tea"), id="order:1")
    await Runtime(
        session.context, list(agents) or [notifier()], dispatcher=dispatcher, session=session
    ).arun()


def run_program(folder: Path, text: str) -> str:
    """Run a program in a process of its own, so that it registers nothing here; return what it prints."""
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = forked.run(path, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    plugins = ["-p", "anyio", "-p", "reactifact.testing.plugin", "-p", "no:cacheprovider"]
    path = os.pathsep.join([str(ROOT), str(folder)])
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_every_block_of_the_manual_is_run() -> None:
    by_another_test = {"recipes.md", "tutorial.md"}
    for page in sorted((ROOT / "docs").glob("*.md")):
        for text in blocks(page) if page.name not in by_another_test else ():
            named = [containing for name, containing in CASES if name == page.name and containing in text]
            assert len(named) == 1, f"{page.name}: {text}"


@pytest.mark.parametrize(("page", "containing", "printed"), PROGRAMS)
def test_the_programs_of_the_manual(tmp_path: Path, page: str, containing: str, printed: str) -> None:
    assert run_program(tmp_path, block(page, containing)) == printed


# -- adapters.md ---------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_an_agent_of_another_library_and_a_web_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sent: list[str] = []

    def mail(to: str) -> str:
        raise AssertionError("it goes through the outbox")

    names = {"Order": Order, "Receipt": Receipt, "model": TestModel(custom_output_text="done"), "mail": mail}
    made = await run("adapters.md", "clerk = Agent(", **names)
    agents = [create_agent("clerk", consumes=[Consume(Order)], produces=[made["confirm"]])]
    store = SessionStore("first.git")
    left = await run(
        "adapters.md",
        "recorder(",
        store=store,
        Order=Order,
        agents=agents,
        send_mail=lambda to: sent.append(to),
    )
    assert left["session"].context.get("receipt:order:1").data == Receipt(order="done")
    assert (len(sent), len(Path("calls.jsonl").read_text().splitlines())) == (1, 2)
    await store.aclose()
    served = await run(
        "adapters.md", "app = FastAPI(", dispatcher=left["dispatcher"], Order=Order, agents=agents
    )
    app = served["app"]
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            answer = await client.post("/customers/ann/orders", params={"item": "tea"})
    assert answer.status_code == 200, answer.text
    assert len(sent) == 2


# -- branching.md --------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_branch_is_merged(capsys: pytest.CaptureFixture[str]) -> None:
    context = Context()
    context.create(Note(text="a"), id="n")
    left = await run("branching.md", 'context.branch(name="experiment")', context=context)
    assert left["experiment"].get("n") is not None
    assert "nothing to take over" in capsys.readouterr().out


class Product(BaseModel):
    TYPE_ID: ClassVar[str] = "docs.Product"

    price: int


@pytest.mark.anyio
async def test_the_verbs_of_a_branch_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SessionStore("state.git")
    async with store.edit("shop", message="Begin") as context:
        context.create(Product(price=4), id="tea")
    await run("branching.md", "BranchStore(", Product=Product)
    said = capsys.readouterr().out
    assert "price: 4 -> 2" in said
    assert "Merge shop/sale into shop/main\nHalf price\nBegin\n" in said
    session = await store.open("shop")
    kept = session.context.get("tea")
    assert kept is not None
    assert "the merge that made version 2\nthe merge that made version 2 again\n" in said
    assert kept.data == Product(price=2)  # undone, and done again
    with pytest.raises(TypeError, match="give its `database`"):
        BranchStore(store)


@pytest.mark.anyio
async def test_a_branch_is_a_place_to_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = SessionStore(tmp_path / "state.git")
    async with store.edit("shop") as context:
        context.create(Product(price=4), id="tea")
        context.create(Order(item="cup"), id="order:0")
    branches = BranchStore(store.database)
    known: dict[str, Any] = {"store": store, "branches": branches, "Order": Order, "agents": [notifier()]}
    await run("branching.md", 'store.open("shop", branch="trial")', **known)
    assert capsys.readouterr().out == "1 cup\n"
    assert (await branches.at("shop/april")).get("receipt:order:1") is not None

    def reprice(price: int) -> Any:
        async def strategy(session: Any) -> None:
            session.context.update("tea", Product(price=price))

        return strategy

    await run("branching.md", "branches.race(", **{**known, "Product": Product}, reprice=reprice)
    assert capsys.readouterr().out == "cheap tea Merge cheap, the winner of a race\n"


MERGED = """
from pydantic import BaseModel
from reactifact import Context


class Post(BaseModel):
    views: int = 0
    tags: list[str] = []
    log: list[str] = []


class Profile(BaseModel):
    name: str = ""
    changed_at: int = 0

{block}
context = Context()
context.create(Post(), id="post")
context.create(Profile(), id="profile")
other = context.branch(name="other")
for side, at in ((context, 1), (other, 2)):
    side.update("post", Post(views=3, tags=[f"t{{at}}"], log=[f"l{{at}}"]))
    side.update("profile", Profile(name=f"n{{at}}", changed_at=at))
context.merge(other)
post, profile = context.get("post").data, context.get("profile").data
assert (post.views, sorted(post.tags), sorted(post.log)) == (6, ["t1", "t2"], ["l1", "l2"]), post
assert profile.name == "n2", profile
"""


def test_merge_functions_are_registered_for_types(tmp_path: Path) -> None:
    run_program(tmp_path, MERGED.format(block=block("branching.md", "register_type(Post")))


# -- langgraph.md --------------------------------------------------------------------------------


class Seen(TypedDict, total=False):
    wish: str
    seen: bool


@pytest.mark.anyio
async def test_a_graph_is_compiled_over_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    builder = StateGraph(Seen)
    builder.add_node("look", lambda state: {"seen": True})
    builder.add_edge(START, "look")
    await run("langgraph.md", "builder.compile(", builder=builder)
    assert await SessionStore("threads.git").list_sessions() == ["trip-1"]


# -- moving.md -----------------------------------------------------------------------------------


class Asked(TypedDict, total=False):
    wish: str
    answers: Annotated[list[str], operator.add]


@pytest.mark.filterwarnings("ignore:artifacts of shop")
@pytest.mark.anyio
async def test_threads_of_another_saver_are_taken_over(tmp_path: Path) -> None:
    builder = StateGraph(Asked)
    builder.add_node("ask", lambda state: {"answers": [str(interrupt("Go?"))]})
    builder.add_edge(START, "ask")
    old = InMemorySaver()
    config: Any = {"configurable": {"thread_id": "trip-1"}}
    before = builder.compile(checkpointer=old)
    before.invoke({"wish": "Lyon"}, config)
    before.invoke(Command(resume="no"), config)
    before.invoke({"wish": "Nice"}, config)
    with ReactifactSaver(tmp_path / "threads.git") as new:
        names = await run("moving.md", "def copy_threads(")
        assert names["copy_threads"](old, new) == len(list(old.list(None)))
        after = builder.compile(checkpointer=new)

        def steps(graph: Any) -> list[tuple[str, str, Any]]:
            history = list(graph.get_state_history(config))
            return [
                (one.config["configurable"]["checkpoint_id"], str(one.next), one.values) for one in history
            ]

        assert steps(after) == steps(before)
        assert after.get_state(config).interrupts == before.get_state(config).interrupts
        assert after.invoke(Command(resume="yes"), config)["answers"] == ["no", "yes"]
        values = after.get_state(config).values
    store = SessionStore(tmp_path / "shop.git")
    taken = await run("moving.md", "async def take_over(")
    await taken["take_over"](values, "trip-1", store)
    wish = (await store.open("trip-1")).context.get("wish")
    assert wish is not None
    assert wish.data.text == "Nice"
    await store.aclose()


# -- model-sdk.md --------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:artifacts of shop")  # classes of a block stand in no module
@pytest.mark.anyio
async def test_a_vendors_sdk_is_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        message = {"role": "assistant", "content": '{"is_kind": false}'}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        document = {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        return httpx.Response(200, json={**document, "usage": usage})

    client = AsyncOpenAI(api_key="-", http_client=httpx.AsyncClient(transport=httpx.MockTransport(answer)))
    names = await run("model-sdk.md", "class OpenAIModel(")
    llm = names["OpenAIModel"](client, "m")
    request = LLMRequest([Message.user("hi")], temperature=0.5, max_tokens=9, stop=["."], extra={"seed": 1})
    said = await llm.complete(request)
    assert (said.text, said.finish_reason, said.usage) == (
        '{"is_kind": false}',
        "stop",
        {"prompt_tokens": 7, "completion_tokens": 3},
    )
    options = {name: asked[0][name] for name in ("temperature", "max_completion_tokens", "stop", "seed")}
    assert options == {"temperature": 0.5, "max_completion_tokens": 9, "stop": ["."], "seed": 1}
    used = await run("model-sdk.md", "async def first_verdict(", LLMProvider=names["LLMProvider"])
    assert (await used["first_verdict"](llm)).is_kind is False
    assert asked[1]["model"] == "m"
    shutil.rmtree("reviews.git")
    await run("model-sdk.md", "first_verdict(FakeLLM(", first_verdict=used["first_verdict"])


# -- pruning.md, stores.md -----------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_store_is_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = SessionStore("state.db")
    async with store.edit("gone") as context:
        context.create(Note(), id="n")
    await store.delete_session("gone")
    left = await run("pruning.md", "store.prune(grace=0)  # at once", SessionStore=SessionStore)
    assert left["done"].objects > 0
    await run("pruning.md", "rewrite=True", store=store)
    assert (await store.prune()).waiting == 0
    await left["store"].aclose()
    await store.aclose()


@pytest.mark.anyio
async def test_two_stores_are_brought_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "-q", "--bare", "hub.git"], check=True)
    for place, count in (("laptop.git", 1), ("other.git", 2)):
        store = BranchStore(place)
        await store.sync("hub.git")
        async with store.edit("shop") as context:
            context.create(Note(), id="n")
            context.update("n", Note(count=count))
        await store.sync("hub.git") if place == "other.git" else None
    left = await run("sync.md", "for conflict in report.conflicts", BranchStore=BranchStore)
    assert [type(error).__name__ for _, _, error in left["report"].failed] == ["UnrelatedHistories"]
    await left["branches"].delete_branch("shop", "main")
    left = await run("sync.md", "for conflict in report.conflicts", BranchStore=BranchStore)
    assert capsys.readouterr().out.endswith(
        "True [('shop', 'main')] [] [] ['refs/reactifact/deleted/shop']\n"
    )
    await run("sync.md", "lease=3600", branches=left["branches"])


@pytest.mark.anyio
async def test_what_waits_anywhere_is_drained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    world = Outside("notify:order:1")
    with pytest.raises(ConnectionError):
        await order_and_turn(SessionStore("state.git"), world)
    session = await SessionStore("state.git").open("s")
    session.context.retry_action("action:notify:order:1")
    await session.save()
    world.failing.clear()
    left = await run("stores.md", "store.drain(", SessionStore=SessionStore, dispatcher=world)
    assert (left["report"].delivered, left["waiting"], world.sent) == (1, [], ["notify:order:1"])


# -- fan-out.md ----------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_findings_are_gathered_in_a_report() -> None:
    left = await run("fan-out.md", "GATHER.gathered(call)")
    assert left["context"].get("report").data.text == "WHERE, WHEN"
    assert left["runtime"].last_stats.runs == 4


# -- observability.md ----------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_run_is_seen_live(capsys: pytest.CaptureFixture[str]) -> None:
    context = Context()
    context.create(Order(item="tea"), id="order:1")
    runtime = Runtime(context, [notifier()], dispatcher=Outside())
    await run("observability.md", "astream(lifecycle=True)", runtime=runtime)
    said = capsys.readouterr().out
    assert f"version 1, commit {context.head_id}" in said
    assert "notify:order:1: dispatched" in said
    assert "run_end" in said


@pytest.mark.anyio
async def test_a_tracer_and_a_meter_are_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    left = await run("observability.md", "get_tracer(", agents=[notifier()], deliver=Outside())
    assert left["runtime"].last_stats is not None


# -- relay.md ------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_relay_delivers_what_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    posted: list[str] = []

    async def post(payload: dict[str, Any], *, idempotency_key: str) -> None:
        posted.append(idempotency_key)

    left = await run("relay.md", "store.relay(", post=post, Order=Order)
    assert left["report"].tried == 0
    session = await SessionStore("state.git").open("s")
    session.context.create(Order(item="tea"), id="7")
    agent = create_agent("confirmer", consumes=[Consume(Order)], produces=[left["confirm"]])
    await Runtime(session.context, [agent], session=session, hints=False).arun()
    report = await left["store"].relay(left["deliver"], once=True)
    assert (posted, report.waiting) == (["confirm:7"], 2)


# -- replay.md -----------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_state_is_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = SessionStore("state.git")
    for number in range(12):
        async with store.edit("orders") as context:
            context.create(Note(count=number), id=f"n{number}")
    left = await run("replay.md", "replay_context(")
    assert left["replay_summary"](left["context"])["version"] == 12


@pytest.mark.anyio
async def test_model_calls_are_recorded_and_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    request = LLMRequest([Message("user", "hello")])

    class Client:
        async def chat(self, *, model: str, messages: list[dict[str, str]], max_tokens: int | None) -> Any:
            assert (model, messages) == ("big-1", [{"role": "user", "content": "hello"}])
            return SimpleNamespace(text="hi", tokens=3)

    provider = (await run("replay.md", "class MyProvider"))["MyProvider"]
    answer = await provider(Client(), "big-1").complete(request)
    assert (answer.text, answer.usage) == ("hi", {"completion_tokens": 3})
    Path("calls.jsonl").touch()
    left = await run(
        "replay.md", 'mode="record"', MyProvider=lambda client, model: FakeLLM(["hi"]), client=Client()
    )
    with pytest.raises(ReplayMiss):
        await left["llm"].complete(request)


# -- testing.md ----------------------------------------------------------------------------------


def test_the_fixtures_and_the_conformance_suite(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "mystore.py").write_text(MY_STORE)
    (tmp_path / "conftest.py").write_text(
        'import pytest\n\n\n@pytest.fixture\ndef anyio_backend():\n    return "asyncio"\n'
    )
    (tmp_path / "test_order.py").write_text(block("testing.md", "test_an_order_is_confirmed"))
    (tmp_path / "test_store.py").write_text(block("testing.md", "class TestMyBackend"))
    done = run_pytest(tmp_path, "--update-golden")
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "golden" / "test_an_order_is_confirmed.json").exists()


@pytest.mark.anyio
async def test_a_dispatcher_fails_where_it_is_told_to() -> None:
    left = await run("testing.md", "dispatcher.fail_for(")
    await order_and_turn(SessionStore(InMemoryKVBackend()), left["dispatcher"])
    assert left["dispatcher"].keys == ["notify:order:1"]  # it was healed


@pytest.mark.anyio
async def test_a_crash_after_a_send_sends_again() -> None:
    @produce(PendingAction)
    async def confirm(call: ProduceCall) -> None:
        call.effects.act("mail", key="mail:order:1")

    agents = [create_agent("confirmer", consumes=[Consume(Order)], produces=[confirm])]
    left = await run("testing.md", "FaultyBackend(kept)", run=partial(order_and_turn, agents=agents))
    assert await SessionStore(left["kept"]).pending_sessions() == []


# -- types.md ------------------------------------------------------------------------------------


RENAMED = """
from pydantic import BaseModel
from reactifact import Context, register_type


class Order(BaseModel):
    __module__ = "shop"
    item: str


class PurchaseOrder(BaseModel):
    __module__ = "shop"
    item: str
    currency: str


context = Context()
context.create(Order(item="tea"), id="o")
document = context.to_dict()
{block}
found = Context.from_dict(document).get("o").data
assert found == PurchaseOrder(item="tea", currency="EUR"), found
"""


def test_a_model_is_renamed(tmp_path: Path) -> None:
    run_program(tmp_path, RENAMED.format(block=block("types.md", "register_type(")))


@pytest.mark.anyio
async def test_imports_are_limited() -> None:
    try:
        await run("types.md", "limit_imports(")
        with pytest.raises(TypeNotFoundError, match=r"billing\.models"):
            resolve("billing.other.Invoice")
    finally:
        limit_imports(None)
