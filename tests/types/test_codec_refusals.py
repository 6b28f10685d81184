"""The payload codec refuses what would not come back, naming class, field, reason and way out."""

from __future__ import annotations

import json
import re
import threading
import zoneinfo
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal

import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    RootModel,
    SecretStr,
    field_serializer,
    field_validator,
)

from reactifact.errors import PayloadError, UnreadablePayload
from reactifact.types import registry as types
from reactifact.types.codec import decode_dict, decode_payload, dump, encode_payload


class Line(BaseModel):
    price: float
    sku: str = "a"


class SpecialLine(Line):
    rebate: int = 0


class Order(BaseModel):
    lines: list[Line] = []
    by_name: dict[str, Line] = {}
    note: str = ""
    free: Any = None


class Login(BaseModel):
    password: SecretStr


class Revealed(BaseModel):
    password: SecretStr

    @field_serializer("password")
    def reveal(self, value: SecretStr) -> str:
        return value.get_secret_value()


class Excluded(BaseModel):
    kept: int = 0
    left_out: int = Field(default=0, exclude=True)


class Blob(BaseModel):
    raw: bytes = b""
    parts: list[bytes] = []


class HalfBase64(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64")
    raw: bytes


class Noted(BaseModel):
    name: str = "a"
    _note: str | None = PrivateAttr(None)
    _lock: Any = PrivateAttr(default_factory=threading.RLock)


class Prefixed(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def prefix(cls, value: str) -> str:
        return f"x{value}"


class Numbers(BaseModel):
    numbers: set[float] = set()
    when: datetime | None = None
    choice: int | bool = 0
    order: OrderedDict[str, int] = OrderedDict()


class Calls(BaseModel):
    action: Callable[[], int]


@dataclass
class Plain:
    words: list[str]


class Holder(BaseModel):
    plain: Plain


class Words(RootModel[list[str]]):
    pass


def refused(model: BaseModel) -> str:
    with pytest.raises(PayloadError) as caught:
        encode_payload(model)
    return str(caught.value)


def stored(model: BaseModel) -> Any:
    cls = type(model)
    return decode_payload(
        cls, encode_payload(model), type_id=types.type_id_of(cls), revision=types.revision_of(cls)
    )


@pytest.mark.parametrize(
    ("model", "place", "reason"),
    [
        (
            Order(lines=[Line(price=1), Line(price=float("nan"))]),
            "Order.lines[1].price",
            "JSON has no nan",
        ),
        (Order(by_name={"x": Line(price=float("-inf"))}), "Order.by_name['x'].price", "JSON has no -inf"),
        (Order(free=[{"a": float("inf")}]), "Order.free[0]['a']", "JSON has no inf"),
        (Order(lines=[SpecialLine(price=1)]), "Order.lines[0]", "SpecialLine there, or a union"),
        (Order(free={1: "a"}), "Order.free[1]", "keys are texts in JSON: the key 1 would come back as '1'"),
        (Order(free=(1, 2)), "Order.free", "(1, 2) would come back as [1, 2] (tuple, list)"),
        (Order(free={1}), "Order.free", "(set, list)"),
        (Order(free=Line(price=1)), "Order.free", "(Line, dict)"),
        (Order.model_construct(note="\ud800"), "Order.note", "lone surrogate"),
        (Order.model_construct(note=5), "Order.note", "does not validate when it is read"),
        (Order(free=object()), "Order.free", "has no JSON form"),
        (Login(password=SecretStr("hunter2")), "Login.password", "written as asterisks"),
        (Excluded(left_out=3), "Excluded.left_out", "an excluded field is not stored"),
        (Blob(raw=b"\xff"), "Blob.raw", 'ser_json_bytes="base64" and val_json_bytes="base64"'),
        (Blob(parts=[b"a", b"\xfe"]), "Blob.parts[1]", "no UTF-8 text"),
        (HalfBase64(raw=b"abc"), "HalfBase64.raw", 'val_json_bytes="base64"'),
        (Prefixed.model_construct(name="a"), "Prefixed.name", "'a' would come back as 'xa'"),
        (Numbers.model_construct(choice=True, numbers={True}), "Numbers.numbers", "True would come back as"),
        (Numbers(order=OrderedDict(b=1, a=2)), "Numbers.order", "order of keys"),
        (Calls(action=lambda: 1), "Calls.action", "has no JSON form"),
        (Holder(plain=Plain(["a", "\udfff"])), "Holder.plain.words[1]", "lone surrogate"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refusals_name_the_field_and_the_reason(model: BaseModel, place: str, reason: str) -> None:
    message = refused(model)
    assert message.startswith((f"{place} cannot be stored: ", f"{place}{{}} cannot be stored: "))
    assert reason in message
    assert message.endswith("Nothing was written")
    assert "hunter2" not in message


def test_a_private_attribute_that_was_set_is_refused_and_a_lock_is_not() -> None:
    noted = Noted()
    assert stored(noted).name == "a"
    noted._note = "lost"
    message = refused(noted)
    assert message.startswith("Noted._note cannot be stored: a private attribute is not stored")


def test_a_time_whose_offset_cannot_be_written_is_refused() -> None:
    local_mean_time = datetime(1850, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Amsterdam"))
    assert refused(Numbers(when=local_mean_time)).startswith("Numbers.when cannot be stored: ")


def test_true_and_one_stay_apart_under_keys_and_in_sets() -> None:
    assert refused(Order(free={True: "a"})).startswith("Order.free[True] cannot be stored: ")

    class Flags(BaseModel):
        flags: set[int]

    assert refused(Flags.model_construct(flags={True})).startswith("Flags.flags{} cannot be stored: ")


def test_an_int_where_a_float_is_declared_is_that_float() -> None:
    copied = Line(price=1.0).model_copy(update={"price": 2})
    assert encode_payload(copied) == encode_payload(Line(price=2.0))
    assert stored(copied) == copied


def test_an_excluded_field_at_its_default_and_a_revealed_secret_come_back() -> None:
    assert stored(Excluded(kept=1)) == Excluded(kept=1)
    assert stored(Revealed(password=SecretStr("x"))) == Revealed(password=SecretStr("x"))


def test_data_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert "has no JSON form" in refused(Order(free=endless))


def test_a_model_that_is_built_late_is_stored_with_its_sets_in_order() -> None:
    class Late(BaseModel):
        model_config = ConfigDict(defer_build=True)
        words: set[str]

    data = encode_payload(Late(words={"c", "a", "b"}))
    assert json.loads(data) == {"words": ["a", "b", "c"]}


def test_a_root_model_is_its_root() -> None:
    words = Words(["a", "b"])
    assert stored(words) == words
    assert dump(words) == ["a", "b"]
    assert decode_dict(Words, ["a", "b"], type_id=types.type_id_of(Words)) == words
    assert refused(Words(["\ud800"])).startswith("Words")


def test_the_dump_has_field_names_and_no_aliases() -> None:
    class Aliased(BaseModel):
        model_config = ConfigDict(serialize_by_alias=True)
        number: int = Field(alias="n")

    assert dump(Aliased(n=1)) == {"number": 1}
    assert stored(Aliased(n=1)) == Aliased(n=1)


# --- reading -----------------------------------------------------------------------------------------


class Old(BaseModel):
    full_name: str


class New(BaseModel):
    first: str
    last: str
    hooks: ClassVar[list[dict[str, Any]]] = []


def split(payload: dict[str, Any]) -> dict[str, Any]:
    New.hooks.append(dict(payload))
    payload["first"], payload["last"] = payload.pop("full_name").split()  # fails on the new shape
    return payload


@pytest.fixture(autouse=True)
def person() -> None:
    types.register(New, type_id="codec:person", migrate=split)
    New.hooks.clear()


def test_the_hook_runs_only_where_the_revision_differs() -> None:
    old = encode_payload(Old(full_name="Ada Lovelace"))
    new = decode_payload(New, old, type_id="codec:person", revision=types.revision_of(Old))
    assert new == New(first="Ada", last="Lovelace")
    again = decode_payload(New, encode_payload(new), type_id="codec:person", revision=types.revision_of(New))
    assert again == new
    assert New.hooks == [{"full_name": "Ada Lovelace"}]
    assert decode_payload(New, old, type_id="codec:person", revision=None) == new


def test_a_dict_of_unknown_revision_is_migrated_and_left_alone() -> None:
    payload = {"full_name": "Ada Lovelace"}
    assert decode_dict(New, payload, type_id="codec:person") == New(first="Ada", last="Lovelace")
    assert payload == {"full_name": "Ada Lovelace"}


def test_what_a_hook_raises_reaches_the_caller_with_the_type_on_it() -> None:
    with pytest.raises(KeyError) as caught:
        decode_dict(New, {"first": "Ada", "last": "Lovelace"}, type_id="codec:person")
    assert caught.value.__notes__ == ["raised by the migrate hook registered for type 'codec:person'"]


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        (
            b'{"lines": [{"price": "much"}]}',
            ["'shop:order'", "Order.lines[0].price", "valid number", "migrate"],
        ),
        (b'{"lines": {}}', ["'shop:order'", "Order.lines", "migrate"]),
        (b'{"lines": [', ["'shop:order'", "no JSON", "git fsck"]),
        (b"\xff", ["'shop:order'", "no JSON"]),
    ],
)
def test_a_payload_that_does_not_fit_names_type_field_and_way_out(data: bytes, parts: list[str]) -> None:
    with pytest.raises(UnreadablePayload) as caught:
        decode_payload(Order, data, type_id="shop:order", revision=None)
    for part in parts:
        assert part in str(caught.value)


def test_strict_models_are_read_from_dicts_too() -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)
        when: datetime
        pair: tuple[int, Literal["a"]]

    model = Strict(when=datetime(2024, 1, 1), pair=(1, "a"))
    assert decode_dict(Strict, dump(model), type_id="x") == model
    assert re.match("2024", dump(model)["when"])


class Mute(ValueError):
    """An exception without a text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Unwritable(BaseModel):
    number: int

    @field_serializer("number")
    def write(self, value: int) -> int:
        raise Mute


def test_a_serializer_whose_error_has_no_text_is_refused_by_field() -> None:
    with pytest.raises(PayloadError, match=r"Unwritable"):
        encode_payload(Unwritable(number=1))
