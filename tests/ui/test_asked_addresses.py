"""What an address asks for: names of every kind come through, and what is not there is said."""

from __future__ import annotations

from html import unescape
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

import pytest
from desk import HOSTILE, SESSION
from hypothesis import given
from hypothesis import strategies as st
from reading import Client, read

from reactifact.ui.app import PAGES
from reactifact.ui.asked import Asked, url, within

S = f"s={quote_plus(SESSION)}"


def test_hostile_names_in_the_address_are_told_back_harmlessly(client: Client, desk_store: Any) -> None:
    browser = client(desk_store)
    for path in PAGES:
        for name in ("s", "b", "id", "at", "old", "lanes", "after", "from", "change", "q", "type", "ledger"):
            answer = browser.get(path, params={"s": SESSION, name: HOSTILE})
            assert answer.status_code in (200, 400, 404), (path, name, answer.text)
            read(answer.text)


@pytest.mark.parametrize(
    ("address", "status", "text"),
    [
        ("/nothing", 404, "There is no such page"),
        ("/session?s=nobody", 404, "holds no session 'nobody'"),
        ("/session", 400, "names no session"),
        (f"/session?{S}&b=nobody", 404, "has no branch 'nobody'"),
        (f"/artifact?{S}&id=nobody", 404, "holds no artifact 'nobody'"),
        (f"/commit?{S}&id=12", 400, "is not the id of an object"),
        (f"/commit?{S}&id={'0' * 40}", 404, "0000"),
        (f"/diff?{S}&old=v1&new=v999", 404, "no version 999"),
        (f"/change?{S}&change=abc", 400, "No commit of support desk/main carries the change"),
        (f"/compare?{S}&into=main&from=gone", 404, "has no branch 'gone'"),
        ("/?from=-1", 400, "is not a number"),
    ],
)
def test_what_is_not_there_is_said(
    client: Client, desk_store: Any, address: str, status: int, text: str
) -> None:
    answer = client(desk_store).get(address)
    assert answer.status_code == status
    assert text in read(answer.text).text


NAMES = st.text(min_size=1, max_size=20)


@given(NAMES, NAMES)
def test_any_name_comes_back_from_an_address_and_from_a_form(session: str, branch: str) -> None:
    address = url("/session", s=session, b=branch, id=None)
    wanted = {"s": session, "b": branch}
    assert Asked.parsed(urlsplit(address).query) == wanted
    hidden = within(s=session, b=branch)
    carried = unescape(hidden.partition(' value="')[2].partition('"')[0])
    sent = urlencode({"in": carried, "old": "v1"})
    assert Asked.parsed(sent) == {**wanted, "old": "v1"}


def test_what_stands_in_the_form_itself_wins_over_what_it_carried() -> None:
    sent = urlencode({"in": urlencode({"s": "a", "old": "v1"}), "old": "v2"})
    assert Asked.parsed(sent) == {"s": "a", "old": "v2"}
