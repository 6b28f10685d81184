"""Diagrams: what they show, and that any name or id gives a valid one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mermaid_grammar import read
from pydantic import BaseModel, create_model

from reactifact import (
    Agent,
    Consume,
    Context,
    EventType,
    Produce,
    Trigger,
    create_agent,
    register_type,
)
from reactifact._store.names import plain
from reactifact.consume import AbsentConsume, JoinConsume
from reactifact.recipes import StatusMachine
from reactifact.viz import blueprint, context_to_mermaid, type_name


class Order(BaseModel):
    text: str = ""


class Stock(BaseModel):
    text: str = ""


class Bill(BaseModel):
    status: str = "new"


class Mail(BaseModel):
    text: str = ""


class BillMachine(StatusMachine[Bill]):
    also_creates = Mail

    def next_status(self, context: Context, key: str) -> str:
        return "paid"


def key(data: Any) -> str:
    return "one"


def shop() -> list[Agent]:
    return [
        create_agent("mailer", consumes=[Consume(Bill)], produces=[Produce(Mail)]),
        create_agent(
            "biller",
            consumes=[JoinConsume(Order, Stock, key=key)],
            produces=[Produce(Bill, also_creates=Mail)],
        ),
        create_agent("store", consumes=[Consume(Order)], produces=[Produce(Stock)]),
        create_agent(
            "status", consumes=[Consume(Mail), Consume(Bill, wakes=False)], produces=[BillMachine()]
        ),
    ]


# -- agents --------------------------------------------------------------------------------------


def test_the_blueprint_of_a_shop() -> None:
    text = blueprint(shop(), title="The shop")
    assert text.startswith("flowchart LR\n")
    diagram = read(text)
    assert sorted(diagram.nodes.values()) == sorted(
        ["mailer", "biller", "store", "status", "Order", "Stock", "Bill", "Mail"]
    )
    assert diagram.edges == [
        ("Bill", "Consume created, updated", "mailer"),
        ("mailer", None, "Mail"),
        ("Order", "JoinConsume created, updated", "biller"),
        ("Stock", "JoinConsume created, updated", "biller"),
        ("biller", None, "Bill"),
        ("biller", None, "Mail"),
        ("Order", "Consume created, updated", "store"),
        ("store", None, "Stock"),
        ("Mail", "Consume created, updated", "status"),
        ("status", "lifecycle", "Bill"),
        ("status", None, "Mail"),
    ]
    assert diagram.dotted == [("Bill", "Consume reads", "status")]
    assert diagram.groups["B"] == "The shop"


def test_a_stage_is_the_generation_in_which_an_agent_can_first_run() -> None:
    diagram = read(blueprint(shop()))
    assert diagram.in_group("stage 1") == ["store"]
    assert diagram.in_group("stage 2") == ["biller"]
    assert diagram.in_group("stage 3") == ["mailer", "status"]
    assert "stage 4" not in diagram.groups.values()
    flat = read(blueprint(shop(), with_stages=False, title="flat"))
    assert list(flat.groups.values()) == ["flat"]
    assert flat.in_group("flat") == ["mailer", "biller", "store", "status"]


def test_a_circle_begins_with_its_first_agent() -> None:
    there = create_agent("there", consumes=[Consume(Order)], produces=[Produce(Stock)])
    back = create_agent("back", consumes=[Consume(Stock)], produces=[Produce(Order)])
    own = create_agent("own", consumes=[Consume(Mail)], produces=[Produce(Mail)])
    diagram = read(blueprint([there, back, own]))
    assert [diagram.in_group(f"stage {n}") for n in (1, 2, 3)] == [["there"], ["back"], ["own"]]


def test_absent_types_triggers_and_other_events() -> None:
    class Watcher(Agent):
        triggers = (Trigger(EventType.ARTIFACT_STALE, Order), Trigger(EventType.ARTIFACT_DELETED))

    agents = [
        create_agent("gap", consumes=[AbsentConsume(Order, absent_type=Bill, key=key)]),
        create_agent("undo", consumes=[Consume(Order, event_types=[EventType.ARTIFACT_DELETED])]),
        Watcher("watcher"),
    ]
    diagram = read(blueprint(agents))
    assert diagram.edges == [
        ("Order", "AbsentConsume created, updated", "gap"),
        ("Order", "Consume deleted", "undo"),
        ("Order", "Trigger stale", "watcher"),
    ]
    assert diagram.dotted == [("Bill", "AbsentConsume absent", "gap")]


def test_two_types_of_one_name_are_told_apart() -> None:
    other = create_model("Order", __module__="elsewhere")
    agent = create_agent("a", consumes=[Consume(Order), Consume(other)])
    diagram = read(blueprint(agent))
    assert set(diagram.nodes.values()) == {"a", f"{__name__}.Order", "elsewhere.Order"}


def test_no_agents_make_an_empty_diagram() -> None:
    assert blueprint([], title="none") == 'flowchart LR\n    subgraph B["none"]\n    end\n'


# -- a context -----------------------------------------------------------------------------------


def test_a_context_by_type_with_its_relations() -> None:
    context = Context()
    context.create(Order(), id="o1")
    context.create(Bill(), id="b1")
    context.create(Order(), id="o2")
    context.link("b1", "bill_for", "o1")
    context.link("o2", "replaces", "o1")
    context.link("o2", "lost", "gone")
    text = context_to_mermaid(context)
    assert text == (
        "flowchart TD\n"
        '    subgraph T0["Order"]\n'
        '        n0["o1"]\n'
        '        n2["o2"]\n'
        "    end\n"
        '    subgraph T1["Bill"]\n'
        '        n1["b1"]\n'
        "    end\n"
        '    n1 -->|"bill_for"| n0\n'
        '    n2 -->|"replaces"| n0\n'
    )
    assert "-->" not in context_to_mermaid(context, relate=False)
    limited = read(context_to_mermaid(context, limit=2))
    assert list(limited.nodes.values()) == ["o1", "b1"]
    assert limited.edges == [("b1", "bill_for", "o1")]
    assert context_to_mermaid(context, limit=0) == context_to_mermaid(Context()) == "flowchart TD\n"
    with pytest.raises(ValueError, match="limit of 0 or more"):
        context_to_mermaid(context, limit=-1)


def test_drawing_a_context_changes_nothing() -> None:
    context = Context()
    context.create(Order(), id="o1")
    before = (context.to_dict(), len(context.pending_events()))
    context_to_mermaid(context)
    assert (context.to_dict(), len(context.pending_events())) == before


def test_types_are_named_by_their_classes_whatever_their_id() -> None:
    class Registered(BaseModel):
        text: str = ""

    register_type(Registered, type_id="test-viz/registered")
    context = Context()
    context.create(Registered())
    context.create(create_model("Order", __module__="elsewhere_a")(), id="a")
    context.create(create_model("Order", __module__="elsewhere_b")(), id="b")
    groups = read(context_to_mermaid(context)).groups
    assert list(groups.values()) == ["Registered", "elsewhere_a.Order", "elsewhere_b.Order"]


@pytest.mark.parametrize(
    ("type_id", "name"),
    [
        ("shop.models.Order", "Order"),
        ("shop.Outer.Inner", "Inner"),
        ("tests.t.test_it.<locals>.Note", "Note"),
        ("shop.Box[shop.models.Order]", "Box[Order]"),
        ("shop.Pair[shop.A, int]", "Pair[A, int]"),
        ("order", "order"),
        ("my-app.order-v1", "my-app.order-v1"),
        ("order/1.0", "order/1.0"),
    ],
)
def test_the_name_in_a_type_id(type_id: str, name: str) -> None:
    assert type_name(type_id) == name


# -- labels --------------------------------------------------------------------------------------

HOSTILE = [
    'a"b',
    "end",
    "x --> y",
    "]) subgraph",
    "#quot; #35;",
    "<script>alert(1)</script> &amp;",
    "`md` **b** _i_ ~s~",
    "%% comment",
    "line\nbreak\r\n\ttab\x00 \u2028",
    "1. list",
    "- list",
    "+ ",
    "style a:#fff;",
    "classDef x:y#z;",
    "{{}} || ;; @{ shape: x }",
    "back\\nslash",
    "$$x^2$$",
    "имя 名前 🙂",
    " ",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_show_as_they_are(text: str) -> None:
    context = Context()
    context.create(Order(), id=f"{text}")
    context.create(Order(), id="other")
    context.link("other", text, text)
    diagram = read(context_to_mermaid(context))
    assert list(diagram.nodes.values()) == [plain(text), "other"]
    assert diagram.edges == [("other", plain(text), plain(text))]
    agents = read(blueprint(create_agent(text, consumes=[Consume(Order)]), title=text))
    assert plain(text) in agents.nodes.values()
    assert agents.groups["B"] == plain(text)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30))
@example("0.")
@example("style:#;")
def test_any_title_gives_a_valid_diagram(text: str) -> None:
    assert read(blueprint([], title=text)).groups["B"] == plain(text)


def test_what_mermaid_would_misread_is_an_entity() -> None:
    titles = {text: blueprint([], title=text).split("\n")[1] for text in HOSTILE}
    assert '["1#46; list"]' in titles["1. list"]
    assert '["#45; list"]' in titles["- list"]
    assert ":" not in titles["style a:#fff;"]
    assert titles[" "].endswith('["#32;"]')
