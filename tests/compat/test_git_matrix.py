"""Every line of `docs/git.md`, run with the real git on a store that is written meanwhile."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from support import Note, fsck, git

from reactifact import SessionStore
from reactifact.branching import BranchStore

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "git.md"

VERBS = """
    log|log .*-- '|log .*--author|log --graph|show|diff|diff --stat|blame|bisect .*bisect run|grep|branch|tag
    |merge-base|archive|clone|clone .*--depth|fetch|bundle|worktree add --detach|notes|fsck|gc|repack
    |interpret-trailers
"""

PACKS_WENT = re.compile(r"(error: packfile \S+ index not opened\n)+")


@dataclass
class Shop:
    """The store of the trading child, and a folder beside it."""

    path: Path
    out: Path

    def run(self, command: str) -> str:
        """Run a line of the page in the store's folder and return what it prints.

        As the page says, fsck is run again where it met packs that were just being merged.
        """
        while True:
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=self.path,
                env={**os.environ, "OUT": str(self.out), "GIT_PAGER": "cat"},
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
            if not (command.startswith("git fsck") and PACKS_WENT.fullmatch(done.stderr)):
                break
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def commits(self) -> int:
        return int(git(self.path, "rev-list", "--count", "shop/main"))


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("matrix")
    (folder / "out").mkdir()
    child = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("matrix_child.py")), str(folder / "state.git")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "ready\n"
        yield Shop(folder / "state.git", folder / "out")
        assert child.poll() is None, "the shop closed before the last line was run"
    finally:
        child.stdin.close()
        child.stdout.close()
        assert child.wait(timeout=60) == 0


Check = Callable[[Shop, str], None]
CHECKS: dict[str, Check] = {}


def line(beginning: str) -> Callable[[Check], Check]:
    """Register what the output of the one line of the page that begins so must be."""

    def register(check: Check) -> Check:
        CHECKS[beginning] = check
        return check

    return register


def commands() -> list[str]:
    """Return the commands of the page's first table."""
    text = PAGE.read_text().partition("## What works")[2].partition("\n## ")[0]
    found = re.findall(r"^\| `(git .*)` \| .+ \|$", text, re.MULTILINE)
    return [command.replace("\\|", "|") for command in found]


def check_of(command: str) -> Check:
    fitting = [beginning for beginning in CHECKS if command.startswith(beginning)]
    assert fitting, f"docs/git.md has a line without a test: {command}"
    return CHECKS[max(fitting, key=len)]


# -- what each line must show ----------------------------------------------------------------------


@line("git log --oneline shop/start")
def _(shop: Shop, out: str) -> None:
    assert "clerk: create Receipt receipt-order-12 and 2 more" in out
    assert out.count("bookkeeper: ") == 12
    assert out.splitlines()[-1].endswith("Begin session shop")


@line("git log --oneline shop/start --")
def _(shop: Shop, out: str) -> None:
    assert len(out.splitlines()) == 12
    assert all("Till till" in row for row in out.splitlines())


@line("git log --oneline --author")
def _(shop: Shop, out: str) -> None:
    assert len(out.splitlines()) == 12
    assert all(" clerk: create Receipt" in row for row in out.splitlines())


@line("git log --graph")
def _(shop: Shop, out: str) -> None:
    assert "half price" in out
    assert "delivered notify:order-1" in out
    assert re.search(r"^\|/", out, re.MULTILINE)


@line("git log --oneline shop/%outbox")
def _(shop: Shop, out: str) -> None:
    sent = re.findall(r"delivered notify:order-(\d+)$", out, re.MULTILINE)
    assert [int(number) for number in sent] == list(range(len(sent), 0, -1))
    assert len(sent) >= 12


@line("git show")
def _(shop: Shop, out: str) -> None:
    assert "Author: bookkeeper <agent@reactifact.invalid>" in out
    assert "Trigger: artifact_created receipt-order-12" in out
    assert re.search(r'^\+  "orders": 12,$', out, re.MULTILINE)
    assert ".reactifact" not in out


@line("git diff shop/start shop/sale")
def _(shop: Shop, out: str) -> None:
    assert re.search(r'^-  "price": 11$\n^\+  "price": 5$', out, re.MULTILINE)
    assert ".reactifact" not in out
    assert "Binary" not in out


@line("git diff --stat")
def _(shop: Shop, out: str) -> None:
    named = set(re.findall(r"/([^/]+)\.json", out))
    found = anyio.run(lambda: BranchStore(shop.path).diff("shop/start", "shop/sale"))
    assert named == set(found.artifact_ids) == {"order-1", "order-2"}


@line("git blame")
def _(shop: Shop, out: str) -> None:
    writers = {field: agent for agent, field in re.findall(r"\((\w+) .*\) +\"(\w+)\"", out)}
    assert writers == {"orders": "bookkeeper", "total": "bookkeeper"}


@line("git bisect start")
def _(shop: Shop, out: str) -> None:
    first = re.search(r"^([0-9a-f]{40}) is the first bad commit$", out, re.MULTILINE)
    assert first is not None
    broken = git(shop.path, "show", f"{first[1]}:{till(shop)}")
    assert '"orders": 7' not in broken
    assert '"orders": 8' in broken


@line("git grep")
def _(shop: Shop, out: str) -> None:
    assert re.fullmatch(r"shop/start:artifacts/\S+/order-7\.json:\d+: +\"item\": \"tea 7\",\n", out)


@line("git branch --list")
def _(shop: Shop, out: str) -> None:
    assert [row.strip("*+ ") for row in out.splitlines()] == ["shop/%outbox", "shop/main", "shop/sale"]


@line("git branch --contains")
def _(shop: Shop, out: str) -> None:
    assert [row.strip("*+ ") for row in out.splitlines()] == ["shop/main", "shop/sale"]


@line("git tag --list")
def _(shop: Shop, out: str) -> None:
    assert out.split() == ["shop/good", "shop/start"]


@line("git tag audited")
def _(shop: Shop, out: str) -> None:
    assert git(shop.path, "rev-parse", "audited") == git(shop.path, "rev-parse", "shop/start")
    known = anyio.run(BranchStore(shop.path).tags)
    assert [tag.name for tag in known] == ["good", "start"]


@line("git merge-base")
def _(shop: Shop, out: str) -> None:
    assert out == git(shop.path, "rev-parse", "shop/start")


@line("git archive")
def _(shop: Shop, out: str) -> None:
    (order,) = shop.out.glob("artifacts/*/*/*/*/order-3.json")
    assert '"item": "tea 3"' in order.read_text()


@line("git clone -q --bare")
def _(shop: Shop, out: str) -> None:
    clone = shop.out / "clone.git"
    fsck(clone)
    context = anyio.run(SessionStore(clone).load_session, "shop")
    assert context is not None
    assert context.version >= 24


@line("git clone -q --depth 1")
def _(shop: Shop, out: str) -> None:
    assert git(shop.out / "shallow", "rev-list", "--count", "HEAD") == "1\n"
    assert len(list((shop.out / "shallow").glob("artifacts/*/*/*/*/order-3.json"))) == 1


@line('git -C "$OUT/clone.git" fetch')
def _(shop: Shop, out: str) -> None:
    clone = shop.out / "clone.git"
    fsck(clone)
    newest = git(clone, "rev-parse", "shop/main").strip()
    git(shop.path, "merge-base", "--is-ancestor", newest, "shop/main")


@line('git -C "$OUT/clone.git" bundle')
def _(shop: Shop, out: str) -> None:
    git(shop.out, "clone", "-q", "--bare", "shop.bundle", "unbundled.git")
    fsck(shop.out / "unbundled.git")
    assert {"shop/good", "shop/start"} <= set(git(shop.out / "unbundled.git", "tag").split())


@line("git worktree add")
def _(shop: Shop, out: str) -> None:
    look = shop.out / "look"
    until_more(shop)
    assert git(look, "status", "--porcelain") == ""
    assert len(list(look.glob("artifacts/*/*/*/*/till.json"))) == 1
    git(shop.path, "worktree", "remove", str(look))


@line("git notes")
def _(shop: Shop, out: str) -> None:
    assert git(shop.path, "log", "-1", "--format=%N", "shop/start").strip() == "looked at"


@line("git fsck")
def _(shop: Shop, out: str) -> None:
    assert out == ""


@line("git gc")
def _(shop: Shop, out: str) -> None:
    until_more(shop)
    assert shop.run("git fsck --strict --no-dangling --no-progress") == ""


@line("git repack")
def _(shop: Shop, out: str) -> None:
    until_more(shop)
    assert shop.run("git fsck --strict --no-dangling --no-progress") == ""


@line("git repack -a -d -f")
def _(shop: Shop, out: str) -> None:
    until_more(shop)
    assert shop.run("git fsck --strict --no-dangling --no-progress") == ""
    packed = shop.run("git count-objects -v")
    assert "count: 0\n" in packed  # nothing lies loose beside


@line("git cat-file commit shop/start")
def _(shop: Shop, out: str) -> None:
    (record,) = [row for row in out.partition("\n\n")[0].split("\n") if row.startswith("reactifact ")]
    assert json.loads(record.removeprefix("reactifact "))["session"] == "shop"


@line("git log -1 --format=%B")
def _(shop: Shop, out: str) -> None:
    keys = [row.partition(": ")[0] for row in out.splitlines()]
    assert set(keys) == {"Agent", "Trigger", "Run"}


def till(shop: Shop) -> str:
    names = git(shop.path, "ls-tree", "-r", "--name-only", "shop/start", "artifacts")
    return next(name for name in names.splitlines() if name.endswith("/till.json"))


def until_more(shop: Shop) -> None:
    """Wait until the shop has written on: whatever git did meanwhile did not stop it."""
    before = shop.commits()
    while shop.commits() == before:
        pass


# -- the tests -------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", commands())
def test_a_line_of_the_page(command: str, shop: Shop) -> None:
    if 'git -C "$OUT/clone.git"' in command and not (shop.out / "clone.git").exists():
        shop.run('git clone -q --bare . "$OUT/clone.git"')
    check_of(command)(shop, shop.run(command))


def test_the_page_and_the_tests_agree() -> None:
    written = commands()
    assert len(written) == len(set(written))
    used = [check_of(command) for command in written]
    assert len(used) == len(set(map(id, used))), "two lines share one test"
    assert len(used) == len(CHECKS), "a test has no line on the page"
    for verb in "".join(VERBS.split("\n")).split("|"):
        pattern = re.compile(rf"git (-C \S+ )?{verb.strip()}")
        assert any(pattern.search(command) for command in written), f"the page lacks {verb.strip()}"


# -- what not to do by hand ------------------------------------------------------------------------


@pytest.fixture
def forked(tmp_path: Path) -> Path:
    """A store with two branches that each changed one field of one artifact, and nothing else."""
    path = tmp_path / "state.git"

    async def make() -> None:
        branches = BranchStore(path, durability="os")
        async with branches.edit("s") as context:
            context.create(Note(text="a", count=1), id="n")
        await branches.fork("s", "s/try")
        async with branches.edit("s", "try") as context:
            context.update("n", Note(text="a", count=2))
        async with branches.edit("s") as context:
            context.update("n", Note(text="b", count=1))

    anyio.run(make)
    return path


def by_hand(work: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(work), *arguments], capture_output=True, text=True, check=False)


def test_a_merge_by_git_without_our_driver_conflicts_in_payloads_alone(forked: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    git(forked, "worktree", "add", str(work), "s/main")
    merged = by_hand(work, "merge", "s/try")
    assert merged.returncode == 1
    conflicts = re.findall(r"^CONFLICT .* in (.*)$", merged.stdout, re.MULTILINE)
    assert len(conflicts) == 1
    assert re.fullmatch(r"artifacts/.*/n\.json", conflicts[0])
    (note,) = work.glob("artifacts/*/*/*/*/n.json")
    assert '"text": "b"' in note.read_text()  # ours, whole: no field of theirs and no marker in it
    assert '"count": 1' in note.read_text()

    git(work, "add", "-A")
    git(work, "commit", "-m", "Merge by hand")
    git(forked, "worktree", "remove", "--force", str(work))
    context = anyio.run(SessionStore(forked).load_session, "s")
    assert context is not None
    assert context.get("n").data == Note(text="b", count=1)  # type: ignore[union-attr]


@pytest.mark.parametrize("amend", [False, True], ids=["commit", "amend"])
def test_a_change_made_in_a_worktree_is_adopted(amend: bool, forked: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    git(forked, "worktree", "add", str(work), "s/main")
    (note,) = work.glob("artifacts/*/*/*/*/n.json")
    note.write_text(note.read_text().replace('"b"', '"c"'))
    git(work, "commit", "-a", *(["--amend", "--no-edit"] if amend else ["-m", "by hand"]))
    context = anyio.run(SessionStore(forked).load_session, "s")
    assert context is not None
    assert context.get("n").data.text == "c"  # type: ignore[union-attr]


def test_a_worktree_on_a_live_branch_shows_the_next_commit_as_undone(forked: Path, tmp_path: Path) -> None:
    git(forked, "worktree", "add", str(tmp_path / "live"), "s/main")
    git(forked, "worktree", "add", "--detach", str(tmp_path / "look"), "s/main")

    async def write() -> None:
        async with BranchStore(forked, durability="os").edit("s") as context:
            context.create(Note(text="new"), id="fresh")

    anyio.run(write)
    assert re.search(
        r"^D  artifacts/\S+/fresh\.json$", git(tmp_path / "live", "status", "--porcelain"), re.MULTILINE
    )
    assert git(tmp_path / "look", "status", "--porcelain") == ""
