"""A whole page: the head with its policy, and the style, linked or inside the page."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

from .elements import Child, Html, el

STYLE = "style.css"


@cache
def style() -> str:
    """Return the style sheet that every page has."""
    return files(__package__).joinpath(STYLE).read_text(encoding="utf-8")


def document(title: str, *body: Child, head: Child = None, class_: str | None = None) -> Html:
    """Return a page that `head` completes with its style."""
    page = el(
        "html",
        el(
            "head",
            el("meta", charset="utf-8"),
            head,
            el("meta", name="viewport", content="width=device-width, initial-scale=1"),
            el("meta", name="color-scheme", content="light dark"),
            el("title", title),
        ),
        el("body", *body, class_=class_),
        lang="en",
    )
    return Html(f"<!DOCTYPE html>\n{page}\n")


def self_contained(title: str, *body: Child, class_: str | None = None) -> Html:
    """Return a page with its style inside, and a policy that lets it load and run nothing at all."""
    text = style()
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = [
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("style", Html(text)),
    ]
    return document(title, *body, head=head, class_=class_)
