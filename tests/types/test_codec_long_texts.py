"""A long text is written and checked without being held a third time, and nothing is checked less."""

from __future__ import annotations

import tracemalloc
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from reactifact.errors import PayloadError
from reactifact.types.codec import encode_payload

LONG = 200_000


class Page(BaseModel):
    title: str
    text: str = ""
    note: str | None = None


def test_a_long_text_is_held_once_more_while_it_is_encoded() -> None:
    size = 4_000_000
    page = Page(title="t", text="é" + "a" * size)
    encode_payload(page)
    tracemalloc.start()
    try:
        data = encode_payload(page)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.3 * len(data)
    assert Page.model_validate_json(data) == page


def test_the_model_stays_as_it_is() -> None:
    page = Page(title="t", text="a" * LONG, note="b" * LONG)
    data = encode_payload(page)
    assert (len(page.text), len(page.note or "")) == (LONG, LONG)
    assert Page.model_validate_json(data) == page


class Stripped(BaseModel):
    model_config = ConfigDict(str_strip_whitespace=True)
    text: str


class Bounded(BaseModel):
    text: Annotated[str, Field(max_length=10)]


class Cut(BaseModel):
    text: str

    @field_validator("text")
    @classmethod
    def _cut(cls, text: str) -> str:
        return text[:1000]


class Summed(BaseModel):
    text: str
    length: int = 0

    @field_validator("length")
    @classmethod
    def _counted(cls, length: int, info: ValidationInfo) -> int:
        return len(info.data["text"])


class Whole(BaseModel):
    text: str
    length: int = 0

    @model_validator(mode="after")
    def _counted(self) -> Whole:
        self.length = len(self.text)
        return self


class After(BaseModel):
    text: str
    length: int = 0

    def model_post_init(self, context: Any) -> None:
        self.length = len(self.text)


class Left(BaseModel):
    text: str = Field(default="a" * 80, exclude=True)


class Holder(BaseModel):
    text: str
    inner: Cut


@pytest.mark.parametrize(
    "model",
    [
        Stripped.model_construct(text=" " + "a" * LONG),
        Bounded.model_construct(text="a" * LONG),
        Cut.model_construct(text="a" * LONG),
        Summed.model_construct(text="a" * LONG, length=1),
        Whole.model_construct(text="a" * LONG, length=1),
        After.model_construct(text="a" * LONG),
        Left(text="a" * LONG),
        Holder.model_construct(text="a" * LONG, inner=Cut.model_construct(text="b" * 2000)),
        Page(title="t", text="a" * LONG + "\ud800"),
        Page.model_construct(title=1, text="a" * LONG),
    ],
    ids=lambda model: type(model).__name__,
)
def test_what_would_not_come_back_beside_a_long_text_is_refused(model: BaseModel) -> None:
    if isinstance(model, After):
        model.length = 1
    with pytest.raises(PayloadError):
        encode_payload(model)


def test_models_with_functions_that_agree_are_written() -> None:
    for model in (Cut(text="a" * LONG), Summed(text="a" * LONG, length=1), Whole(text="a" * LONG)):
        assert type(model).model_validate_json(encode_payload(model)) == model
