"""Reading a page as a browser and a screen reader do: what it must not hold, and what it must."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urlsplit

from starlette.testclient import TestClient

Client = Callable[..., TestClient]
"""Makes a client of the inspector over a store: the fixture `client`."""


@dataclass
class Reader(HTMLParser):
    """The elements of a page, its texts and its links. Raises `AssertionError` where tags do not match."""

    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("br", "hr", "img", "input", "link", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        """All that is read."""
        return "".join(self.texts)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """Return the attributes of every element of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def links(self) -> list[str]:
        """The addresses that the page leads to."""
        return [a["href"] or "" for a in self.all("a") if "href" in a]

    def link(self, start: str, *parts: str) -> str:
        """Return the first link that begins so and has these parts."""
        return next(one for one in self.links if one.startswith(start) and all(part in one for part in parts))


def read(page: str) -> Reader:
    """Read a page, and check what every page has to keep to."""
    found = Reader()
    found.feed(page)
    found.close()
    assert found.open == []
    assert all(char.isprintable() or char == "\n" for char in page), "a character that steers"
    for tag, attributes in found.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (
            tag,
            attributes,
        )
        for name in ("src", "href", "action"):
            address = urlsplit(attributes.get(name) or "")
            assert (address.scheme, address.netloc) == ("", ""), (tag, attributes)
    assert found.all("style") == []
    assert all(script.get("src") for script in found.all("script"))
    assert all(th.get("scope") for th in found.all("th"))
    labelled = {label.get("for") for label in found.all("label")}
    for kind in ("input", "select", "textarea"):
        for one in found.all(kind):
            is_named = one.get("type") == "hidden" or one.get("id") in labelled or one.get("aria-label")
            assert is_named, one
    ids = [attributes["id"] for _, attributes in found.elements if attributes.get("id")]
    assert len(ids) == len(set(ids)), "an id stands twice"
    assert [len(found.all(tag)) for tag in ("main", "h1", "header")] == [1, 1, 1]
    assert found.all("html")[0].get("lang") == "en"
    assert found.links[0] == "#content"  # the way past the bar, first for the keyboard
    return found


def page(client: TestClient, address: str) -> Reader:
    """Ask for a page that is there, and read it."""
    answer = client.get(address)
    assert answer.status_code == 200, answer.text
    return read(answer.text)
