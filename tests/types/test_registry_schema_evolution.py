"""Models that change between two runs of a program: what was stored opens in the next one, or says how.

The runs are processes of their own: a class that this process has seen would hide what is missing. One
process writes, with models that then are renamed, moved, or gone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support import Outside, live

import reactifact
import reactifact.types
from reactifact import Runtime, SessionStore
from reactifact._context.delivery import sendable
from reactifact._runtime.drain import require_readable
from reactifact._sessions.service import pending_sessions
from reactifact._sessions.stores import open_database
from reactifact._store.commits import read_roots
from reactifact.cli import main
from reactifact.context import Context
from reactifact.errors import TypeNotFoundError

ROOT = Path(reactifact.__file__).parents[1]

MODELS = """
from typing import ClassVar, Generic, TypeVar
from pydantic import BaseModel

T = TypeVar("T")

class Order(BaseModel):
    item: str
    price: int = 0

class Customer(BaseModel):
    name: str

class Parcel(BaseModel):
    weight: int

class Note(BaseModel):
    TYPE_ID: ClassVar[str] = "evolving.note"
    text: str

class Box(BaseModel, Generic[T]):
    value: T

class Receipt(BaseModel):
    order: str
"""

WRITER = """
import sys
import anyio
from evolving_shop import Box, Customer, Note, Order, Parcel, Receipt
from reactifact import Consume, PendingAction, Runtime, SessionStore, create_agent, produce

@produce(Receipt, also_creates=PendingAction)
async def notify(call):
    call.effects.create(Receipt(order=call.trigger.id), id="receipt")
    call.effects.act("mail", key=f"notify:{call.trigger.id}", payload={})

@produce(Receipt)
async def broken(call):
    raise ConnectionError("no route")

async def fill(path):
    store = SessionStore(path, durability="os")
    session = await store.open("s")
    context = session.context
    context.create(Order(item="tea"), id="o1")
    agents = [create_agent("notifier", consumes=[Consume(Order)], produces=[notify])]
    await Runtime(context, agents, session=session, dispatcher=None).arun()
    context.update("o1", Order(item="tea", price=3))
    context.create(Customer(name="Ann Lee"), id="c1")
    context.update("c1", Customer(name="Ann Lee-Jones"))
    context.create(Parcel(weight=7), id="p1")
    context.create(Note(text="hello"), id="n1")
    context.create(Box[int](value=1), id="b1")
    context.create(Box[Order](value=Order(item="pot")), id="b2")
    await session.save()
    session = await store.open("held")
    session.context.create(Order(item="tea"), id="o1")
    agents.append(create_agent("broken", consumes=[Consume(Order)], produces=[broken]))
    try:
        await Runtime(session.context, agents, session=session, dispatcher=None).arun()
    except ConnectionError:
        pass
    await session.save()
    await store.aclose()

for path in sys.argv[1:]:
    anyio.run(fill, path)
"""

# The same shop a year later: another module, other names, other fields.
LATER = """
import json
import sys
from typing import ClassVar, Generic, TypeVar
import anyio
from pydantic import BaseModel
from reactifact import SessionStore, register_type

T = TypeVar("T")

class PurchaseOrder(BaseModel):
    item: str
    price: int = 0
    currency: str = "EUR"

class Client(BaseModel):
    full_name: str

class Parcel(BaseModel):
    weight: int
    carrier: str

class Memo(BaseModel):
    TYPE_ID: ClassVar[str] = "evolving.note"
    text: str

class Box(BaseModel, Generic[T]):
    value: T

class Voucher(BaseModel):
    order: str
    valid: bool

ran = []

def client(payload):
    ran.append(dict(payload))
    return {"full_name": payload["name"]}

register_type(PurchaseOrder, aliases=["evolving_shop.Order"])
register_type(Client, type_id="client", aliases=["evolving_shop.Customer"], migrate=client)
register_type(Parcel, type_id="parcel", aliases=["evolving_shop.Parcel"],
              migrate=lambda payload: {**payload, "carrier": "post"})
register_type(Voucher, aliases=["evolving_shop.Receipt"], migrate=lambda payload: {**payload, "valid": True})
register_type(Box, type_id="box", aliases=["evolving_shop.Box"])

def shown(value):
    return [type(value).__name__, value.model_dump(mode="json")]

async def read(path):
    session = await SessionStore(path, durability="os").open("s")
    context = session.context
    found = {
        "artifacts": {name: shown(context.get(name).data) for name in ("o1", "c1", "p1", "n1", "b1", "b2")},
        "history": {name: [shown(old) for old in context.get(name).history] for name in ("o1", "c1")},
        "listed": [order.id for order in context.list_artifacts(PurchaseOrder)],
        "events": {event.artifact_id: event.artifact_type.__name__ for event in context.pending_events()},
    }
    created = [op for commit in context.history() for op in commit.operations if hasattr(op, "data")]
    found["operations"] = [shown(created[0].data), *[type(op.data).__name__ for op in created[1:]]]
    before = len(ran)
    context.update("c1", Client(full_name="Bea"))
    context.update("p1", Parcel(weight=8, carrier="train"))
    await session.save()
    context = (await SessionStore(path, durability="os").open("s")).context
    now = [context.get(name) for name in ("c1", "p1")]
    found["written"] = {one.id: [one.data_type, *shown(one.data)] for one in now}
    found["c1 now"] = [shown(old) for old in context.get("c1").history]
    found["hook ran on"] = sorted({payload.get("name", "?") for payload in ran})
    return found

print(json.dumps({path: anyio.run(read, path) for path in sys.argv[1:]}))
"""


def run(*arguments: str | Path, path: Path, text: str | None = None) -> str:
    """Run Python in a process of its own, modules below `path` at hand; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "always::reactifact.errors.ReactifactWarning", *map(str, arguments)],
        input=text,
        cwd=path,
        env={**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


STORES = ("state.git", "state.db")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two stores that a process with the first models has written; the models are gone."""
    folder = tmp_path_factory.mktemp("evolving")
    (folder / "evolving_shop.py").write_text(MODELS)
    (folder / "writer.py").write_text(WRITER)
    run("writer.py", *STORES, path=folder)
    (folder / "evolving_shop.py").unlink()
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    return folder


@pytest.fixture
def stores(written: Path, tmp_path: Path) -> Path:
    """Copies of them, to be written to."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, stores: Path) -> Path:
    return stores / request.param


async def opened(store: Path) -> Context:
    context = await SessionStore(store, durability="os").load_session("s")
    assert context is not None
    return context


# --- models that moved on ----------------------------------------------------------------------------


def test_what_was_stored_opens_under_later_models(stores: Path) -> None:
    """A rename with a move, a renamed field, a new required field, moved TYPE_ID, generics of both."""
    (stores / "later.py").write_text(LATER)
    told = json.loads(run("later.py", *STORES, path=stores))
    assert list(told) == list(STORES)
    for found in told.values():
        assert found["artifacts"] == {
            "o1": ["PurchaseOrder", {"item": "tea", "price": 3, "currency": "EUR"}],
            "c1": ["Client", {"full_name": "Ann Lee-Jones"}],
            "p1": ["Parcel", {"weight": 7, "carrier": "post"}],
            "n1": ["Memo", {"text": "hello"}],
            "b1": ["Box[int]", {"value": 1}],
            "b2": ["Box[PurchaseOrder]", {"value": {"item": "pot", "price": 0, "currency": "EUR"}}],
        }
        assert found["history"] == {
            "o1": [["PurchaseOrder", {"item": "tea", "price": 0, "currency": "EUR"}]],
            "c1": [["Client", {"full_name": "Ann Lee"}]],
        }
        assert found["listed"] == ["o1"]
        assert found["events"] == {
            "o1": "PurchaseOrder",
            "receipt": "Voucher",
            "action:notify:o1": "PendingAction",
            "c1": "Client",
            "p1": "Parcel",
            "n1": "Memo",
            "b1": "Box[int]",
            "b2": "Box[PurchaseOrder]",
        }
        assert found["operations"] == [["Voucher", {"order": "o1", "valid": True}], "PendingAction"]
        assert found["written"] == {
            "c1": ["client", "Client", {"full_name": "Bea"}],
            "p1": ["parcel", "Parcel", {"weight": 8, "carrier": "train"}],
        }
        # the hook has run on what was written before it was there, and on nothing else
        assert found["c1 now"][-1] == ["Client", {"full_name": "Ann Lee-Jones"}]
        assert found["hook ran on"] == ["Ann Lee", "Ann Lee-Jones"]


# --- models that are gone ----------------------------------------------------------------------------


NAMED = r"artifact 'o1': unknown artifact type 'evolving_shop.Order'.*register_type\(Model, aliases="


@pytest.mark.anyio
async def test_without_its_class_an_artifact_is_named_and_the_rest_loads(store: Path) -> None:
    context = await opened(store)
    assert [question.id for question in context.pending_actions()] == ["action:notify:o1"]
    order = context.get("o1")
    assert order is not None
    assert (order.data_type, order.version) == ("evolving_shop.Order", 1)
    for touch in (lambda: order.data, lambda: order.history, lambda: order.to_dict()):
        with pytest.raises(TypeNotFoundError, match=NAMED):
            touch()
    with pytest.raises(TypeNotFoundError, match=r"evolving_shop\.Receipt.*register_type"):
        _ = context.history()[0].operations
    assert {event.type_id for event in context.pending_events()} >= {"evolving_shop.Order", "evolving.note"}
    context.create(reactifact.PendingQuestion(question="and now?"), id="q1")
    await SessionStore(store).save_session("s", context)
    assert live(await opened(store), "q1").data.question == "and now?"


@pytest.mark.anyio
async def test_a_held_result_of_a_missing_class_is_kept_and_named(store: Path) -> None:
    sessions = SessionStore(store, durability="os")
    session = await sessions.open("held")
    (held,) = session.context.commits.held
    written = read_roots(sessions.database, tip_of(session.context)).held
    assert written is not None
    with pytest.raises(TypeNotFoundError, match=r"'notifier' that is held for 'o1'.*'receipt': unknown"):
        _ = held.operations
    session.context.create(reactifact.PendingQuestion(question="and now?"), id="q1")
    await session.save()
    session = await SessionStore(store, durability="os").open("held")
    assert read_roots(sessions.database, tip_of(session.context)).held == written
    assert session.context.commits.held[0].encode() == held.encode()


def tip_of(context: Context) -> str:
    tip = context.line.tip
    assert tip is not None
    return tip


@pytest.mark.anyio
async def test_nothing_is_ready_to_be_sent_while_a_class_is_missing(store: Path) -> None:
    context = await opened(store)
    with pytest.raises(TypeNotFoundError, match=r"'action:notify:o1' is not sent.*artifact 'o1'") as told:
        require_readable(context.working, sendable(context.working, datetime.now(UTC)))
    assert "register_type(Model, aliases=['evolving_shop.Order'])" in str(told.value)
    context.delete("o1")  # what is gone cannot be in the way
    require_readable(context.working, sendable(context.working, datetime.now(UTC)))


@pytest.mark.anyio
async def test_nothing_is_sent_while_a_class_is_missing(store: Path) -> None:
    sessions, outside = SessionStore(store, durability="os"), Outside()
    session = await sessions.open("s")
    with pytest.raises(TypeNotFoundError, match="action 'action:notify:o1' is not sent"):
        await Runtime(session.context, [], session=session, dispatcher=outside).arun()
    report = await sessions.drain(outside)
    assert "evolving_shop.Order" in report.failed[0][2]
    assert outside.tried == []
    assert [one.id for one in (await opened(store)).pending_actions()] == ["action:notify:o1"]


GROWN = """
import sys
from datetime import UTC, datetime
import anyio
from pydantic import BaseModel
from reactifact import SessionStore, register_type
from reactifact._context.delivery import sendable
from reactifact._runtime.drain import require_readable

class Order(BaseModel):
    item: str
    price: int = 0
    currency: str

hook = (lambda payload: {**payload, "currency": "EUR"}) if sys.argv[2] == "hook" else None
register_type(Order, aliases=["evolving_shop.Order"], migrate=hook)

async def read():
    context = (await SessionStore(sys.argv[1]).open("s")).context
    try:
        require_readable(context.working, sendable(context.working, datetime.now(UTC)))
        print(context.get("o1").data.currency)
    except Exception as error:
        print(type(error).__name__, error)

anyio.run(read)
"""


def test_a_field_that_became_required_is_migrated_or_refused_before_a_send(stores: Path) -> None:
    (stores / "grown.py").write_text(GROWN)
    told = run("grown.py", "state.git", "none", path=stores)
    assert re.match(r"UnreadablePayload action 'action:notify:o1' is not sent, .* artifact 'o1': ", told)
    assert "Order.currency: Field required" in told
    assert "migrate=" in told
    assert run("grown.py", "state.git", "hook", path=stores) == "EUR\n"


def test_the_command_line_shows_what_is_stored_and_imports_nothing(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "evolving_shop.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    shown = {}
    for verb, *arguments in (
        ["sessions"],
        ["log", "--session", "s"],
        ["show", "c1", "--session", "s", "--json"],
        ["diff", "v0", "s/main", "--session", "s", "--json"],
        ["context", "--session", "s"],
        ["replay", "--session", "s"],
        ["replay", "--session", "s", "--verify-all"],
        ["outbox"],
        ["audit", "s", "receipt"],
        ["branch", "s", "save", "b"],
        ["branch", "s", "merge", "b"],
    ):
        assert main([verb, str(store), *arguments]) == 0, (verb, capsys.readouterr().err)
        shown[verb] = capsys.readouterr().out
    database = open_database(store)
    pending_sessions(database)
    database.backend.close()
    assert json.loads(shown["show"])["data"] == {"name": "Ann Lee-Jones"}
    added = {one["id"]: one for one in json.loads(shown["diff"])["artifacts"]["added"]}
    assert (added["p1"]["type"], added["p1"]["data"]) == ("evolving_shop.Parcel", {"weight": 7})
    assert added["b2"]["type"] == "evolving_shop.Box[evolving_shop.Order]"
    assert "evolving_shop" not in sys.modules
    with pytest.raises(TypeNotFoundError, match="RuntimeError: imported"):  # so it was there to be imported
        reactifact.types.resolve("evolving_shop.Customer")


# --- scripts -----------------------------------------------------------------------------------------


SCRIPT = """
import sys
import anyio
from pydantic import BaseModel
from reactifact import SessionStore

class Consignment(BaseModel):
    item: str

async def main(path):
    session = await SessionStore(path, durability="os").open("s")
    known = session.context.get("o1")
    if known is None:
        session.context.create(Consignment(item="tea"), id="o1")
        await session.save()
        print("wrote", session.context.get("o1").data_type)
    else:
        events = [event.artifact_type is Consignment for event in session.context.pending_events()]
        print("read", type(known.data) is Consignment, events)

if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
"""


@pytest.mark.parametrize(
    ("name", "started"),
    [("one.db", ["shop/script.py"]), ("two.git", ["-m", "shop.script"]), ("three.db", ["-m", "shop"])],
)
def test_models_of_a_script_are_found_by_that_script(name: str, started: list[str], tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    for file in ("__init__.py", "script.py", "__main__.py"):
        (tmp_path / "shop" / file).write_text("" if file == "__init__.py" else SCRIPT)
    assert run(*started, name, path=tmp_path) == "wrote __main__.Consignment\n"
    assert run(*started, name, path=tmp_path) == "read True [True]\n"


@pytest.mark.anyio
async def test_another_program_is_told_that_a_script_wrote_it(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    run("script.py", "state.git", path=tmp_path)
    order = live(await opened(tmp_path / "state.git"), "o1")
    with pytest.raises(TypeNotFoundError, match=r"'__main__.Consignment': it was written by a script"):
        _ = order.data


WORKERS = """
import multiprocessing
import sys
import anyio
from pydantic import BaseModel
from reactifact import SessionStore

class Order(BaseModel):
    item: str

async def write(path):
    session = await SessionStore(path, durability="os").open("s")
    session.context.create(Order(item="tea"), id="o1")
    await session.save()

async def read(path):
    return (await SessionStore(path).open("s")).context.get("o1")

def work(path):
    anyio.run(write, path)

if __name__ == "__main__":
    worker = multiprocessing.get_context("spawn").Process(target=work, args=(sys.argv[1],))
    worker.start()
    worker.join()
    order = anyio.run(read, sys.argv[1])
    print(order.data_type, type(order.data) is Order)
"""


def test_models_of_a_script_are_the_same_in_the_processes_it_starts(tmp_path: Path) -> None:
    (tmp_path / "workers.py").write_text(WORKERS)
    assert run("workers.py", "state.git", path=tmp_path) == "__main__.Order True\n"


# --- notebooks ---------------------------------------------------------------------------------------


CELLS = [
    """
import anyio
from pydantic import BaseModel, create_model
from reactifact import SessionStore

def in_store(work):
    async def run():
        session = await SessionStore("state.git", durability="os").open("s")
        result = work(session.context)
        await session.save()
        return result
    return anyio.run(run)

class Order(BaseModel):
    item: str

def local(number):
    class Local(BaseModel):
        x: int = number
    return Local
""",
    """
Made = create_model("Made", x=(int, 1))
Local = local(1)
def fill(context):
    for number in range(2):
        context.create(Order(item="tea"), id=f"o{number}")
        context.create(Local(), id=f"l{number}")
        context.create(Made(), id=f"m{number}")
in_store(fill)
print("READ", in_store(lambda context: [type(context.get(i).data) for i in ("o1", "l1", "m1")])
      == [Order, Local, Made])
""",
    """
class Order(BaseModel):
    item: str
    price: int = 7
Local, Made = local(2), create_model("Made", x=(int, 1), y=(int, 2))
def again(context):
    context.create(Local(), id="l9")
    context.create(Made(), id="m9")
    context.update("o0", Order(item="pot"))
in_store(again)
print("REBOUND", in_store(lambda context: [
    type(context.get("o1").data) is Order, context.get("o1").data.price,
    type(context.get("l0").data) is Local, context.get("m0").data.y,
]))
""",
]

NOTEBOOK = """
import json, sys
space = sys.modules["__main__"].__dict__
for number, cell in enumerate(json.loads(space.pop("source"))):
    exec(compile(cell, f"<cell {number}>", "exec"), space)
"""


def test_classes_of_a_notebook_work_where_they_were_made_and_are_warned_about_once(tmp_path: Path) -> None:
    code = f"source = {json.dumps(json.dumps(CELLS))}\n{NOTEBOOK}"
    done = subprocess.run(
        [sys.executable, "-W", "always", "-"],  # as a kernel, it has no file
        input=code,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["READ True", "REBOUND [True, 7, True, 2]"]
    warned = re.findall(r"Warning: artifacts of (\S+) are stored.*register_type\((\w+)", done.stderr)
    each = {"__main__.Order": "Order", "__main__.local.<locals>.Local": "Local", "__main__.Made": "Made"}
    assert sorted(warned) == sorted(each.items())  # each once, though each was made twice
