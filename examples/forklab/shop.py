"""The artifacts of the fork lab, and the two strategies that are tried on them."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel

from reactifact import Agent, Consume, ProduceCall, create_agent, produce


class Product(BaseModel):
    """What the shop sells. Prices are in cents."""

    TYPE_ID: ClassVar[str] = "example.Product"

    price: int
    in_stock: int
    sold_a_week: int


class Goal(BaseModel):
    """What somebody wants; it wakes the strategy of that name."""

    TYPE_ID: ClassVar[str] = "example.Goal"

    text: str


CATALOGUE = {
    "kettle": Product(price=40_00, in_stock=3, sold_a_week=9),
    "teapot": Product(price=30_00, in_stock=80, sold_a_week=1),
    "cup": Product(price=8_00, in_stock=200, sold_a_week=60),
    "samovar": Product(price=200_00, in_stock=2, sold_a_week=1),
}
"""The kettle is scarce, the teapot sells slowly, the samovar is both, the cup neither."""


@produce(Product, reacts_to=Goal)
async def raise_what_is_scarce(call: ProduceCall[Goal]) -> None:
    """Raise the price of what is nearly sold out by a tenth."""
    for product in call.context.list_artifacts(Product):
        if product.data.in_stock < 5:
            with call.effects.edit(product) as data:
                data.price = data.price * 11 // 10


@produce(Product, reacts_to=Goal)
async def lower_what_sells_slowly(call: ProduceCall[Goal]) -> None:
    """Lower the price of what hardly sells by a fifth."""
    for product in call.context.list_artifacts(Product):
        if product.data.sold_a_week < 5:
            with call.effects.edit(product) as data:
                data.price = data.price * 8 // 10


def strategies() -> dict[str, Agent]:
    """Return the agents that are tried, by name."""
    return {
        "careful": create_agent("careful", consumes=[Consume(Goal)], produces=[raise_what_is_scarce]),
        "bold": create_agent("bold", consumes=[Consume(Goal)], produces=[lower_what_sells_slowly]),
    }
