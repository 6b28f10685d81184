"""State that `==` does not look at: it comes back from a payload, or is refused with a way out."""

from __future__ import annotations

import math
import struct
from base64 import b64encode
from collections import OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID, uuid1
from zoneinfo import ZoneInfo

import pytest
from pydantic import BaseModel, ConfigDict, SecretStr, field_serializer, field_validator

from reactifact import Context, PendingAction
from reactifact.errors import PayloadError
from reactifact.types import registry as types
from reactifact.types.codec import decode_payload, dump, encode_payload

BERLIN = ZoneInfo("Europe/Berlin")


class Times(BaseModel):
    at: datetime | None = None
    clock: time | None = None


class Values(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    number: float = 0.0
    amount: Decimal = Decimal(0)
    last: deque[int] = deque()
    counts: defaultdict[str, int] = defaultdict(int)
    free: Any = None


def back(model: BaseModel) -> Any:
    cls = type(model)
    data = encode_payload(model)
    return decode_payload(cls, data, type_id=types.type_id_of(cls), revision=types.revision_of(cls))


def refused(model: BaseModel) -> str:
    with pytest.raises(PayloadError) as caught:
        encode_payload(model)
    return str(caught.value)


@pytest.mark.parametrize(
    "when",
    [
        datetime(2026, 3, 28, 9, tzinfo=BERLIN),
        datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN),  # of the hour that is there twice
        datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN),  # of the hour that is left out
        datetime(2026, 7, 1, tzinfo=ZoneInfo("Asia/Kathmandu")),  # which changed its offset once
    ],
)
def test_a_zone_that_changes_its_offset_is_refused_with_the_way_out(when: datetime) -> None:
    message = refused(Times(at=when))
    assert "Times.at cannot be stored: a time is stored with its offset and not with the zone" in message
    assert "value.astimezone(timezone.utc)" in message
    stored = back(Times(at=when.astimezone(UTC))).at  # what the message says
    assert stored.timestamp() == when.timestamp()
    assert stored + timedelta(days=1) == when.astimezone(UTC) + timedelta(days=1)


@pytest.mark.parametrize("zone", [UTC, ZoneInfo("UTC"), timezone(timedelta(hours=2))])
def test_a_zone_that_never_changes_is_kept_as_its_offset(zone: Any) -> None:
    when = datetime(2026, 3, 28, 9, tzinfo=zone)
    stored = back(Times(at=when, clock=time(9, tzinfo=zone)))
    assert (stored.at + timedelta(days=200)).isoformat() == (when + timedelta(days=200)).isoformat()
    assert stored.clock.isoformat() == time(9, tzinfo=zone).isoformat()


@pytest.mark.parametrize(
    "model",
    [
        Times(at=datetime(2026, 10, 25, 2, 30, fold=1)),
        Times(at=datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=UTC)),
        Times(clock=time(2, 30, fold=1)),
    ],
)
def test_a_fold_is_refused_with_the_way_out(model: Times) -> None:
    assert "fold=1, which of two equal clock times is meant, is not stored. Store an aware" in refused(model)
    plain = {name: value and value.replace(fold=0) for name, value in model.__dict__.items()}
    assert back(Times(**plain)) == model


def test_a_clock_time_in_a_zone_is_refused() -> None:
    assert refused(Times(clock=time(9, tzinfo=BERLIN))).startswith("Times.clock cannot be stored: ")


def test_a_serializer_that_keeps_the_zone_is_the_other_way_out() -> None:
    class Zoned(BaseModel):
        at: datetime

        @field_serializer("at")
        def write(self, value: datetime) -> str:
            zone = value.tzinfo
            assert isinstance(zone, ZoneInfo)
            return f"{value.replace(tzinfo=None).isoformat()} {value.fold} {zone.key}"

        @field_validator("at", mode="before")
        @classmethod
        def read(cls, value: Any) -> Any:
            if not isinstance(value, str):
                return value
            clock, fold, zone = value.split()
            return datetime.fromisoformat(clock).replace(fold=int(fold), tzinfo=ZoneInfo(zone))  # type: ignore[arg-type]

    when = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN)
    stored = back(Zoned(at=when)).at
    assert (stored.tzinfo, stored.fold) == (BERLIN, 1)


def test_signs_digits_and_bits_of_numbers_come_back() -> None:
    assert math.copysign(1, back(Values(number=-0.0)).number) == -1
    for text in ("1.0", "1.00", "-0", "1E+2", "0E-7"):
        assert back(Values(amount=Decimal(text))).amount.as_tuple() == Decimal(text).as_tuple()


def test_signs_and_digits_that_a_serializer_drops_are_refused() -> None:
    class Rounded(Values):
        @field_serializer("amount")
        def write(self, value: Decimal) -> str:
            return str(value.normalize())

        @field_serializer("number")
        def write_number(self, value: float) -> float:
            return value + 0.0

    assert "Rounded.amount cannot be stored: Decimal('1.00') would come back" in refused(
        Rounded(amount=Decimal("1.00"))
    )
    assert "Rounded.number cannot be stored: -0.0 would come back as 0.0" in refused(Rounded(number=-0.0))


def test_the_bound_of_a_deque_and_the_factory_of_a_dict_are_refused_where_they_go() -> None:
    assert back(Values(last=deque([1, 2]))).last == deque([1, 2])
    assert ".last.maxlen cannot be stored: 3 would come back as None" in refused(
        Values.model_construct(last=deque([1], maxlen=3))
    )
    assert back(Values(counts=defaultdict(int, a=1))).counts.default_factory is int
    assert ".counts.default_factory cannot be stored" in refused(
        Values.model_construct(counts=defaultdict(float, a=1))
    )


def test_attributes_that_the_equality_of_a_foreign_class_ignores_are_compared() -> None:
    class Grade:
        def __init__(self, value: int, note: str = "") -> None:
            self.value, self.note = value, note

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Grade) and self.value == other.value

        __hash__ = None  # type: ignore[assignment]

    class Graded(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        grade: Grade

        @field_serializer("grade")
        def write(self, value: Grade) -> int:
            return value.value

        @field_validator("grade", mode="before")
        @classmethod
        def read(cls, value: Any) -> Any:
            return Grade(value) if isinstance(value, int) else value

    assert back(Graded(grade=Grade(2))).grade.value == 2
    assert ".grade.note cannot be stored: 'late' would come back as ''" in refused(
        Graded(grade=Grade(2, "late"))
    )


@pytest.mark.parametrize(
    ("value", "declared"),
    [(True, int), (1, bool), (type("Name", (str,), {})("a"), str), (OrderedDict(b=1, a=2), Any)],
)
def test_kinds_that_compare_equal_stay_apart(value: Any, declared: Any) -> None:
    class One(BaseModel):
        value: declared

    message = refused(One.model_construct(value=value))
    assert message.startswith("One.value cannot be stored: ") or "One.value" in message


# -- what is not a finite number ------------------------------------------------------------------------


class Scores(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="strings")
    scores: dict[str, float]
    best: set[float] = set()


class Report(BaseModel):
    parts: list[Scores]


def test_a_model_that_writes_nan_as_text_is_stored_also_inside_another() -> None:
    scores = Scores(scores={"a": 0.5, "b": math.nan, "c": -math.inf}, best={math.inf, 2.0})
    stored = back(Report(parts=[scores])).parts[0]
    assert math.isnan(stored.scores["b"])
    assert (stored.scores["a"], stored.scores["c"], stored.best) == (0.5, -math.inf, {math.inf, 2.0})
    assert dump(scores)["scores"] == {"a": 0.5, "b": "NaN", "c": "-Infinity"}
    context = Context()
    context.create(scores, id="m")
    assert Context.from_dict(context.to_dict()).get("m").data.scores["c"] == -math.inf  # type: ignore[union-attr]
    assert context.update("m", scores).version == 0  # type: ignore[union-attr]


def test_bits_of_a_nan_that_text_does_not_hold_are_refused() -> None:
    odd = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000123))[0]
    assert "would come back" in refused(Scores(scores={"a": odd})) or "JSON has no" in refused(
        Scores(scores={"a": odd})
    )


@pytest.mark.parametrize("mode", ["null", "constants"])
def test_another_setting_is_refused_and_the_message_names_the_one_that_works(mode: Any) -> None:
    class Plain(BaseModel):
        model_config = ConfigDict(ser_json_inf_nan=mode)
        score: float

    assert 'JSON has no nan. Set ser_json_inf_nan="strings"' in refused(Plain(score=math.nan))


# -- classes of reactifact's own, whose fields nobody can declare anew -----------------------------------


class Color(Enum):
    RED = "red"


class Line(BaseModel):
    id: str = "7"


@pytest.mark.parametrize(
    ("value", "said", "followed"),
    [
        (UUID(int=1), "str(value)", str),
        (Decimal("19.90"), "str(value)", str),
        (PurePosixPath("a"), "str(value)", str),
        (datetime(2026, 1, 1, tzinfo=UTC), "value.isoformat()", lambda v: v.isoformat()),
        (date(2026, 1, 1), "value.isoformat()", lambda v: v.isoformat()),
        (timedelta(1), "value.total_seconds()", lambda v: v.total_seconds()),
        (b"\xff\xd8", "base64.b64encode(value).decode()", lambda v: b64encode(v).decode()),
        (Line(), 'value.model_dump(mode="json")', lambda v: v.model_dump(mode="json")),
        (Color.RED, "value.value", lambda v: v.value),
        ({3, 1}, "sorted(value)", sorted),
        ((1, 2), "a list", list),
        (math.nan, "None", lambda v: None),
        ({1: "a"}, "{str(key): item for key, item in value.items()}", lambda v: {"1": "a"}),
        (SecretStr("x"), "look the secret up in its resources", lambda v: "name"),
        (object(), "Give plain JSON data", lambda v: "text"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_advice_on_the_payload_of_an_action_can_be_followed(value: Any, said: str, followed: Any) -> None:
    def action(item: Any) -> PendingAction:
        return PendingAction(kind="invoice", idempotency_key="k", payload={"rows": [{"value": item}]})

    message = refused(action(value))
    assert message.startswith("PendingAction.payload['rows'][0]['value']")
    assert said in message
    for impossible in ("model_config", "field_serializer", "eclare the type"):
        assert impossible not in message
    assert back(action(followed(value))) == action(followed(value))


def test_advice_on_the_answer_to_a_question_can_be_followed() -> None:
    context = Context()
    question = context.interrupt("how much?")
    with pytest.raises(PayloadError, match=r"PendingQuestion.resolution cannot .* pass str\(value\)"):
        context.resume(question.id, Decimal("5"))
    assert not question.data.answered
    context.resume(question.id, str(Decimal("5")))
    assert question.data.resolution == "5"


def test_the_label_of_a_fixed_offset_and_the_safety_of_a_uuid_are_not_compared() -> None:
    class Keyed(BaseModel):
        key: UUID

    made = uuid1()
    assert back(Keyed(key=made)).key == made
    when = datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1), "CET"))
    assert back(Times(at=when)).at.isoformat() == "2026-01-01T00:00:00+01:00"
