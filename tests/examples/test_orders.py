"""The orders example: one mail an order, whatever the file, the server or the user does."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session
from click.testing import Result
from orders_support import (
    addressees,
    count_mails,
    fsck,
    maildir,
    read_mails,
    row,
    run,
    start,
    wait_for,
    write_orders,
)

from examples.orders.mail import Mailbox
from examples.orders.main import SAMPLE
from examples.orders.reading import OrdersFile, read_orders

# -- the sample, with a server of its own ----------------------------------------------------------


@pytest.fixture(scope="module")
def sample() -> OrdersFile:
    return read_orders(SAMPLE)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    store = tmp_path_factory.mktemp("sample") / "state.git"
    return store, run(SAMPLE, store)


def test_the_sample_holds_what_makes_csv_hard(sample: OrdersFile) -> None:
    orders = sample.orders
    assert len(orders) >= 200
    assert any('"' in order.product for order in orders)
    assert any("," in order.customer for order in orders)
    assert any("\n" in order.note for order in orders)
    assert any("ü" in order.customer for order in orders)
    assert any("🍵" in order.product for order in orders)
    assert any(not order.phone and not order.note for order in orders)
    assert len(sample.bad_rows) == 1


def test_every_order_of_the_sample_gets_one_mail_with_its_text_intact(
    sample: OrdersFile, finished: tuple[Path, Result]
) -> None:
    store, result = finished
    assert result.exit_code == 0, result.output
    mails = {mail["To"].addresses[0].addr_spec: mail for mail in read_mails(store)}
    assert len(mails) == len(sample.orders) == count_mails(store)
    for order in sample.orders:
        mail = mails[order.email]
        assert mail["To"].addresses[0].display_name == order.customer
        assert mail["Subject"] == f"Your order {order.order_id}: {order.quantity} x {order.product}"
        assert mail["Message-ID"] == f"<notify%3A{order.order_id}@shop.example>"
        text = mail.get_content()
        assert f"Hello {order.customer},\n" in text
        for line in order.note.splitlines():
            assert f"> {line}\n" in text


def test_the_summary_says_what_happened(sample: OrdersFile, finished: tuple[Path, Result]) -> None:
    result = finished[1]
    revenue = sum(order.quantity * order.unit_price for order in sample.orders)
    count = len(sample.orders)
    assert f"orders     {count} stored of {count} in the file\n" in result.stdout
    assert f"revenue    {revenue:.2f} EUR on {count} receipts\n" in result.stdout
    assert f"mails      {count} delivered, {count} of them now\n" in result.stdout
    assert f"mailbox    {count} mails, 0 repeats dropped now\n" in result.stdout
    assert "bad rows   1 reported and skipped\n" in result.stdout
    assert "Traceback" not in result.output


def test_the_malformed_row_is_reported_with_its_line_number(finished: tuple[Path, Result]) -> None:
    lines = SAMPLE.read_text(encoding="utf-8").split("\n")
    number = 1 + next(i for i, line in enumerate(lines) if "never closed" in line)
    assert finished[1].stderr.startswith(f"{SAMPLE}, line {number}: the quotes do not fit")


def test_without_a_terminal_there_is_no_progress_bar(finished: tuple[Path, Result]) -> None:
    assert "\x1b" not in finished[1].output
    assert "━" not in finished[1].output


def test_the_printed_commands_work(finished: tuple[Path, Result]) -> None:
    _, result = finished
    commands = [line.strip() for line in result.stdout.partition("Next:\n")[2].splitlines()]
    assert len(commands) == 4
    for command in commands:
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
        assert done.stdout or "fsck" in command


def test_a_second_run_sends_nothing(sample: OrdersFile, finished: tuple[Path, Result]) -> None:
    store, _ = finished
    before = subprocess.check_output(["git", "-C", str(store), "for-each-ref"])
    again = run(SAMPLE, store)
    count = len(sample.orders)
    assert again.exit_code == 0
    assert f"mails      {count} delivered, 0 of them now\n" in again.stdout
    assert f"mailbox    {count} mails, 0 repeats dropped now\n" in again.stdout
    assert subprocess.check_output(["git", "-C", str(store), "for-each-ref"]) == before
    assert not fsck(store)


# -- interrupted, repeated -------------------------------------------------------------------------


def test_interrupted_in_the_middle_it_goes_on_where_it_was(tmp_path: Path) -> None:
    orders, store = write_orders(tmp_path / "o.csv", [row(n) for n in range(60)]), tmp_path / "s.git"
    process = start(orders, store)
    wait_for(lambda: count_mails(store) >= 15, process)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert stderr == "interrupted: run the same command again to go on\n"
    assert 15 <= count_mails(store) < 60
    found = re.search(r"mailbox +(\d+) mails", stdout)
    assert found is not None
    assert int(found[1]) == count_mails(store)
    again = run(orders, store)
    assert again.exit_code == 0, again.output
    assert addressees(read_mails(store)) == {f"zoe.{n}@example.com": 1 for n in range(60)}
    assert "0 repeats dropped now" in again.stdout  # Ctrl-C waits for the mail in flight
    assert "60 stored of 60" in again.stdout
    assert f"revenue    {60 * 14.4:.2f} EUR on 60 receipts" in again.stdout
    assert not fsck(store)


def test_a_second_run_at_the_same_time_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    orders, store = write_orders(tmp_path / "o.csv", [row(n) for n in range(60)]), tmp_path / "s.git"
    process = start(orders, store)
    wait_for(lambda: count_mails(store) >= 1, process)
    process.send_signal(signal.SIGSTOP)  # it is in the middle for as long as the second lasts
    second = run(orders, store)
    process.send_signal(signal.SIGCONT)
    _, stderr = process.communicate(timeout=60)
    assert second.exit_code == 3
    assert second.stderr.startswith("error: lock 'run orders/main'")
    assert "Traceback" not in second.output
    assert process.returncode == 0, stderr
    assert addressees(read_mails(store)) == {f"zoe.{n}@example.com": 1 for n in range(60)}


def test_a_mail_that_was_accepted_but_not_recorded_is_dropped_when_it_comes_again(tmp_path: Path) -> None:
    orders, store = write_orders(tmp_path / "o.csv", [row(n) for n in range(3)]), tmp_path / "s.git"
    Mailbox(maildir(store)).add("<notify%3AA-1@shop.example>", b"Message-ID: <notify%3AA-1@shop.example>\r\n")
    result = run(orders, store)
    assert result.exit_code == 0
    assert "mailbox    3 mails, 1 repeats dropped now" in result.stdout


def test_with_a_terminal_there_is_a_progress_bar(tmp_path: Path) -> None:
    orders = write_orders(tmp_path / "o.csv", [row(n) for n in range(3)])
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    process = start(orders, tmp_path / "s.git", stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(ours)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"mails" in shown
    assert b"3/3" in shown


# -- other servers ---------------------------------------------------------------------------------


class Inbox:
    """A server of somebody else: it keeps what it gets, and may refuse."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.refused: dict[str, str] = {}
        self.hangs_up_after: int | None = None

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.hangs_up_after is not None and len(self.ids) >= self.hangs_up_after:
            return "421 closing for today"
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        assert isinstance(envelope.content, bytes)
        found = re.search(rb"^Message-ID: (.*?)\r$", envelope.content, re.MULTILINE | re.IGNORECASE)
        assert found is not None
        self.ids.append(found[1].decode())
        return "250 OK"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(inbox: Inbox) -> Iterator[str]:
    controller = Controller(inbox, hostname="127.0.0.1", port=free_port(), server_hostname="localhost")
    controller.start()
    try:
        yield f"127.0.0.1:{controller.port}"
    finally:
        controller.stop()


def test_a_server_that_is_given_gets_one_mail_an_order(tmp_path: Path) -> None:
    orders, store = write_orders(tmp_path / "o.csv", [row(n) for n in range(25)]), tmp_path / "s.git"
    inbox = Inbox()
    with serving(inbox) as address:
        first, second = run(orders, store, "--smtp", address), run(orders, store, "--smtp", address)
    assert first.exit_code == second.exit_code == 0, first.output
    assert inbox.ids == [f"<notify%3AA-{n}@shop.example>" for n in range(25)]
    assert "25 delivered, 0 of them now" in second.stdout
    assert not maildir(store).exists()


def test_a_server_that_is_down_is_named_and_the_next_start_sends(tmp_path: Path) -> None:
    orders, store = write_orders(tmp_path / "o.csv", [row(n) for n in range(9)]), tmp_path / "s.git"
    address = f"127.0.0.1:{free_port()}"
    for _ in range(2):
        down = run(orders, store, "--smtp", address)
        assert down.exit_code == 1
        assert down.stderr == (
            f"error: the SMTP server at {address} cannot be reached: Connection refused; "
            f"start it and run the same command again\n"
        )
        assert "0 delivered" in down.stdout
    result = run(orders, store)
    assert result.exit_code == 0, result.output
    assert addressees(read_mails(store)) == {f"zoe.{n}@example.com": 1 for n in range(9)}
    assert not fsck(store)


def test_a_server_that_goes_away_in_the_middle_loses_nothing(tmp_path: Path) -> None:
    orders, store = write_orders(tmp_path / "o.csv", [row(n) for n in range(9)]), tmp_path / "s.git"
    inbox = Inbox()
    inbox.hangs_up_after = 4
    with serving(inbox) as address:
        result = run(orders, store, "--smtp", address)
        assert result.exit_code == 1
        assert "421 closing for today" in result.stderr
        assert result.stderr.count("\n") == 1
        assert "4 delivered" in result.stdout
        inbox.hangs_up_after = None
        assert run(orders, store, "--smtp", address).exit_code == 0
    assert sorted(inbox.ids) == sorted(f"<notify%3AA-{n}@shop.example>" for n in range(9))


def test_an_address_that_is_refused_stops_no_other_and_is_tried_at_the_next_start(tmp_path: Path) -> None:
    orders, store = write_orders(tmp_path / "o.csv", [row(n) for n in range(25)]), tmp_path / "s.git"
    inbox = Inbox()
    inbox.refused = {"zoe.3@example.com": "550 no such user", "zoe.9@example.com": "451 try later"}
    with serving(inbox) as address:
        result = run(orders, store, "--smtp", address)
        assert result.exit_code == 1
        assert len(inbox.ids) == 23
        assert "notify:A-3 failed" in result.stderr
        assert "550 no such user" in result.stderr
        assert "notify:A-9 failed" in result.stderr
        assert "Traceback" not in result.output
        inbox.refused = {}
        again = run(orders, store, "--smtp", address)
    assert again.exit_code == 0, again.output
    assert inbox.ids[23:] == ["<notify%3AA-3@shop.example>", "<notify%3AA-9@shop.example>"]


# -- files that are not as they should be ----------------------------------------------------------

BAD_ROWS = [
    pytest.param('A-9,Malte,m@example.com,"Tea,1,1.00,,', "quotes do not fit", id="a quote is not closed"),
    pytest.param('A-9,Malte,m@example.com,"Tea"x,1,1.00,,', "quotes do not fit", id="text behind a quote"),
    pytest.param("A-9,Malte", "it has 2 fields, and the header has 8", id="fields are missing"),
    pytest.param("A-9,Malte,m@example.com,Tea,1,1,00,,,", "it has 10 fields", id="a decimal comma"),
    pytest.param("A-9,Malte,m@example.com,Tea,two,1.00,,", "quantity 'two'", id="a quantity in words"),
    pytest.param("A-9,Malte,m@example.com,Tea,0,1.00,,", "quantity '0'", id="a quantity of zero"),
    pytest.param("A-9,Malte,m@example.com,Tea,1,NaN,,", "unit_price 'NaN'", id="no number"),
    pytest.param("A-9,Malte,m@example.com,Tea,1,0.005,,", "unit_price '0.005'", id="half a cent"),
    pytest.param("A-9,Malte,malte at home,Tea,1,1.00,,", "email 'malte at home'", id="no mail address"),
    pytest.param("A-9,Malte,a..b@example.com,Tea,1,1.00,,", "email 'a..b@example.com'", id="two dots"),
    pytest.param("A-9,,m@example.com,Tea,1,1.00,,", "customer ''", id="a required field is empty"),
    pytest.param("A 9,Malte,m@example.com,Tea,1,1.00,,", "order_id 'A 9'", id="an id with a space"),
    pytest.param(
        "A-0,Malte,m@example.com,Tea,1,1.00,,", "order A-0 stands in line 2 already", id="another A-0"
    ),
]


@pytest.mark.parametrize(("text", "reason"), BAD_ROWS)
def test_a_bad_row_costs_itself_alone(tmp_path: Path, text: str, reason: str) -> None:
    path = write_orders(tmp_path / "o.csv", [row(0), row(1)])
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(text + "\n")
    tail = write_orders(tmp_path / "tail.csv", [row(n) for n in range(2, 8)]).read_text(encoding="utf-8")
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(tail.partition("\n")[2])
    found = read_orders(path)
    assert [order.order_id for order in found.orders] == [f"A-{n}" for n in range(8)]
    assert [bad.line for bad in found.bad_rows] == [5]  # the note of order 0 takes a line of its own
    assert reason in found.bad_rows[0].reason


def test_a_row_that_is_not_utf8_costs_itself_alone(tmp_path: Path) -> None:
    path = write_orders(tmp_path / "o.csv", [row(1), row(2, customer="Jürgen"), row(4)])
    path.write_bytes(path.read_bytes().replace("Jürgen".encode(), "Jürgen".encode("latin-1")))
    found = read_orders(path)
    assert [order.order_id for order in found.orders] == ["A-1", "A-4"]
    assert [(bad.line, bad.reason) for bad in found.bad_rows] == [(3, r"customer 'J\udcfcrgen' is not UTF-8")]


@pytest.mark.parametrize("ending", ["\r\n", "\r"])
def test_a_byte_order_mark_and_other_line_ends_are_fine(tmp_path: Path, ending: str) -> None:
    path = write_orders(tmp_path / "o.csv", [row(1), row(2), row(4)])
    text = path.read_text(encoding="utf-8").replace("\n", ending)
    path.write_bytes(text.encode("utf-8-sig"))
    found = read_orders(path)
    assert [order.order_id for order in found.orders] == ["A-1", "A-2", "A-4"]
    assert not found.bad_rows


def test_a_row_that_stands_there_twice_is_one_order(tmp_path: Path) -> None:
    found = read_orders(write_orders(tmp_path / "o.csv", [row(1), row(1)]))
    assert len(found.orders) == 1
    assert not found.bad_rows


def test_a_name_with_line_breaks_cannot_forge_a_header(tmp_path: Path) -> None:
    name = "Eve\r\nBcc: everybody@example.com"
    orders = write_orders(tmp_path / "o.csv", [row(1, customer=name, product="Tea\nX-Spam: yes")])
    store = tmp_path / "s.git"
    assert run(orders, store).exit_code == 0
    (mail,) = read_mails(store)
    assert mail["Bcc"] is None
    assert mail["X-Spam"] is None
    assert mail["To"].addresses[0].display_name == "Eve Bcc: everybody@example.com"


FILES = [
    pytest.param(None, "No such file or directory", id="absent"),
    pytest.param(b"", "is empty", id="empty"),
    pytest.param(b"\xef\xbb\xbf\r\n\r\n", "is empty", id="blank"),
    pytest.param(b"order_id,customer\nA-1,Zoe\n", "'email' is missing", id="columns are missing"),
    pytest.param(b"order_id;customer;email\n", "separated by commas", id="semicolons"),
    pytest.param(",".join(["order_id", *row(1)]).encode(), "'order_id' stands there twice", id="twice"),
    pytest.param(",".join([*row(1), "vip"]).encode(), "'vip' is unknown", id="a column too many"),
    pytest.param("order_id,customer\n".encode("utf-16"), "line 1", id="UTF-16"),
    pytest.param(b'"order_id,customer\n', "line 1", id="an open quote"),
]


@pytest.mark.parametrize(("content", "reason"), FILES)
def test_a_file_that_cannot_be_used_is_refused_in_words(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    path, store = tmp_path / "o.csv", tmp_path / "s.git"
    if content is not None:
        path.write_bytes(content)
    result = run(path, store)
    assert result.exit_code == 2
    assert str(path) in result.stderr
    assert reason in result.stderr
    assert not store.exists()
    assert not maildir(store).exists()


@pytest.mark.parametrize(
    "given", ["localhost", "localhost:", ":25", "localhost:smtp", "localhost:70000", "::1:25"]
)
def test_an_address_that_is_none_is_refused(tmp_path: Path, given: str) -> None:
    orders = write_orders(tmp_path / "o.csv", [row(1)])
    result = run(orders, tmp_path / "s.git", "--smtp", given)
    assert result.exit_code == 2
    assert f"{given!r} is not HOST:PORT" in result.stderr


def test_a_path_that_is_no_store_is_refused(tmp_path: Path) -> None:
    orders, store = write_orders(tmp_path / "o.csv", [row(1)]), tmp_path / "notes.txt"
    store.write_text("not a repository")
    result = run(orders, store)
    assert result.exit_code == 3
    assert result.stderr.startswith("error: ")
    assert str(store) in result.stderr
    assert store.read_text() == "not a repository"


def test_an_order_that_changed_in_the_file_stays_as_it_was_confirmed(tmp_path: Path) -> None:
    store = tmp_path / "s.git"
    assert run(write_orders(tmp_path / "o.csv", [row(1)]), store).exit_code == 0
    result = run(write_orders(tmp_path / "o.csv", [row(1, quantity="9"), row(2)]), store)
    assert result.exit_code == 0
    assert "order A-1 was confirmed with other content before: that stays" in result.stderr
    assert addressees(read_mails(store)) == {"zoe.1@example.com": 1, "zoe.2@example.com": 1}
    assert "revenue    28.80 EUR on 2 receipts" in result.stdout
