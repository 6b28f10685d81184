"""HTML elements: whatever a text holds, it is shown and does nothing."""

from __future__ import annotations

import base64
import hashlib
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from reactifact._html import Html, data, el, facts, inline, join, lines, self_contained, style, table
from reactifact._text import plain


class Parsed(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text(), st.text())
def test_a_text_is_a_text_in_an_element_and_in_an_attribute(text: str, value: str) -> None:
    made = el("p", text, title=value)
    found = Parsed(made)
    assert found.tags == [("p", {"title": plain(value)})]
    assert found.text == plain(text)
    assert made.isprintable()


@given(st.text())
def test_a_text_of_several_lines_keeps_nothing_but_their_ends(text: str) -> None:
    made = el("pre", lines(text))
    assert [tag for tag, _ in Parsed(made).tags] == ["pre"]
    assert all(char.isprintable() or char == "\n" for char in made)


def test_attributes_that_say_yes_or_nothing() -> None:
    made = el(
        "input", type="radio", checked=True, disabled=False, title=None, aria_label="a", for_="b", name="c"
    )
    assert made == '<input type="radio" checked aria-label="a" for="b" name="c">'


def test_html_goes_in_as_it_is_and_once() -> None:
    inner = el("b", "<")
    assert isinstance(inner, Html)
    assert el("p", inner, [inner, [None, 3]], None) == "<p><b>&lt;</b><b>&lt;</b>3</p>"
    assert join(None) == ""


def test_a_table_has_headers() -> None:
    made = table(["A", "B"], [["<1>", 2]], caption="of things", class_="x")
    assert made.count('scope="col"') == 2
    assert "&lt;1&gt;" in made
    assert (
        facts([("a", "<b>")])
        == '<table><tbody><tr><th scope="row">a</th><td>&lt;b&gt;</td></tr></tbody></table>'
    )


def test_values_are_shown_as_json_and_texts_as_they_are() -> None:
    assert inline(None) == '<code class="json">null</code>'
    assert inline("null") == '<code class="text">null</code>'
    assert "<pre" in inline("two\nlines")
    assert "(30000 characters)" in inline("x" * 30_000)
    assert "(30002 characters)" in inline(["x" * 29_998])
    assert "\\u202e" in data({"a": "\u202e"})


def test_a_page_with_its_style_inside_lets_nothing_else_in() -> None:
    page = self_contained("<t>", el("main", "x"))
    found = Parsed(page)
    policy = next(
        a["content"] or "" for tag, a in found.tags if a.get("http-equiv") == "Content-Security-Policy"
    )
    digest = base64.b64encode(hashlib.sha256(style().encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    assert f"<style>{style()}</style>" in page
    assert not [tag for tag, _ in found.tags if tag in ("script", "link", "img")]
    assert "@import" not in style()
    assert "url(" not in style()
