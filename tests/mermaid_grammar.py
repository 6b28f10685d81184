"""A strict grammar of the Mermaid that we write, to read diagrams back in tests.

It knows nothing but nodes, subgraphs and edges with quoted labels, and refuses every other line. A
label may hold letters, digits, the few characters that mean nothing to Mermaid, and entities.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_LABEL = r'"((?:[\w \-:.,/()+=@\'!?]|#\d+;)+)"'
_NODE = re.compile(rf"(\w+)(?:\[{_LABEL}\]|\(\[{_LABEL}\]\))")
_GROUP = re.compile(rf"subgraph (\w+)\[{_LABEL}\]")
_EDGE = re.compile(rf"(\w+) (-->|-\.->)(?:\|{_LABEL}\|)? (\w+)")
_ENTITY = re.compile(r"#(\d+);")


@dataclass
class Diagram:
    """What a diagram says: labels are decoded."""

    direction: str
    nodes: dict[str, str] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    inside: dict[str, str] = field(default_factory=dict)  # node or group -> the group it stands in
    edges: list[tuple[str, str | None, str]] = field(default_factory=list)  # by the ends' labels
    dotted: list[tuple[str, str | None, str]] = field(default_factory=list)

    def in_group(self, label: str) -> list[str]:
        """Return the labels of the nodes in a group."""
        ids = [identity for identity, name in self.groups.items() if name == label]
        return [self.nodes[one] for one, group in self.inside.items() if group in ids and one in self.nodes]


def read(text: str) -> Diagram:
    """Return what a diagram says. Raises `ValueError` for anything outside of the grammar."""
    head, *lines = text.removesuffix("\n").split("\n")
    found = re.fullmatch(r"flowchart (LR|TD)", head)
    if found is None:
        raise ValueError(f"no head of a diagram: {head!r}")
    diagram = Diagram(found[1])
    open_groups: list[str] = []
    edges = []
    for line in lines:
        is_end = line.strip() == "end"
        depth = len(open_groups) - is_end
        if line[: 4 * (depth + 1)].strip(" ") or line[4 * (depth + 1) :].startswith(" "):
            raise ValueError(f"a line at another depth than {depth}: {line!r}")
        part = line.strip(" ")
        if is_end:
            open_groups.pop()
        elif (found := _GROUP.fullmatch(part)) is not None:
            _new(diagram, found[1], diagram.groups, found[2], open_groups)
            open_groups.append(found[1])
        elif (found := _NODE.fullmatch(part)) is not None:
            _new(diagram, found[1], diagram.nodes, found[2] or found[3], open_groups)
        elif (found := _EDGE.fullmatch(part)) is not None:
            edges.append(found)
        else:
            raise ValueError(f"no line of a diagram: {line!r}")
    if open_groups:
        raise ValueError(f"groups without an end: {open_groups}")
    for edge in edges:
        label = None if edge[3] is None else _decoded(edge[3])
        ends = (diagram.nodes[edge[1]], label, diagram.nodes[edge[4]])
        (diagram.edges if edge[2] == "-->" else diagram.dotted).append(ends)
    return diagram


def _new(diagram: Diagram, identity: str, where: dict[str, str], label: str, groups: list[str]) -> None:
    if identity in diagram.nodes or identity in diagram.groups:
        raise ValueError(f"{identity} is there twice")
    where[identity] = _decoded(label)
    if groups:
        diagram.inside[identity] = groups[-1]


def _decoded(label: str) -> str:
    return _ENTITY.sub(lambda found: chr(int(found[1])), label)
