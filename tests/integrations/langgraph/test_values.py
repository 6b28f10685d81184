"""How values stand in the store: JSON for people, one file an item, what did not change is the same blob."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph_support import THREAD, Chat, put
from stores import counted_reads
from support import git

from reactifact._store._backends.kv import MemoryBackend
from reactifact._store.object_db import Database, Staging
from reactifact._store.objects import object_id
from reactifact.errors import UnreadablePayload
from reactifact.integrations.langgraph import ReactifactSaver
from reactifact.integrations.langgraph.values import Values, item_path

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=12) | st.dictionaries(st.text(), inner, max_size=4) | st.tuples(inner, inner)
    ),
    max_leaves=30,
)


@given(VALUES, VALUES)
def test_every_value_comes_back_as_it_was(first: Any, second: Any) -> None:
    values, objects = Values(JsonPlusSerializer()), Staging(Database(MemoryBackend()))
    expected = [
        JsonPlusSerializer().loads_typed(JsonPlusSerializer().dumps_typed(one)) for one in (first, second)
    ]
    kind, oid = values.put(objects, first, None)
    assert same(values.get(objects, kind, oid), expected[0])
    kind, oid = values.put(objects, second, None if oid is None else (kind, oid))
    assert same(values.get(objects, kind, oid), expected[1])


def same(left: Any, right: Any) -> bool:
    """Compare as `==` does, and the types and the order of keys too."""
    return repr(left) == repr(right)


@pytest.mark.parametrize(
    ("index", "path"),
    [(0, "x/0.json"), (7, "x/7.json"), (10, "xx/1x/10.json"), (1234, "xxxx/1xxx/12xx/123x/1234.json")],
)
def test_the_path_of_an_item_depends_on_its_place_alone(index: int, path: str) -> None:
    assert "/".join(item_path(index, "json")) == path


def test_a_list_that_grows_by_one_item_writes_that_item(tmp_path: Path) -> None:
    path = tmp_path / "state.git"
    chat = Chat(ReactifactSaver(path))
    for number in range(30):
        chat.say(AIMessage(f"line {number}", id=str(number)))
    changed = git(path, "diff", "--name-status", "t/main~1", "t/main", "--", "thread/channels").split()
    assert changed == ["A", "thread/channels/messages/xx/2x/29.msgpack"]
    found = chat.saver.get_tuple(chat.newest)
    assert found is not None
    assert [one.content for one in found.checkpoint["channel_values"]["messages"]] == [
        f"line {number}" for number in range(30)
    ]


def test_a_list_that_shrinks_or_is_edited_keeps_nothing_of_before(tmp_path: Path) -> None:
    chat = Chat(ReactifactSaver(tmp_path / "state.git"))
    chat.set([HumanMessage(str(number), id=str(number)) for number in range(25)])
    chat.set([HumanMessage("only", id="0")])
    assert [one.content for one in chat.messages()] == ["only"]
    chat.set(list(range(12)))
    assert chat.messages() == list(range(12))
    chat.set([])
    assert chat.messages() == []
    chat.set("a text now")
    assert chat.messages() == "a text now"


def test_a_channel_that_did_not_change_is_the_same_blob_and_is_not_encoded_again(tmp_path: Path) -> None:
    saver = ReactifactSaver(tmp_path / "state.git")
    big: dict[str, Any] = {"text": "x" * 1000}
    config = put(saver, None, {"big": big, "n": 1}, {"big": 1, "n": 1})
    big["text"] = object()  # would fail to be encoded
    put(saver, config, {"big": big, "n": 2}, {"n": 2}, versions={"big": 1, "n": 2})
    names = ("t/main~1", "t/main")
    blobs = {git(tmp_path / "state.git", "rev-parse", f"{one}:thread/channels/big.json") for one in names}
    assert len(blobs) == 1


def test_a_text_of_many_checkpoints_is_read_once_and_what_can_change_is_not_shared(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.git"
    saver = ReactifactSaver(path, durability="os")
    config: Any = None
    for step in range(1, 21):
        versions = {"text": 1, "form": 1, "n": step}
        values = {"text": "the same", "form": {"a": [1]}, "n": step}
        config = put(saver, config, values, {"n": step} if config else versions, versions=versions)
    fresh = ReactifactSaver(path)
    with counted_reads(fresh.database) as reads:
        found = list(fresh.list(THREAD))
    assert [one.checkpoint["channel_values"]["n"] for one in found] == list(range(20, 0, -1))
    text = object_id("blob", b'"the same"\n')
    assert [oid for call in reads for oid in call].count(text) == 1
    found[0].checkpoint["channel_values"]["form"]["a"].append(2)
    again = fresh.get_tuple(config)
    assert again is not None
    assert again.checkpoint["channel_values"] == {"text": "the same", "form": {"a": [1]}, "n": 20}


def test_json_is_written_for_people_in_the_order_of_its_keys(tmp_path: Path) -> None:
    saver = ReactifactSaver(tmp_path / "state.git")
    put(saver, None, {"form": {"b": "é", "a": [1, 2.5, None]}}, {"form": 1})
    shown = git(tmp_path / "state.git", "show", "t/main:thread/channels/form.json")
    assert shown == '{\n  "b": "é",\n  "a": [\n    1,\n    2.5,\n    null\n  ]\n}\n'


def test_an_encrypting_serde_leaves_nothing_readable(tmp_path: Path) -> None:
    serde = EncryptedSerializer(Rot())
    path = tmp_path / "state.git"
    with ReactifactSaver(path, serde=serde) as saver:
        config = put(
            saver, None, {"secret": "attack at dawn", "list": ["attack"] * 9}, {"secret": 1, "list": 1}
        )
        saver.put_writes(config, [("secret", "attack at noon")], "task", "~__pregel_pull, spy")
        found = saver.get_tuple(config)
    assert found is not None
    assert found.checkpoint["channel_values"] == {"secret": "attack at dawn", "list": ["attack"] * 9}
    assert found.pending_writes == [("task", "secret", "attack at noon")]
    objects = git(path, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
    assert len(objects) > 5
    for oid in objects:
        assert "attack" not in git(path, "cat-file", "-p", oid)


class Rot:
    """A cipher that is none, for the test: base64 of every byte turned around."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "rot", plaintext.hex()[::-1].encode()

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "rot"
        return bytes.fromhex(ciphertext.decode()[::-1])


def test_a_damaged_file_is_named() -> None:
    with pytest.raises(UnreadablePayload, match="is not JSON"):
        Values(JsonPlusSerializer()).decode("json", b"{")


def test_metadata_that_is_not_json_comes_back(tmp_path: Path) -> None:
    saver = ReactifactSaver(tmp_path / "state.git")
    config = put(saver, None, {"n": 1}, {"n": 1}, metadata={"who": HumanMessage("me", id="1"), "step": 3})
    found = saver.get_tuple(config)
    assert found is not None
    assert found.metadata["who"].content == "me"  # type: ignore[typeddict-item]
    head = json.loads(git(tmp_path / "state.git", "show", "t/main:thread/checkpoint.json"))
    assert head["metadata_kind"] == "msgpack"
