"""JSON and names as people write them: what is read, and the line and field of what is not."""

from __future__ import annotations

import pytest

from reactifact._store._history.adoption.text import Refused, end_of_link, id_in_name, line_of, read_json


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": [1, 2.5], "b": null}',
        b'{\r\n  "a": [1, 2.5],\r\n  "b": null\r\n}\r\n',
        b'\xef\xbb\xbf{"b":null,"a":[1,2.5]}',
    ],
)
def test_any_formatting_is_read(data: bytes) -> None:
    assert read_json(data) == {"a": [1, 2.5], "b": None}


@pytest.mark.parametrize(
    ("data", "reason", "line"),
    [
        (b'{\n"a": 1,\n}', "it is not JSON", 3),
        (b'{\n<<<<<<< ours\n"a": 1\n=======\n"a": 2\n>>>>>>> theirs\n}', "a conflict was left open", 2),
        (b'{\n"a": "\xff"}', "it is not UTF-8: byte 0xff", 2),
        (b"\xff\xfe{\0}\0", "UTF-16", 1),
        (b'{"a": 1, "a": 2}', "'a' stands twice in one object", None),
        (b"[" * 100_000, "nested too deeply", None),
        (b"", "it is not JSON", 1),
    ],
)
def test_what_is_not_json_is_refused_with_its_line(data: bytes, reason: str, line: int | None) -> None:
    with pytest.raises(Refused) as caught:
        read_json(data)
    assert reason in caught.value.reason
    assert caught.value.line == line


def test_the_line_of_a_field_is_found_as_far_as_its_names_lead() -> None:
    data = b'{\n"item": {"price": 1},\n"parts": [\n{"price": 2}\n]\n}'
    assert line_of(data, "item.price") == 2
    assert line_of(data, "parts[0].price") == 4
    assert line_of(data, "absent") is None


def test_names_are_read_as_we_write_them_and_as_a_person_does() -> None:
    assert id_in_name("order%3A42.json", ".json") == "order:42"
    assert id_in_name("dark jam.json", ".json") == "dark jam"
    with pytest.raises(Refused, match="no id can be read"):
        id_in_name(".json", ".json")


def test_a_link_without_an_end_is_named_by_its_place() -> None:
    assert end_of_link({"relation": "of", "target": "x"}, "target", 0) == "x"
    with pytest.raises(Refused, match="link 2 names no target") as caught:
        end_of_link({"relation": "of"}, "target", 1)
    assert caught.value.where == "links[1].target"
