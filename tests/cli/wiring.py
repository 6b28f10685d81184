"""Agents in the forms that `reactifact graph` takes."""

from __future__ import annotations

from typing import Any

from shop import Order, Receipt, process_order

from reactifact import Agent, Consume, Event, create_agent

notifier = create_agent("notifier", consumes=[Consume(Order)], produces=[process_order])
team = [notifier, create_agent("reader", consumes=[Consume(Receipt)])]
number = 5


class Watcher(Agent):
    """An agent that is a class."""

    consumes = (Consume(Receipt),)


class Needy(Agent):
    """An agent that is not made without an argument."""

    def __init__(self, what: str) -> None:
        super().__init__(what)

    async def run(self, event: Event | None, context: Any) -> None:
        """Do nothing."""


needy = Needy("needy")
