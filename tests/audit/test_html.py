"""An audit report as a page: it says what the report says, needs nothing and does nothing."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
from pydantic import BaseModel
from support import Note, commit

from reactifact import Context, ProduceCall
from reactifact.audit import build_report, report_to_html
from reactifact.replay.hashes import artifact_hash

pytestmark = pytest.mark.anyio

HOSTILE = "<img src=x onerror=alert(1)>\u202e\x1b[31m"
SHOWN = "<img src=x onerror=alert(1)>\\u202e\\u001b[31m"


class Document(BaseModel):
    locator: str


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


async def answered() -> Context:
    context = Context()
    context.create(Document(locator=HOSTILE), id=HOSTILE)
    context.create(Note(text=HOSTILE), id="fact")

    def work(call: ProduceCall) -> None:
        call.context.get("fact")
        call.effects.create(Note(text=HOSTILE), id="answer")
        call.effects.link("answer", HOSTILE, HOSTILE)
        call.effects.link("answer", "rests on", "fact")

    await commit(context, work, author=HOSTILE)
    return context


async def test_the_page_says_what_the_report_says() -> None:
    context = await answered()
    report = build_report(context, "answer", reads=True)
    found = Page(report_to_html(report))
    for text in ("answer", SHOWN, "fact", "rests on", "created kick", "fact v0", "and what the commits read"):
        assert text in found.text
    answer = context.get("answer")
    assert answer is not None
    assert artifact_hash(answer) in found.text
    assert report.context_sha256 in found.text


async def test_it_needs_nothing_and_does_nothing() -> None:
    text = report_to_html(build_report(await answered(), "answer"))
    found = Page(text)
    names = {tag for tag, _ in found.tags}
    assert not names & {"script", "link", "img", "iframe", "form", "a", "object", "base"}
    assert not [a for _, a in found.tags if any(name.startswith("on") or name == "style" for name in a)]
    assert all(char.isprintable() or char == "\n" for char in text)
    assert [a for tag, a in found.tags if tag == "th" and "scope" not in a] == []
    (policy,) = (a["content"] or "" for _, a in found.tags if "http-equiv" in a)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")


async def test_a_report_without_sources_and_relations() -> None:
    context = Context()
    context.create(Note(text="alone"), id="alone")
    found: Any = Page(report_to_html(build_report(context, "alone")))
    assert "None of the artifacts names one" in found.text
    assert "none, the context stands alone" in found.text
    assert "Relations" not in found.text
