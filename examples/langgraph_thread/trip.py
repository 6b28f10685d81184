"""The graph: a subgraph looks up facts, a person is asked, it answers. It knows nothing of reactifact."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt


class Trip(TypedDict):
    """What the graph knows of one trip."""

    wish: str
    facts: Annotated[list[str], operator.add]
    approved: bool
    answer: str


class Research(TypedDict):
    """What the subgraph knows."""

    wish: str
    facts: Annotated[list[str], operator.add]


def trains(state: Research) -> dict[str, Any]:
    """Look up the trains."""
    return {"facts": [f"there is a train to {state['wish']} at 9:42"]}


def hotels(state: Research) -> dict[str, Any]:
    """Look up the hotels."""
    return {"facts": [f"the hotel in {state['wish']} costs 110"]}


def approve(state: Trip) -> dict[str, Any]:
    """Ask a person."""
    return {"approved": interrupt(f"Book {state['wish']}?")}


def book(state: Trip) -> dict[str, Any]:
    """Say what came of it."""
    done = "booked" if state["approved"] else "not booked"
    return {"answer": f"{state['wish']}: {done}; {'; '.join(state['facts'])}"}


def build(saver: BaseCheckpointSaver[Any]) -> Any:
    """Return the compiled graph over any checkpoint saver."""
    research = StateGraph(Research)
    research.add_node("trains", trains)
    research.add_node("hotels", hotels)
    research.add_edge(START, "trains")
    research.add_edge("trains", "hotels")
    research.add_edge("hotels", END)
    graph = StateGraph(Trip)
    graph.add_node("research", research.compile())
    graph.add_node("approve", approve)
    graph.add_node("book", book)
    graph.add_edge(START, "research")
    graph.add_edge("research", "approve")
    graph.add_edge("approve", "book")
    graph.add_edge("book", END)
    return graph.compile(checkpointer=saver)
