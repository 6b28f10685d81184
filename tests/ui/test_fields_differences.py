"""How differences look: field by field, long texts word by word, and no more than a page can show."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote_plus

from desk import SESSION
from reading import Client, page, read

from reactifact.ui.pages.fields import SHOWN, data_difference

S = f"s={quote_plus(SESSION)}"
LONG = "the quick brown fox jumps over the lazy dog and goes home"


def test_two_versions_are_compared_word_by_word(client: Client, desk_store: Any) -> None:
    browser = client(desk_store)
    found = page(browser, f"/artifact?{S}&id=reply:ticket:29")
    versions = [one.get("value") for one in found.all("input") if one.get("name") == "old"]
    new, old = versions
    answer = browser.get(f"/artifact?{S}&id=reply:ticket:29&old={old}&new={new}")
    assert "<del>Dear</del>" in answer.text
    assert "<ins>Hello</ins>" in answer.text
    read(answer.text)


def test_short_values_stand_whole_beside_each_other() -> None:
    shown = data_difference({"price": 1, "gone": "x"}, {"price": 2, "new": [1]})
    assert [shown.count(f'<tr class="{kind}">') for kind in ("added", "changed", "removed")] == [1, 1, 1]
    assert '<td class="old"><code class="json">1</code></td>' in shown
    assert '<td class="new"><code class="json">2</code></td>' in shown
    assert "<del>" not in shown


def test_only_the_words_that_differ_are_marked_in_a_long_text() -> None:
    shown = data_difference({"text": LONG}, {"text": LONG.replace("lazy", "<b>")})
    assert shown.count("<del>lazy</del>") == 1
    assert shown.count("<ins>&lt;b&gt;</ins>") == 1
    assert shown.count("quick brown fox") == 2


def test_equal_values_are_said_to_be_equal() -> None:
    assert data_difference({"a": 1}, {"a": 1}) == '<p class="empty">Nothing differs.</p>'


def test_the_fields_that_a_page_does_not_show_are_counted() -> None:
    shown = data_difference({}, {f"f{number:03}": number for number in range(SHOWN + 7)})
    assert shown.count('<tr class="added">') == SHOWN
    assert "and 7 more fields" in shown
