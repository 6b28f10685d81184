"""The payload codec: models of every kind of field come back as they were, byte for byte."""

from __future__ import annotations

import zoneinfo
from collections import deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from ipaddress import IPv4Address
from pathlib import PurePosixPath
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    Json,
    PrivateAttr,
    RootModel,
    computed_field,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass

from reactifact.types.codec import decode_dict, decode_payload, dump, encode_payload
from reactifact.types.ids import type_id_of
from reactifact.types.registry import revision_of

T = TypeVar("T")


class Color(Enum):
    RED = "red"
    BLUE = 2


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Point(NamedTuple):
    x: int
    y: float


@dataclass(frozen=True)
class Size:
    width: int
    names: tuple[str, ...] = ()


@pydantic_dataclass
class Weight:
    grams: Decimal


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    tags: frozenset[int] = frozenset()


class Cat(BaseModel):
    kind: Literal["cat"] = Field("cat", alias="species")
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"] = Field("dog", alias="species")
    good: bool


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    known: int


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, ser_json_bytes="base64", val_json_bytes="base64")
    number: int
    when: datetime
    raw: bytes
    names: tuple[str, ...]
    ids: set[UUID]
    by_day: dict[date, Decimal]


class Box(BaseModel, Generic[T]):
    value: T
    more: list[T] = []


class Tags(RootModel[set[str]]):
    pass


class Everything(BaseModel):
    amount: Decimal
    moment: datetime
    day: date
    clock: time
    span: timedelta
    key: UUID
    raw: bytes
    color: Color
    level: Level
    numbers: set[int]
    words: frozenset[str]
    mixed: set[int | str | None]
    pairs: set[tuple[int, str]]
    groups: frozenset[frozenset[int]]
    by_name: dict[str, set[str]]
    frozen: set[Frozen]
    row: tuple[int, str, float]
    many: tuple[bool, ...]
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    maybe: int | None
    either: int | float | bool | str
    where: PurePosixPath
    host: IPv4Address
    size: Size
    sizes: set[Size]
    weight: Weight
    point: Point
    line: deque[int]
    by_number: dict[int, list[Point]]
    by_day: dict[date, str]
    by_color: dict[Color, Level]
    box: Box[int]
    boxes: Box[Box[set[str]]]
    open: Open
    strict: Strict
    tags: Tags
    packed: Json[list[int]]
    free: Any
    first: int = Field(validation_alias="eins", serialization_alias="uno")
    second: int = Field(validation_alias=AliasChoices("zwei", AliasPath("deux", 0)))
    third: int = Field(alias="first")  # the name of another field, as an alias
    _note: str = PrivateAttr("same")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def total(self) -> int:
        return self.first + self.second


# Zones that change their offset, and `fold`, are refused: `tests/types/test_equality_faithful_state.py`.
zones = st.sampled_from([UTC, timezone(timedelta(hours=-3, minutes=-30)), zoneinfo.ZoneInfo("UTC")])
moments = st.datetimes(
    min_value=datetime(1970, 1, 2), max_value=datetime(9000, 1, 1), timezones=st.none() | zones
).map(lambda moment: moment.replace(fold=0))
text = st.text(max_size=8)
ints = st.integers(-(10**20), 10**20)
floats = st.floats(allow_nan=False, allow_infinity=False)
decimals = st.decimals(allow_nan=False, allow_infinity=False)
points = st.builds(Point, ints, floats)
sizes = st.builds(Size, st.integers(), st.tuples(text, text))
frozen = st.builds(Frozen, name=text, tags=st.frozensets(st.integers(), max_size=4))
free = st.recursive(
    st.none() | st.booleans() | ints | floats | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
days = st.dates()


def small(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(strategy, max_size=4)


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "amount": decimals,
    "moment": moments,
    "day": days,
    "clock": (st.times() | st.times(timezones=st.just(UTC))).map(lambda clock: clock.replace(fold=0)),
    "span": st.timedeltas(timedelta(days=-10000), timedelta(days=10000)),
    "key": st.uuids(),
    "raw": text.map(str.encode),
    "color": st.sampled_from(Color),
    "level": st.sampled_from(Level),
    "numbers": st.sets(ints, max_size=5),
    "words": st.frozensets(text, max_size=5),
    "mixed": st.sets(st.integers() | text | st.none(), max_size=5),
    "pairs": st.sets(st.tuples(ints, text), max_size=4),
    "groups": st.frozensets(st.frozensets(st.integers(), max_size=4), max_size=4),
    "by_name": st.dictionaries(text, st.sets(text, max_size=4), max_size=3),
    "frozen": small(frozen),
    "row": st.tuples(ints, text, floats),
    "many": small(st.booleans()).map(tuple),
    "pet": st.builds(Cat, lives=ints) | st.booleans().map(lambda good: Dog(good=good)),
    "maybe": st.none() | ints,
    "either": ints | floats | st.booleans() | text,
    "where": st.lists(st.text("abc.", min_size=1, max_size=3), max_size=3).map(lambda p: PurePosixPath(*p)),
    "host": st.ip_addresses(v=4),
    "size": sizes,
    "sizes": small(sizes).map(set),
    "weight": st.builds(Weight, decimals),
    "point": points,
    "line": small(ints).map(deque),
    "by_number": st.dictionaries(st.integers(), small(points), max_size=3),
    "by_day": st.dictionaries(days, text, max_size=3),
    "by_color": st.dictionaries(st.just(Color.RED), st.sampled_from(Level)),
    "box": st.builds(lambda v, m: Box[int](value=v, more=m), ints, small(ints)),
    "boxes": st.sets(text, max_size=4).map(
        lambda words: Box[Box[set[str]]](value=Box[set[str]](value=words, more=[words]))
    ),
    "open": st.builds(lambda known, extra: Open(known=known, extra=extra, Other=[extra]), ints, free),
    "strict": st.builds(
        Strict,
        number=ints,
        when=moments,
        raw=st.binary(),
        names=small(text).map(tuple),
        ids=st.sets(st.uuids(), max_size=3),
        by_day=st.dictionaries(days, decimals, max_size=3),
    ),
    "tags": st.sets(text, max_size=4).map(Tags),
    "packed": small(ints).map(lambda numbers: str(numbers)),
    "free": free,
    "eins": st.integers(),
    "zwei": st.integers(),
    "first": st.integers(),
}
everything = st.fixed_dictionaries(FIELDS).map(lambda values: Everything.model_validate(values))


def read(model: BaseModel, data: bytes) -> BaseModel:
    cls = type(model)
    return decode_payload(cls, data, type_id=type_id_of(cls), revision=revision_of(cls))


def types_of(value: Any) -> Any:
    """Return the shape of nested types, which `==` does not look at."""
    if isinstance(value, BaseModel):
        return type(value), {name: types_of(item) for name, item in value.__dict__.items()}
    if isinstance(value, dict):
        return type(value), {key: (type(key), types_of(item)) for key, item in value.items()}
    if isinstance(value, (list, tuple, deque)):
        return type(value), [types_of(item) for item in value]
    return type(value)


@given(everything)
def test_a_model_comes_back_equal_and_gives_the_same_bytes_again(model: Everything) -> None:
    data = encode_payload(model)
    back = read(model, data)
    assert back == model
    assert types_of(back) == types_of(model)
    assert encode_payload(back) == data


@given(everything)
def test_the_dump_comes_back_too(model: Everything) -> None:
    dumped = dump(model)
    assert "total" not in dumped  # computed: it would be an unknown field when it is read
    assert decode_dict(Everything, dumped, type_id=type_id_of(Everything)) == model


@given(st.data())
def test_equal_data_gives_equal_bytes(data: st.DataObject) -> None:
    words = data.draw(st.lists(text, unique=True, max_size=8))
    pairs = data.draw(st.dictionaries(text, st.integers(), max_size=8))
    other_words, other_pairs = data.draw(st.permutations(words)), data.draw(st.permutations(list(pairs)))

    class Bag(BaseModel):
        words: set[str]
        nested: list[frozenset[tuple[str, int]]]
        pairs: dict[str, int]

    one = Bag(words=set(words), nested=[frozenset(pairs.items())], pairs=pairs)
    other = Bag(
        words=set(other_words),
        nested=[frozenset((name, pairs[name]) for name in other_pairs)],
        pairs={name: pairs[name] for name in other_pairs},
    )
    assert one == other
    assert encode_payload(one) == encode_payload(other)
