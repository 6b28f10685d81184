"""The text of a Mermaid flowchart: nodes, groups, edges, and labels that may hold anything.

Owns the escaping. Ids of nodes are ours (`n0`, `a0` ...), so that no name of a user's stands where
Mermaid reads syntax; whatever users named stands in quoted labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..store.printable import plain

# Everything else has a meaning to Mermaid, to markdown or to HTML in some place of a label.
_UNSAFE = re.compile(r"""[^\w \-:.,/()+=@'!?]""")
# In a line with these words Mermaid takes `:...#...;` for a colour and eats the end of an entity.
_STYLING = ("style", "classDef")
# A label that begins like a list item is taken for markdown and not shown at all.
_LIST_ITEM = re.compile(r"^(\s*(?:\d+)?)([-+.)])(?=\s|$)")


def label(text: str) -> str:
    """Return any text as a quoted label: one line, characters with a meaning as entities."""
    shown = _UNSAFE.sub(lambda found: _entity(found[0]), plain(text))
    if any(word in shown for word in _STYLING):
        shown = shown.replace(":", _entity(":"))
    shown = _LIST_ITEM.sub(lambda found: found[1] + _entity(found[2]), shown)
    return f'"{shown}"' if shown.strip() else f'"{_entity(" ")}"'


def _entity(char: str) -> str:
    return f"#{ord(char)};"


def node(identity: str, text: str, shape: str = "[]") -> str:
    """Return a node; `shape` holds its brackets: `[]` a box, `()` a rounded one, `([])` a stadium."""
    half = len(shape) // 2
    return f"{identity}{shape[:half]}{label(text)}{shape[half:]}"


def edge(source: str, target: str, text: str | None = None, *, dotted: bool = False) -> str:
    """Return an edge from one node to another, with a label where there is a text."""
    arrow = "-.->" if dotted else "-->"
    return f"{source} {arrow} {target}" if text is None else f"{source} {arrow}|{label(text)}| {target}"


def group(identity: str, text: str, lines: Iterable[str]) -> list[str]:
    """Return a subgraph around lines."""
    return [f"subgraph {identity}[{label(text)}]", *indented(lines), "end"]


def indented(lines: Iterable[str]) -> list[str]:
    """Return lines one level deeper."""
    return [f"    {line}" for line in lines]


def flowchart(direction: str, lines: Iterable[str]) -> str:
    """Return the diagram. `direction` is `LR` or `TD`."""
    return "\n".join([f"flowchart {direction}", *indented(lines)]) + "\n"
