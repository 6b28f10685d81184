"""Commits made with real git in a clone and pushed: each becomes a generation, or is refused by name."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from support import Note, Order, Receipt, fsck, git, trigger_of

from reactifact import (
    Artifact,
    Consume,
    Context,
    PendingAction,
    ProduceCall,
    Runtime,
    SessionStore,
    create_agent,
    produce,
)
from reactifact.branching import BranchStore
from reactifact.cli import main
from reactifact.errors import CommitRefused
from reactifact.replay import verify_history

MAIN = "s/main"


@produce(Receipt, also_creates=[PendingAction], reacts_to=Order)
async def sell(call: ProduceCall) -> None:
    order = trigger_of(call)
    call.effects.upsert(Receipt(order=f"{order.data.item} for {order.data.price}"), id=f"receipt-{order.id}")
    call.effects.act("notify", key=f"notify:{order.id}", payload={"item": order.data.item})


def clerk() -> Any:
    return create_agent("clerk", consumes=[Consume(Order)], produces=[sell])


class Shop:
    """A store in which a clerk works, and a clone of it in which a person does."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "state.git"
        self.work = folder / "clone"
        self.sent: list[str] = []
        self.left = ""  # where the branch stood before it was last pushed with force

    async def deliver(self, _: Context, action: Artifact[PendingAction]) -> None:
        self.sent.append(action.data.idempotency_key)

    async def turn(self, change: Callable[[Context], Any] = lambda _: None, *, send: bool = True) -> None:
        """Open the session as a fresh process would, change it, and let the clerk work."""
        store = SessionStore(self.path, durability="os")
        try:
            async with await store.open("s") as session:
                change(session.context)
                dispatcher = self.deliver if send else None
                await Runtime(session.context, [clerk()], dispatcher=dispatcher, session=session).arun()
        finally:
            await store.aclose()

    def run(self, change: Callable[[Context], Any] = lambda _: None, *, send: bool = True) -> None:
        async def turned() -> None:
            await self.turn(change, send=send)

        anyio.run(turned)

    def state(self) -> dict[str, str]:
        """Return what the session holds, as another process reads it."""

        async def read() -> dict[str, str]:
            store = SessionStore(self.path, durability="os")
            context = await store.load_session("s")
            assert context is not None
            found = {a.id: _said(a.data) for a in context.list_artifacts() if not a.id.startswith("action:")}
            await store.aclose()
            return found

        return anyio.run(read)

    def context(self) -> Context:
        async def opened() -> Context:
            store = SessionStore(self.path, durability="os")
            context = (await store.open("s")).context
            await store.aclose()
            return context

        return anyio.run(opened)

    # -- the person ------------------------------------------------------------------------------

    def git(self, *arguments: str, text: str | None = None) -> str:
        return git(self.work, *arguments, text=text)

    def try_git(self, *arguments: str) -> int:
        return subprocess.run(
            ["git", "-C", str(self.work), *arguments], capture_output=True, check=False
        ).returncode

    def clone(self) -> None:
        git(self.path.parent, "clone", "-q", "-b", MAIN, str(self.path), str(self.work))
        self.git("config", "user.name", "Ann")
        self.git("config", "user.email", "ann@example.com")

    def file(self, artifact_id: str) -> Path:
        (found,) = self.work.glob(f"artifacts/*/*/*/*/{artifact_id}.json")
        return found

    def folder(self, model: type) -> Path:
        return self.work / "artifacts" / f"support.{model.__name__}"

    def write(self, artifact_id: str, text: str) -> None:
        self.file(artifact_id).write_text(text, encoding="utf-8", newline="")

    def commit(self, message: str = "by hand", *options: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message, *options)

    def push(self, *options: str) -> None:
        if "--force" in options:
            self.left = git(self.path, "rev-parse", MAIN).strip()
        self.git("push", "-q", *options, "origin", f"HEAD:{MAIN}")


def _said(data: Any) -> str:
    match data:
        case Order():
            return f"{data.item} {data.price}"
        case Receipt():
            return data.order
        case _:
            return str(data.text)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two orders, tea sold and its mail sent, and milk sold and its mail waiting."""
    folder = tmp_path_factory.mktemp("template")
    shop = Shop(folder)
    shop.run(lambda context: context.create(Order(item="tea", price=3), id="tea"))
    assert shop.sent == ["notify:tea"]
    shop.run(lambda context: context.create(Order(item="milk", price=1), id="milk"), send=False)
    return folder


@pytest.fixture
def shop(template: Path, tmp_path: Path) -> Shop:
    shutil.copytree(template / "state.git", tmp_path / "state.git")
    shop = Shop(tmp_path)
    shop.clone()
    return shop


START = {
    "tea": "tea 3",
    "receipt-tea": "tea for 3",
    "milk": "milk 1",
    "receipt-milk": "milk for 1",
}

# -- what a person does, and what comes of it ----------------------------------------------------------

Deed = Callable[[Shop], Any]
VALID: dict[str, tuple[Deed, dict[str, str | None], list[str]]] = {}
"""The deed; what differs from `START` then (`None`: it is gone); what was sent in the turn after."""


def valid(changes: dict[str, str | None], sent: list[str]) -> Callable[[Deed], Deed]:
    def register(deed: Deed) -> Deed:
        VALID[deed.__name__] = (deed, changes, sent)
        return deed

    return register


WAITS = ["notify:milk"]


@valid({"tea": "tea 9", "receipt-tea": "tea for 9"}, WAITS)
def edit(shop: Shop) -> None:
    shop.write("tea", shop.file("tea").read_text().replace("3", "9"))
    shop.commit()
    shop.push()


@valid({"tea": "tea 9", "receipt-tea": "tea for 9"}, WAITS)
def edit_minified_with_crlf_and_a_mark(shop: Shop) -> None:
    shop.write("tea", '\ufeff{"price":9,\r\n"item":"tea"}\r\n')
    shop.commit()
    shop.push()


@valid({}, WAITS)
def edit_of_formatting_alone(shop: Shop) -> None:
    shop.write("tea", '{"item": "tea", "price": 3, "carrier": "", "status": "open"}')
    shop.commit()
    shop.push()


@valid({"jam": "jam 4", "receipt-jam": "jam for 4"}, ["notify:milk", "notify:jam"])
def add(shop: Shop) -> None:
    (shop.folder(Order) / "jam.json").write_text('{"item": "jam", "price": 4}')
    shop.commit()
    shop.push()


@valid({"dark jam": "jam 4", "receipt-dark jam": "jam for 4"}, ["notify:milk", "notify:dark jam"])
def add_under_a_name_with_a_blank(shop: Shop) -> None:
    (shop.folder(Order) / "sweet").mkdir()
    (shop.folder(Order) / "sweet" / "dark jam.json").write_text('{"item": "jam", "price": 4}')
    shop.commit()
    shop.push()


@valid({"hello": "hello"}, WAITS)
def add_of_a_type_that_was_not_stored(shop: Shop) -> None:
    shop.folder(Note).mkdir()
    (shop.folder(Note) / "hello.json").write_text('{"text": "hello"}')
    shop.commit()
    shop.push()


@valid({"receipt-tea": None}, WAITS)
def delete(shop: Shop) -> None:
    shop.file("receipt-tea").unlink()
    shop.commit()
    shop.push()


@valid({"tea": None, "green": "tea 3", "receipt-green": "tea for 3"}, ["notify:milk", "notify:green"])
def rename(shop: Shop) -> None:
    path = shop.file("tea")
    shop.git("mv", str(path), str(path.with_name("green.json")))
    shop.commit()
    shop.push()


@valid({"receipt-tea": "a note"}, WAITS)
def change_of_type(shop: Shop) -> None:
    shop.file("receipt-tea").unlink()
    shop.folder(Note).mkdir()
    (shop.folder(Note) / "receipt-tea.json").write_text('{"text": "a note"}')
    shop.commit()
    shop.push()


@valid({}, WAITS)
def relate(shop: Shop) -> None:
    folder = shop.work / "relations"
    folder.mkdir(exist_ok=True)
    (folder / "tea.json").write_text('{"links": [{"relation": "beside", "target": "milk"}]}')
    shop.commit()
    shop.push()


@valid({"tea": "tea 9", "receipt-tea": "tea for 9"}, WAITS)
def merge_on_a_host(shop: Shop) -> None:
    shop.git("checkout", "-q", "-b", "feature")
    shop.write("tea", '{"item": "tea", "price": 9}')
    shop.commit()
    tree = git_tree_of_merge(shop, "origin/s/main", "feature")
    parents = ["-p", "origin/s/main", "-p", "feature"]
    made = shop.git("commit-tree", tree, *parents, "-m", "Merge pull request #1").strip()
    shop.git("push", "-q", "origin", f"{made}:refs/heads/{MAIN}")


def git_tree_of_merge(shop: Shop, ours: str, theirs: str) -> str:
    return shop.git("merge-tree", "--write-tree", ours, theirs).split("\n")[0]


@valid(
    {"tea": "tea 9", "receipt-tea": "tea for 9", "jam": "jam 4", "receipt-jam": "jam for 4"}, ["notify:jam"]
)
def merge_while_the_clerk_worked(shop: Shop) -> None:
    shop.write("tea", '{"item": "tea", "price": 9}')
    shop.commit()
    shop.run(lambda context: context.create(Order(item="jam", price=4), id="jam"), send=False)
    shop.run()  # sends what waits
    assert shop.sent == ["notify:milk", "notify:jam"]
    shop.sent.clear()
    shop.sent.append("notify:jam")  # it is not sent again: see the end
    shop.git("pull", "-q", "--no-rebase", "--no-edit", "origin", MAIN)
    shop.push()


@valid({"tea": "tea 7", "receipt-tea": "tea for 7"}, WAITS)
def merge_with_a_conflict_resolved(shop: Shop) -> None:
    shop.git("checkout", "-q", "-b", "feature")
    shop.write("tea", '{"item": "tea", "price": 8}')
    shop.commit()
    shop.git("checkout", "-q", "-b", "other", "origin/s/main")
    shop.write("tea", '{"item": "tea", "price": 6}')
    shop.commit()
    assert shop.try_git("merge", "feature") == 1
    shop.write("tea", '{"item": "tea", "price": 7}')
    shop.commit("both")
    shop.push()


@valid(
    {"tea": "tea 8", "receipt-tea": "tea for 8", "jam": "jam 4", "receipt-jam": "jam for 4"},
    ["notify:milk", "notify:jam"],
)
def merge_of_three(shop: Shop) -> None:
    for name, text in (("one", None), ("two", '{"item": "jam", "price": 4}')):
        shop.git("checkout", "-q", "-b", name, "origin/s/main")
        if text is None:
            shop.write("tea", '{"item": "tea", "price": 8}')
        else:
            (shop.folder(Order) / "jam.json").write_text(text)
        shop.commit(name)
    shop.git("checkout", "-q", "-b", "all", "origin/s/main")
    shop.git("merge", "-q", "-m", "octopus", "one", "two")
    shop.push()


@valid({"jam": "jam 4", "receipt-jam": "jam for 4"}, ["notify:milk", "notify:jam"])
def merge_of_a_branch_on_which_the_clerk_worked(shop: Shop) -> None:
    work_on_a_fork(shop)
    shop.git("fetch", "-q")
    shop.git("merge", "-q", "--no-ff", "-m", "take the trial", "origin/s/try")
    shop.push()


def work_on_a_fork(shop: Shop) -> None:
    async def work() -> None:
        branches = BranchStore(shop.path, durability="os")
        await branches.fork("s", "s/try")
        context = await branches.load_branch("s", "try")
        assert context is not None
        context.create(Order(item="jam", price=4), id="jam")
        await Runtime(context, [clerk()]).arun()
        await branches.save_branch(context, session_id="s", name="try")
        await branches.aclose()

    anyio.run(work)


@valid({"jam": "jam 4", "receipt-jam": "jam for 4"}, ["notify:milk", "notify:jam"])
def cherry_pick(shop: Shop) -> None:
    work_on_a_fork(shop)
    shop.git("fetch", "-q")
    shop.git("cherry-pick", "--allow-empty", "--keep-redundant-commits", "origin/s/main..origin/s/try")
    shop.push()


@valid({"receipt-milk": None}, [])
def revert_of_an_undelivered_intent(shop: Shop) -> None:
    made = shop.git("log", "-1", "--format=%H", "--grep=clerk: create Receipt receipt-milk").strip()
    shop.git("revert", "--no-edit", made)
    shop.push()


@valid({"receipt-tea": None}, WAITS)
def revert_of_a_delivered_intent(shop: Shop) -> None:
    made = shop.git("log", "-1", "--format=%H", "--grep=clerk: create Receipt receipt-tea").strip()
    if shop.try_git("revert", "--no-edit", made):
        shop.git("rm", "-rq", "--ignore-unmatch", "outbox")
        shop.git("-c", "core.editor=true", "revert", "--continue")
    shop.push()


@valid(
    {"tea": "tea 9", "receipt-tea": "tea for 9", "jam": "jam 4", "receipt-jam": "jam for 4"}, ["notify:jam"]
)
def rebase(shop: Shop) -> None:
    shop.write("tea", '{"item": "tea", "price": 9}')
    shop.commit()
    shop.run(lambda context: context.create(Order(item="jam", price=4), id="jam"))
    shop.sent[:] = ["notify:jam"]
    shop.git("pull", "-q", "--rebase", "origin", MAIN)
    shop.push()


@valid({"tea": "tea 9", "receipt-tea": "tea for 9"}, WAITS)
def am(shop: Shop) -> None:
    shop.write("tea", '{"item": "tea", "price": 9}')
    shop.commit()
    patch = shop.git("format-patch", "--stdout", "--binary", "-1")
    shop.git("reset", "-q", "--hard", "origin/s/main")
    shop.git("am", "-q", text=patch)
    shop.push()


@valid({}, WAITS)
def amend_of_the_message(shop: Shop) -> None:
    shop.git("commit", "-q", "--amend", "-m", "said better")
    shop.push("--force")


@valid({"milk": "milk 5", "receipt-milk": "milk for 5"}, WAITS)
def amend_of_a_payload(shop: Shop) -> None:
    shop.write("milk", '{"item": "milk", "price": 5}')
    shop.commit("more for milk", "--amend")
    shop.push("--force")


@valid({}, WAITS)
def amend_that_takes_an_intent_away(shop: Shop) -> None:
    shop.git("rm", "-rq", "outbox")
    shop.commit("quiet", "--amend")
    shop.push("--force")


@valid(
    {"tea": "tea 9", "receipt-tea": "tea for 9", "jam": "jam 4", "receipt-jam": "jam for 4"},
    ["notify:milk", "notify:jam"],
)
def squash(shop: Shop) -> None:
    shop.git("checkout", "-q", "-b", "feature")
    shop.write("tea", '{"item": "tea", "price": 9}')
    shop.commit("one")
    (shop.folder(Order) / "jam.json").write_text('{"item": "jam", "price": 4}')
    shop.commit("two")
    shop.git("checkout", "-q", MAIN)
    shop.git("merge", "-q", "--squash", "feature")
    shop.commit("both")
    shop.push()


@valid({"tea": "tea 9", "receipt-tea": "tea for 9"}, WAITS)
def fixup(shop: Shop) -> None:
    shop.write("tea", '{"item": "tea", "price": 8}')
    shop.commit("nearly")
    shop.write("tea", '{"item": "tea", "price": 9}')
    shop.commit("fixup! nearly")
    shop.git("-c", "sequence.editor=true", "rebase", "-q", "-i", "--autosquash", "HEAD~2")
    shop.push()


@valid({"tea": "tea 9", "receipt-tea": "tea for 9"}, WAITS)
def fast_import(shop: Shop) -> None:
    name = shop.file("tea").relative_to(shop.work)
    payload = '{"item": "tea", "price": 9}'
    shop.git(
        "fast-import",
        "--quiet",
        "--force",
        text=f"commit refs/heads/imported\ncommitter Ann <ann@example.com> 1700000000 +0000\n"
        f"data 8\nimported\nfrom refs/heads/s/main^0\n"
        f"M 100644 inline {name}\ndata {len(payload)}\n{payload}\n\n",
    )
    shop.git("push", "-q", "origin", f"imported:{MAIN}")


@valid({"receipt-tea": "tea for 3"}, WAITS)
def filter_branch(shop: Shop) -> None:
    environment = {**os.environ, "FILTER_BRANCH_SQUELCH_WARNING": "1"}
    subprocess.run(
        ["git", "-C", str(shop.work), "filter-branch", "-f", "--msg-filter", "sed s/clerk/Clerk/", "HEAD"],
        check=True,
        capture_output=True,
        env=environment,
    )
    shop.push("--force")


@valid({}, WAITS)
def commit_of_nothing(shop: Shop) -> None:
    shop.git("commit", "-q", "--allow-empty", "-m", "to start a build")
    shop.push()


@valid({"milk": "milk 5", "receipt-milk": "milk for 5"}, WAITS)
def amend_of_an_adoption(shop: Shop) -> None:
    commit_of_nothing(shop)
    shop.run()
    shop.git("fetch", "-q")
    shop.git("reset", "-q", "--hard", f"origin/{MAIN}")
    assert shop.git("log", "-1", "--format=%s").startswith("adopt ")
    shop.write("milk", '{"item": "milk", "price": 5}')
    shop.commit("more for milk", "--amend")
    shop.push("--force")


@valid({}, WAITS)
def bookkeeping_made_a_mess_of(shop: Shop) -> None:
    for path in (shop.work / ".reactifact" / "meta").rglob("*.json"):
        path.write_text("<<<<<<< ours\n{}\n=======\n>>>>>>> theirs\n")
    shutil.rmtree(shop.work / "outbox")
    (shop.work / ".gitattributes").write_text("")
    shop.commit()
    shop.push()


@valid({"tea": "tea 9", "receipt-tea": "tea for 9"}, WAITS)
def bookkeeping_deleted(shop: Shop) -> None:
    shutil.rmtree(shop.work / ".reactifact")
    shop.write("tea", '{"item": "tea", "price": 9}')
    shop.commit()
    shop.push()


@valid({"tea": "tea 9", "receipt-tea": "tea for 9"}, WAITS)
def reset_of_a_commit_and_another(shop: Shop) -> None:
    shop.write("tea", '{"item": "tea", "price": 8}')
    shop.commit("wrong")
    shop.push()
    assert shop.state()["tea"] == "tea 8"  # adopted in memory, and not written
    shop.git("reset", "-q", "--hard", "HEAD~1")
    shop.write("tea", '{"item": "tea", "price": 9}')
    shop.commit("right")
    shop.push("--force")


@valid({"action:notify:milk": None}, [])
def an_intent_taken_back(shop: Shop) -> None:
    (path,) = shop.work.glob("artifacts/*PendingAction/*/*/*/action%3Anotify%3Amilk.json")
    path.unlink()
    shop.commit("do not tell")
    shop.push()


@valid({}, ["notify:milk", "greet:1"])
def an_intent_of_a_person(shop: Shop) -> None:
    (folder,) = shop.work.glob("artifacts/*PendingAction")
    (folder / "action%3Agreet%3A1.json").write_text(
        '{"kind": "greet", "idempotency_key": "greet:1", "payload": {"to": "Bo"}}'
    )
    shop.commit("greet")
    shop.push()


@pytest.mark.parametrize("name", VALID)
def test_what_git_wrote_is_a_generation(shop: Shop, name: str) -> None:
    deed, changes, sent = VALID[name]
    deed(shop)
    before = git(shop.path, "rev-parse", MAIN).strip()
    told, shop.sent = shop.sent, []
    shop.run()
    assert [*told, *shop.sent] == sent
    expected = {**START, **changes}
    assert shop.state() == {key: text for key, text in expected.items() if text is not None}
    fsck(shop.path)
    # what the person pushed is still the history, and says who it was
    git(shop.path, "merge-base", "--is-ancestor", before, MAIN)
    report = verify_history(BranchStore(shop.path).database, "s")
    assert report.ok, report
    # a second opening has nothing to adopt, and a second turn nothing to do
    shop.sent.clear()
    head = git(shop.path, "rev-parse", MAIN).strip()
    shop.run()
    assert (shop.sent, git(shop.path, "rev-parse", MAIN).strip()) == ([], head)


REWRITTEN = (
    *("amend_of_the_message", "amend_of_a_payload", "amend_that_takes_an_intent_away"),
    *("filter_branch", "reset_of_a_commit_and_another"),
)


@pytest.mark.parametrize("name", REWRITTEN)
def test_a_history_that_git_wrote_anew_is_gone_back_from_and_to(shop: Shop, name: str) -> None:
    VALID[name][0](shop)
    pushed = git(shop.path, "rev-parse", MAIN).strip()
    # what was dropped is held before anybody of ours has looked, and afterwards until a prune
    git(shop.path, "gc", "-q", "--prune=now")
    shop.run()
    before, shop.sent = shop.sent, []
    branches = BranchStore(shop.path, durability="os")

    def undone() -> str:
        return anyio.run(branches.undo, "s")

    told = undone()
    while "with git" not in told:  # what the clerk did about it
        told = undone()
    assert told == f"the move of s/main with git from {shop.left[:12]} to {pushed[:12]}"
    assert git(shop.path, "rev-parse", MAIN).strip() == shop.left
    assert anyio.run(branches.redo, "s") == told
    assert git(shop.path, "merge-base", pushed, MAIN).strip() == pushed
    assert undone() == told
    shop.run()
    assert len({*before, *shop.sent}) == len([*before, *shop.sent])  # nothing is sent twice
    fsck(shop.path)
    anyio.run(partial(SessionStore(shop.path, durability="os").prune, grace=0))
    git(shop.path, "gc", "-q", "--prune=now")
    assert subprocess.run(["git", "-C", str(shop.path), "cat-file", "-e", pushed], check=False).returncode
    shop.state()
    fsck(shop.path)


def test_a_branch_that_git_set_back_to_a_commit_of_ours_is_gone_back_from(shop: Shop) -> None:
    shop.run(lambda context: context.create(Order(item="jam", price=4), id="jam"))
    left = git(shop.path, "rev-parse", MAIN).strip()
    shop.push("--force")  # the clone has not heard of jam
    assert "jam" not in shop.state()
    branches = BranchStore(shop.path, durability="os")
    assert "with git" in anyio.run(branches.undo, "s")
    assert git(shop.path, "rev-parse", MAIN).strip() == left
    assert shop.state()["jam"] == "jam 4"
    assert shop.sent == [*WAITS, "notify:jam"]
    assert "with git" in anyio.run(branches.redo, "s")
    assert "jam" not in shop.state()
    shop.run(lambda context: context.create(Note(text="on it goes"), id="note"))
    assert "direct changes came after it" not in anyio.run(branches.undo, "s")


def test_each_forced_push_before_an_adoption_is_a_move_of_its_own(shop: Shop) -> None:
    start = git(shop.path, "rev-parse", MAIN).strip()
    for price in (7, 8):
        shop.git("commit", "-q", "--amend", "-m", f"price {price}")
        shop.push("--force")
        shop.write("tea", f'{{"item": "tea", "price": {price}}}')
        shop.commit(f"tea {price}")
        shop.push()
    branches = BranchStore(shop.path, durability="os")
    assert shop.state()["tea"] == "tea 8"
    anyio.run(branches.undo, "s")
    assert shop.state()["tea"] == "tea 7"
    anyio.run(branches.undo, "s")
    assert shop.state() == START
    assert git(shop.path, "rev-parse", MAIN).strip() == start
    for price in (7, 8):
        anyio.run(branches.redo, "s")
        assert shop.state()["tea"] == f"tea {price}"


def test_a_version_says_who_wrote_it_and_the_ones_before_are_kept(shop: Shop) -> None:
    edit(shop)
    context = shop.context()
    tea = context.get("tea")
    assert tea is not None
    assert (tea.version, [order.price for order in tea.history]) == (1, [3])
    assert tea.data.price == 9
    commit = context.history()[-1]
    assert commit.author == "Ann <ann@example.com>"
    assert [(write.artifact_id, write.op_type) for write in commit.writes] == [("tea", "update")]
    assert git(shop.path, "log", "-1", "--format=%an", MAIN).strip() == "Ann"


def test_a_link_made_with_git_is_a_relation(shop: Shop) -> None:
    relate(shop)
    (found,) = shop.context().relations("tea")
    assert (found.relation, found.target_id) == ("beside", "milk")


# -- what is refused -----------------------------------------------------------------------------------

INVALID: dict[str, tuple[Deed, str]] = {}


def invalid(match: str) -> Callable[[Deed], Deed]:
    def register(deed: Deed) -> Deed:
        INVALID[deed.__name__] = (deed, match)
        return deed

    return register


@invalid(r"artifacts/support\.Order/\w/\w/\w/tea\.json:3: it is not JSON")
def broken_json(shop: Shop) -> None:
    shop.write("tea", '{\n"item": "tea",\n"price": ,\n}')


@invalid(r"tea\.json:2: a conflict was left open: '<<<<<<< ")
def marks_of_a_conflict(shop: Shop) -> None:
    shop.write("tea", '{\n<<<<<<< HEAD\n"item": "tea"\n=======\n"item": "green"\n>>>>>>> x\n}')


@invalid(r"tea\.json:3: price: Input should be a valid integer")
def value_of_a_wrong_type(shop: Shop) -> None:
    shop.write("tea", '{\n"item": "tea",\n"price": "much"}')


@invalid(r"tea\.json: item: Field required")
def field_that_is_absent(shop: Shop) -> None:
    shop.write("tea", '{"price": 3}')


@invalid(r"tea\.json:1: prize: Order declares no such field")
def field_that_is_not_declared(shop: Shop) -> None:
    shop.write("tea", '{"item": "tea", "prize": 3}')


@invalid(r"tea\.json: 'item' stands twice in one object|tea\.json:1: item: 'item' stands twice")
def field_that_stands_twice(shop: Shop) -> None:
    shop.write("tea", '{"item": "tea", "item": "green"}')


@invalid(r"artifacts/shop\.Unknown/x\.json: there is no type 'shop\.Unknown'")
def type_that_is_unknown(shop: Shop) -> None:
    (shop.work / "artifacts" / "shop.Unknown").mkdir()
    (shop.work / "artifacts" / "shop.Unknown" / "x.json").write_text("{}")


@invalid(r"artifact 'tea' stands in 2 files")
def two_files_of_one_artifact(shop: Shop) -> None:
    (shop.folder(Order) / "tea.json").write_text('{"item": "tea"}')


@invalid(r"artifact 'tea' stands in 2 files")
def one_id_under_two_types(shop: Shop) -> None:
    (shop.folder(Receipt) / "tea.json").write_text('{"order": "tea"}')


@invalid(r"tea\.json: it is a link or a submodule")
def symbolic_link(shop: Shop) -> None:
    path = shop.file("tea")
    path.unlink()
    path.symlink_to("/etc/passwd")


@invalid(r"README\.md: it is not part of a state")
def file_at_the_top(shop: Shop) -> None:
    (shop.work / "README.md").write_text("hello")


@invalid(r"notes\.txt: the file of an artifact is called <id>\.json")
def file_of_another_kind(shop: Shop) -> None:
    (shop.folder(Order) / "notes.txt").write_text("hello")


@invalid(r"tea\.json:1: it is not UTF-8")
def text_in_utf16(shop: Shop) -> None:
    shop.file("tea").write_bytes('{"item": "tea"}'.encode("utf-16"))


@invalid(r"notify%3Atea\.json:\d+: idempotency_key: this action was delivered with another payload")
def payload_of_a_delivered_action(shop: Shop) -> None:
    (path,) = shop.work.glob("artifacts/*PendingAction/*/*/*/action%3Anotify%3Atea.json")
    path.write_text(path.read_text().replace('"tea"', '"green"'))


@invalid(r"action%3Agreet\.json:\d+: idempotency_key: the id of an action is `action:` and its key")
def action_under_another_name(shop: Shop) -> None:
    (folder,) = shop.work.glob("artifacts/*PendingAction")
    (folder / "action%3Agreet.json").write_text('{"kind": "greet", "idempotency_key": "greet:1"}')


@invalid(r"relations/tea\.json:\d+: links\[0\]\.target: link 1 names no target")
def relation_without_an_end(shop: Shop) -> None:
    (shop.work / "relations").mkdir(exist_ok=True)
    (shop.work / "relations" / "tea.json").write_text('{"links": [{"relation": "beside"}]}')


@pytest.mark.parametrize("name", INVALID)
def test_what_is_not_a_state_is_refused_by_name(
    shop: Shop, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    deed, match = INVALID[name]
    good = git(shop.path, "rev-parse", MAIN).strip()
    deed(shop)
    shop.commit("wrong")
    shop.push()
    made = git(shop.path, "rev-parse", MAIN).strip()
    with pytest.raises(CommitRefused, match=match) as refused:
        shop.context()
    assert (refused.value.commit, refused.value.last_good) == (made, good)
    assert refused.value.problems[0].commit == made
    assert git(shop.path, "rev-parse", MAIN).strip() == made  # nothing was moved
    # it can be read where it was good, and that is said
    assert main(["show", str(shop.path), "tea", "--session", "s"]) == 0
    shown = capsys.readouterr()
    assert '"price": 3' in shown.out
    assert good[:12] in shown.err
    # going back
    assert main(["reject", str(shop.path), MAIN]) == 0
    assert git(shop.path, "rev-parse", MAIN).strip() == good
    assert git(shop.path, "rev-parse", f"refs/reactifact/rejected/{MAIN}/{made[:12]}").strip() == made
    shop.run()
    assert shop.state() == START
    assert shop.sent == WAITS


def test_a_refused_commit_that_is_mended_is_adopted(shop: Shop) -> None:
    shop.write("tea", "{")
    shop.commit("wrong")
    shop.push()
    with pytest.raises(CommitRefused):
        shop.context()
    shop.write("tea", '{"item": "tea", "price": 9}')
    shop.commit("mended")
    shop.push()
    shop.run()
    assert shop.state() == {**START, "tea": "tea 9", "receipt-tea": "tea for 9"}


def test_a_refused_branch_does_not_touch_another(shop: Shop) -> None:
    work_on_a_fork(shop)
    shop.write("tea", "{")
    shop.commit("wrong")
    shop.push()

    async def read() -> Any:
        branches = BranchStore(shop.path, durability="os")
        context = await branches.load_branch("s", "try")
        await branches.aclose()
        assert context is not None
        return context.get("jam")

    assert anyio.run(read) is not None


def test_a_push_to_a_live_session_is_taken_in_before_its_next_turn(shop: Shop) -> None:
    async def live() -> None:
        store = SessionStore(shop.path, durability="os")
        async with await store.open("s") as session:
            runtime = Runtime(session.context, [clerk()], dispatcher=shop.deliver, session=session)
            await runtime.arun()
            await anyio.to_thread.run_sync(push_an_edit, shop)
            session.context.create(Order(item="jam", price=4), id="jam")  # not saved when the turn begins
            await runtime.arun()
        await store.aclose()

    def push_an_edit(shop: Shop) -> None:
        shop.git("pull", "-q", "--rebase", "origin", MAIN)
        edit(shop)

    anyio.run(live)
    assert shop.state() == {
        **START,
        "tea": "tea 9",
        "receipt-tea": "tea for 9",
        "jam": "jam 4",
        "receipt-jam": "jam for 4",
    }
    assert shop.sent == ["notify:milk", "notify:jam"]
