"""What the job stores: orders, receipts, and what was sold altogether.

Owns the shapes and what makes an order valid. Each model has a `TYPE_ID` of its own, so that a store
stays readable when a class or this module moves.
"""

from __future__ import annotations

from decimal import Decimal
from email.errors import MessageError
from email.headerregistry import Address
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, StringConstraints


def _one_line(value: object) -> object:
    """Names and products go into mail headers, where a line break would start another header."""
    return " ".join(value.split()) if isinstance(value, str) else value


def _deliverable(address: str) -> str:
    """A mail header has rules of its own, such as no dot beside a dot."""
    try:
        Address(addr_spec=address)
    except (ValueError, IndexError, MessageError) as error:
        raise ValueError(f"is no mail address: {error}") from error
    return address


Line = Annotated[str, BeforeValidator(_one_line), Field(min_length=1, max_length=200)]
OrderId = Annotated[
    str,
    StringConstraints(strip_whitespace=True, max_length=40, pattern=r"^[A-Za-z0-9]+([._-][A-Za-z0-9]+)*$"),
]
MailAddress = Annotated[
    str,
    StringConstraints(
        strip_whitespace=True, max_length=254, pattern=r'^[^\s\x00-\x1f\x7f@<>(),;:"\\]+@[^\s@<>(),;:"\\]+$'
    ),
    AfterValidator(_deliverable),
]
Price = Annotated[Decimal, Field(ge=0, max_digits=10, decimal_places=2)]


class Order(BaseModel):
    """One row of the file. `unit_price` is in euros."""

    TYPE_ID: ClassVar[str] = "examples.orders.Order"

    order_id: OrderId
    customer: Line
    email: MailAddress
    product: Line
    quantity: int = Field(ge=1, le=10_000)
    unit_price: Price
    phone: str = ""
    note: str = ""


class Receipt(BaseModel):
    """What the customer is told. `total` is in euros."""

    TYPE_ID: ClassVar[str] = "examples.orders.Receipt"

    order_id: str
    total: Decimal
    text: str


class Sales(BaseModel):
    """What all receipts say together. `revenue` is in euros."""

    TYPE_ID: ClassVar[str] = "examples.orders.Sales"

    receipts: int
    revenue: Decimal
