"""Two machines on one PostgreSQL store: whichever is killed, and whenever, each order ends with one mail."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner, Result
from orders_support import ROOT, addressees, fsck, read_mails, row, write_orders

from examples.two_machines.main import main
from examples.two_machines.moments import Moment
from reactifact.transfer import export_store

ORDERS = 24
QUICK = ("a@sent", "b@deciding")

NAMED = [f"{machine}@{moment}" for machine in "ab" for moment in Moment]
BY_MAILS = [
    f"{machine}@{number}" for machine in "ab" for number in random.Random(1).sample(range(ORDERS - 4), 5)
]
KILLS = [
    pytest.param(kill, marks=[] if kill in QUICK else [pytest.mark.full], id=kill)
    for kill in (*NAMED, *BY_MAILS)
]


class Place:
    """A database, a file of orders, and where the mails go."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.dsn = dsn
        self.orders = write_orders(folder / "orders.csv", [row(n) for n in range(ORDERS)])
        self.state = folder / "state"
        self.copy = folder / "copy.git"

    def run(self, *more: str) -> Result:
        """Run the coordinator in this process; the machines are processes of their own."""
        arguments = ["--store", self.dsn, "--orders", str(self.orders), *more]
        result = CliRunner().invoke(main, arguments)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def run_on(self, *more: str) -> Result:
        """Run with a maildir that is kept."""
        return self.run("--mails", f"{self.state}.mails", *more)

    def git(self, *arguments: str) -> list[str]:
        command = ["git", "-C", str(self.copy), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    def check(self) -> None:
        """One mail an order, one recorded delivery an order, and a history git finds no fault with."""
        assert addressees(read_mails(self.state)) == {f"zoe.{n}@example.com": 1 for n in range(ORDERS)}
        anyio.run(export_store, self.dsn, self.copy)
        assert not fsck(self.copy)
        refs = self.git("for-each-ref", "--format=%(refname:short)", "refs/heads/")
        lines = {f"order-A-{n}/{line}" for n in range(ORDERS) for line in ("main", "%outbox")}
        assert set(refs) == lines | {"orders/main"}
        for n in range(ORDERS):
            assert self.git("log", "--format=%s", f"order-A-{n}/%outbox") == [f"delivered notify:A-{n}"]


def repeats(done: Result) -> int:
    """Return how many mails the server was sent again and dropped."""
    found = re.search(r"(\d+) repeats dropped", done.stdout)
    assert found is not None
    return int(found[1])


@pytest.fixture
def place(tmp_path: Path, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(ROOT)  # where `python -m examples...` is found
    return Place(tmp_path, postgres_dsn)


@pytest.mark.parametrize("kill", KILLS)
def test_one_is_killed_and_each_order_has_one_mail(
    place: Place, kill: str, capfd: pytest.CaptureFixture[str]
) -> None:
    done = place.run_on("--kill", kill)
    assert done.exit_code == 0, done.output
    assert f"killed     machine {kill[0]}" in done.stdout
    assert f"orders     {ORDERS}, of them {ORDERS} with one mail each\n" in done.stdout
    assert f"mailbox    {ORDERS} mails, " in done.stdout
    assert "waiting    0 sessions" in done.stdout
    moment = kill.partition("@")[2]
    if moment in list(Moment):
        assert repeats(done) == (moment == Moment.SENT)
    else:
        assert repeats(done) <= 1  # each delivery is recorded before the next one is made
    told = capfd.readouterr().err  # of the machines
    took_over = f"machine {'b' if kill[0] == 'a' else 'a'}  goes on with order"
    if moment in (Moment.CLAIMED, Moment.RECORDED):  # nothing of the order was stored, or all of it
        assert "goes on with" not in told
    if moment in (Moment.DECIDING, Moment.DECIDED, Moment.SENT):
        assert told.count(took_over) == 1
    place.check()


def test_both_are_killed_and_a_second_run_ends_what_is_left(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    first = place.run_on("--kill", "a@sent", "--kill", "b@decided")
    assert first.exit_code == 1
    assert "orders without exactly one mail: " in first.stderr
    assert "sessions with something to send: " in first.stderr
    without_its_mails = place.run()
    assert without_its_mails.exit_code == 2
    assert "earlier run" in without_its_mails.stderr
    capfd.readouterr()
    second = place.run_on("--kill", "a@2000")
    assert "delivers what waited: " in capfd.readouterr().err
    assert second.exit_code == 1
    assert "machine a was not killed" in second.stderr
    assert f"orders     {ORDERS}, of them {ORDERS} with one mail each\n" in second.stdout
    # one was sent twice, whether the other machine sent it again before its own end or the second run did
    assert repeats(first) + repeats(second) == 1
    place.check()


def test_without_a_store_it_says_how_to_get_one() -> None:
    done = CliRunner().invoke(main, [])
    assert done.exit_code == 2
    assert "--store postgresql://" in done.output
    assert "initdb" in done.output


@pytest.mark.parametrize("kill", ["c@sent", "a@sometime", "a", "a@-1", "@3"])
def test_a_kill_that_makes_no_sense_is_refused(kill: str) -> None:
    done = CliRunner().invoke(main, ["--store", "postgresql://nowhere", "--kill", kill])
    assert done.exit_code == 2
    assert "MACHINE@WHEN" in done.output


def test_a_database_that_is_not_there_is_named() -> None:
    done = CliRunner().invoke(main, ["--store", "postgresql://tester@127.0.0.1:9/none"])
    assert done.exit_code == 3
    assert "error: " in done.stderr
    assert "127.0.0.1" in done.stderr
    assert "Traceback" not in done.output
