"""What a page reads does not grow with the history: object reads at 30 turns and at 800, or 3,000 (`--full`).

Each page is asked for by a server that has just been started, so that nothing is at hand.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote_plus

from desk import REFUNDS, SESSION, StoppedClock, filled
from reading import read
from starlette.testclient import TestClient
from stores import counted_reads

from reactifact._sessions.stores import open_database
from reactifact._store.branch import Branch
from reactifact._store.graph import first_parents
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.ui.app import application

S = f"s={quote_plus(SESSION)}"


class Measured:
    """A desk of so many turns, and what its pages read."""

    def __init__(self, store: Any) -> None:
        self.store = store
        line = Branch.load(open_database(self.store), SESSION, "main")
        assert line is not None
        commits = [oid for oid, _ in first_parents(line.objects, line.tip)]
        self.early = commits[-60]  # a commit of the first turns: the end of a long way back
        versions = [stored.oid for stored in line.state.versions("desk")]
        self.first_versions = versions[-16]

    def page(self, address: str) -> tuple[int, str]:
        """Return how many objects a page reads, and the page."""
        database = open_database(self.store)
        app = application(database, name="", clock=StoppedClock())
        with counted_reads(database) as calls:
            answer = TestClient(app, base_url="http://localhost").get(address)
        assert answer.status_code == 200, answer.text
        return sum(map(len, calls)), answer.text

    def follow(self, address: str, link: str, *parts: str) -> int:
        """Return what the page behind a link of another page reads."""
        return self.page(read(self.page(address)[1]).link(link, *parts))[0]

    def costs(self) -> dict[str, int]:
        """Return the reads of every kind of page."""
        plain = {
            "sessions": "/",
            "history": f"/session?{S}",
            "a branch": f"/session?{S}&b=refund+trial",
            "early history": f"/session?{S}&lanes={self.early}",
            "commit": f"/commit?{S}",
            "early commit": f"/commit?{S}&id={self.early}",
            "types": f"/artifacts?{S}",
            "tickets": f"/artifacts?{S}&type=desk.Ticket",
            "artifact": f"/artifact?{S}&id=desk",
            "first versions": f"/artifact?{S}&id=desk&from={self.first_versions}",
            "early artifact": f"/artifact?{S}&id=reply:ticket:2",
            "action": f"/artifact?{S}&id=action:reply:ticket:1",
            "outbox": f"/outbox?{S}",
            "questions": f"/questions?{S}",
            "questions with models": f"/questions?s={REFUNDS}",
            "compare": f"/compare?{S}&into=main&from=refund+trial",
            "difference": f"/diff?{S}&old={self.early}&new=main",
        }
        found = {name: self.page(address)[0] for name, address in plain.items()}
        found["older history"] = self.follow(f"/session?{S}", "/session", "lanes=")
        found["run"] = self.follow(f"/session?{S}", "/run")
        found["more tickets"] = self.follow(f"/artifacts?{S}&type=desk.Ticket", "/artifacts", "after=")
        found["older deliveries"] = self.follow(f"/outbox?{S}", "/outbox", "ledger=")
        return found


def test_a_page_reads_as_much_at_800_turns_as_at_30(large_store: Any) -> None:
    small = Measured(filled(InMemoryKVBackend(), 30)).costs()
    large = Measured(large_store).costs()
    print(json.dumps({name: [small[name], large[name]] for name in small}))  # shown by -s
    allowed = {"more tickets": 130, "tickets": 170}  # pages that the small desk does not fill
    grown = {
        name: (small[name], count)
        for name, count in large.items()
        if count > max(1.25 * small[name] + 15, allowed.get(name, 0))
    }
    assert grown == {}
    assert max(large.values()) < 400
