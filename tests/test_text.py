"""Stored text is shown without steering the terminal or the page it is shown on."""

from __future__ import annotations

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from reactifact._text import LONGEST, plain, plain_lines, value


@given(st.text())
def test_what_is_shown_steers_nothing(text: str) -> None:
    shown = plain(text)
    assert shown.isprintable()
    assert not any(unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp") for char in shown)
    assert plain_lines(text).split("\n") == [plain(line) for line in text.split("\n")]


def test_what_is_printable_stays_and_the_rest_is_told() -> None:
    assert plain("größe 日本") == "größe 日本"
    assert plain("a\x1b[31m\u202eb\x7f\n") == "a\\u001b[31m\\u202eb\\u007f\\n"
    assert plain("\N{GRINNING FACE}\U000e0001") == "\N{GRINNING FACE}\\udb40\\udc01"


@given(
    st.recursive(st.none() | st.integers() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v))
)
def test_json_keeps_its_meaning_line_by_line(data: object) -> None:
    assert json.loads(plain_lines(json.dumps(data, indent=2, ensure_ascii=False))) == data


def test_a_long_value_is_cut_and_says_how_long_it_is() -> None:
    assert value({"b": 1, "a": [None]}) == '{"b": 1, "a": [null]}'
    text = "x" * (LONGEST - 2)
    assert value(text) == f'"{text}"'
    assert value(text + "x") == f'"{text}x... ({LONGEST + 1} characters)'
