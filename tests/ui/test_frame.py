"""The frame of a page and its small pieces, as values: no store is asked."""

from __future__ import annotations

import pytest
from reading import read

from reactifact._html import el
from reactifact.ui.frame import Page, counted, rendered, span, status_chip


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0, "0 s"), (0.25, "0.25 s"), (9.94, "9.9 s"), (59.9, "59 s"), (60, "1 min 0 s")),
        *((3599, "59 min 59 s"), (3600, "1 h 0 min"), (86399, "23 h 59 min"), (90000, "1 d 1 h")),
    ],
)
def test_a_span_of_time_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_a_number_stands_with_its_noun() -> None:
    assert counted(1, "commit") == "1 commit"
    assert counted(2000, "commit") == "2,000 commits"
    assert counted(0, "branch", "branches") == "0 branches"


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ("dispatched", '<span class="chip ok">delivered</span>'),
        ("pending", '<span class="chip wait">waiting</span>'),
        ("failed", '<span class="chip bad">failed</span>'),
        ("<new>", '<span class="chip bad">&lt;new&gt;</span>'),
    ],
)
def test_a_delivery_has_its_chip(status: str, shown: str) -> None:
    assert status_chip(status) == shown


def test_a_page_outside_of_a_session_has_no_tabs_and_the_way_back() -> None:
    made = Page("Not <here>", el("h1", "Not here"), trail=(("All", "/"),))
    found = read(rendered(made, None, "a/store.git", None))
    assert "Not <here> · reactifact" in found.text
    assert "a/store.git" in found.text
    assert "Read-only." in found.text
    assert [one["aria-label"] for one in found.all("nav")] == ["Path"]
    assert found.all("script") == []


def test_a_live_page_loads_the_script_and_carries_its_pulse() -> None:
    found = read(rendered(Page("A run", el("h1", "A run"), is_live=True), None, "store", "abc"))
    assert [one["src"] for one in found.all("script")] == ["/static/live.js"]
    assert found.all("main")[0]["data-pulse"] == "abc"
