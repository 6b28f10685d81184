"""Two branches side by side: where they parted, what only one has, and what a merge would do."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote_plus

from desk import REFUNDS, SESSION
from reading import Client, page

S = f"s={quote_plus(SESSION)}"


def test_two_branches_side_by_side_with_what_a_merge_would_do(client: Client, desk_store: Any) -> None:
    found = page(client(desk_store), f"/compare?{S}&into=main&from=refund+trial")
    for text in ("parted at", "1 conflict: nothing would be applied", "desk: changed differently", "adopt"):
        assert text in found.text
    assert "reply:extra" in found.text
    clean = page(client(desk_store), f"/compare?{S}&into=main&from=friendlier")
    assert "Nothing would be taken over" in clean.text


def test_the_branches_are_chosen_in_a_form_and_are_two(client: Client, desk_store: Any) -> None:
    browser = client(desk_store)
    asked = page(browser, f"/compare?{S}&into=main&from=friendlier")
    assert [one["name"] for one in asked.all("select")] == ["from", "into"]
    chosen = [one["value"] for one in asked.all("option") if "selected" in one]
    assert chosen == ["friendlier", "main"]
    same = page(browser, f"/compare?{S}&into=main&from=main")
    assert "Choose two branches." in same.text
    alone = page(browser, f"/compare?s={REFUNDS}")
    assert "The session has one branch" in alone.text
