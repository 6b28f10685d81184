"""What the tests of the orders example share: files of orders, runs, and what the world has seen."""

from __future__ import annotations

import csv
import mailbox
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from email import message_from_binary_file
from email.message import EmailMessage
from email.policy import default as default_policy
from pathlib import Path
from typing import Any, cast

import forked
from click.testing import CliRunner, Result

from examples.orders.main import main

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = ("order_id", "customer", "email", "product", "quantity", "unit_price", "phone", "note")


def row(number: int, **changed: str) -> dict[str, str]:
    """Return a row that is fine, but for what is changed."""
    plain = {
        "order_id": f"A-{number}",
        "customer": 'Zoë "Zo" Müller',
        "email": f"zoe.{number}@example.com",
        "product": "Grüner Tee 🍵",
        "quantity": "2",
        "unit_price": "7.20",
        "phone": "",
        "note": 'Ring at "Özil, left";\nthe dog is friendly 🐕' if number % 3 == 0 else "",
    }
    return {**plain, **changed}


def write_orders(path: Path, rows: Sequence[dict[str, str]]) -> Path:
    """Write a CSV file of rows."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def arguments(orders: Path, store: Path, *more: str) -> list[str]:
    """Return the arguments of a run."""
    return ["--orders", str(orders), "--store", str(store), *more]


def run(orders: Path, store: Path, *more: str) -> Result:
    """Run the example in this process, to its end."""
    result = CliRunner().invoke(main, arguments(orders, store, *more))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def start(orders: Path, store: Path, *more: str, **options: Any) -> forked.Process:
    """Start the example as a process of its own."""
    return forked.start("-m", "examples.orders.main", *arguments(orders, store, *more), cwd=ROOT, **options)


def wait_for(condition: Callable[[], bool], process: forked.Process, seconds: float = 60) -> None:
    """Wait until something is true of what a process does; at once when the process has ended."""
    deadline = time.monotonic() + seconds
    while not condition() and process.poll() is None:
        assert time.monotonic() < deadline, "the process did not get that far"
        time.sleep(0.001)


def maildir(store: Path) -> Path:
    """Return where the example's own server keeps its mails."""
    return store.with_name(f"{store.name}.mails")


def count_mails(store: Path) -> int:
    """Return how many mails the example's own server has accepted."""
    new = maildir(store) / "new"
    return len(list(new.iterdir())) if new.exists() else 0


def read_mails(store: Path) -> list[EmailMessage]:
    """Return the mails of the example's own server, read as any mail program would."""

    def parse(file: Any) -> EmailMessage:
        return cast(EmailMessage, message_from_binary_file(file, policy=default_policy))

    found = mailbox.Maildir(maildir(store), factory=parse, create=False)
    return list(found)


def addressees(mails: Sequence[EmailMessage]) -> Counter[str]:
    """Return how many mails each address got."""
    return Counter(mail["To"].addresses[0].addr_spec for mail in mails)


def fsck(store: Path) -> str:
    """Let git check a store; return what it says. Raises when something is wrong."""
    command = ["git", "-C", str(store), "fsck", "--strict", "--no-dangling"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return (done.stdout + done.stderr).strip()
