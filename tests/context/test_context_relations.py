"""Relations (API §5): links, unlinks, both directions, dangling ends, order."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
from support import Note

from reactifact import Context, Relation
from reactifact.errors import InvalidName


def triples(found: list[Relation]) -> list[tuple[str, str, str]]:
    return [(one.source_id, one.relation, one.target_id) for one in found]


def test_a_relation_is_frozen_and_has_a_dictionary_form() -> None:
    relation = Relation("a", "cites", "b")
    assert relation.to_dict() == {"source_id": "a", "relation": "cites", "target_id": "b"}
    assert Relation.from_dict(relation.to_dict()) == relation
    with pytest.raises(FrozenInstanceError):
        relation.source_id = "c"  # type: ignore[misc]


def test_link_returns_the_relation_and_repeating_it_changes_nothing() -> None:
    context = Context()
    assert context.link("a", "cites", "b") == Relation("a", "cites", "b")
    assert context.link("a", "cites", "b") == Relation("a", "cites", "b")
    assert triples(context.relations()) == [("a", "cites", "b")]


def test_links_make_no_event_and_need_no_artifacts() -> None:
    context = Context()
    context.link("nobody", "cites", "nothing")
    context.unlink("nobody")
    assert context.pending_events() == []


def test_relations_come_in_the_order_of_their_making() -> None:
    context = Context()
    made = [("z", "cites", "a"), ("a", "cites", "z"), ("z", "uses", "a"), ("m", "cites", "a")]
    for source, relation, target in made:
        context.link(source, relation, target)
    assert triples(context.relations()) == made
    assert triples(context.relations(source_id="z")) == [made[0], made[2]]
    assert triples(context.relations(relation="cites")) == [made[0], made[1], made[3]]
    assert triples(context.relations(target_id="a")) == [made[0], made[2], made[3]]
    assert triples(context.relations("z", "uses", "a")) == [made[2]]
    context.branch()  # commits what is open: the order does not depend on what is committed
    context.link("a", "uses", "m")
    assert triples(context.relations()) == [*made, ("a", "uses", "m")]


def test_incoming_and_its_filter() -> None:
    context = Context()
    context.link("b", "cites", "t")
    context.link("a", "uses", "t")
    context.link("t", "cites", "a")
    assert triples(context.incoming("t")) == [("b", "cites", "t"), ("a", "uses", "t")]
    assert triples(context.incoming("t", "uses")) == [("a", "uses", "t")]
    context.branch()  # commits what is open
    assert triples(context.incoming("t")) == [("b", "cites", "t"), ("a", "uses", "t")]


def test_related_gives_each_target_once_and_skips_missing_ones() -> None:
    context = Context()
    for name in ("a", "b"):
        context.create(Note(text=name), id=name)
    context.link("s", "cites", "b")
    context.link("s", "uses", "b")
    context.link("s", "cites", "gone")
    context.link("s", "cites", "a")
    assert [found.id for found in context.related("s")] == ["b", "a"]
    assert [found.id for found in context.related("s", "uses")] == ["b"]


def test_unlink_counts_what_went() -> None:
    context = Context()
    for relation, target in (("cites", "a"), ("cites", "b"), ("uses", "a"), ("uses", "c")):
        context.link("s", relation, target)
    assert context.unlink("s", "cites", "a") == 1
    assert context.unlink("s", "cites", "a") == 0
    assert context.unlink("s", "uses") == 2
    assert context.unlink("s", target_id="b") == 1
    assert context.relations() == []
    context.link("s", "cites", "a")
    context.link("s", "cites", "b")
    assert context.unlink("s") == 2


def test_a_deleted_artifact_leaves_dangling_relations() -> None:
    context = Context()
    for name in ("a", "b", "c"):
        context.create(Note(), id=name)
    context.link("a", "cites", "b")
    context.link("b", "cites", "c")
    context.link("c", "cites", "a")
    assert context.dangling_relations() == []
    context.delete("b")
    assert triples(context.dangling_relations()) == [("a", "cites", "b"), ("b", "cites", "c")]
    assert len(context.relations()) == 3


def test_a_lone_surrogate_in_a_relation_is_refused() -> None:
    context = Context()
    for parts in (("\ud800", "r", "t"), ("s", "\ud800", "t"), ("s", "r", "\ud800")):
        with pytest.raises(InvalidName, match="surrogate"):
            context.link(*parts)
    assert context.relations() == []
