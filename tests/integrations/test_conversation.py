"""A conversation as artifacts: what is added, removed, forked and damaged."""

from __future__ import annotations

import pytest

from reactifact import Context
from reactifact.integrations.conversation import Conversation, ConversationDamaged, ConversationMessage


def texts(conversation: Conversation) -> list[str]:
    return [message["text"] for message in conversation.messages()]


def test_messages_come_back_in_order_and_the_last_can_be_taken_back() -> None:
    conversation = Conversation(Context(), "tea")
    assert (len(conversation), conversation.messages(), conversation.pop()) == (0, [], None)
    conversation.add({"text": str(number)} for number in range(12))
    assert texts(conversation) == [str(number) for number in range(12)]
    assert [message["text"] for message in conversation.messages(2)] == ["10", "11"]
    assert conversation.messages(0) == []
    assert conversation.pop() == {"text": "11"}
    conversation.add([{"text": "again"}])
    assert texts(conversation)[-2:] == ["10", "again"]
    conversation.clear()
    assert (len(conversation), conversation.messages()) == (0, [])
    conversation.add([{"text": "new"}])
    assert texts(conversation) == ["new"]


def test_conversations_of_one_session_stay_apart_and_forks_go_their_own_way() -> None:
    context = Context()
    Conversation(context, "a").add([{"text": "one"}])
    Conversation(context, "b").add([{"text": "two"}])
    fork = context.branch(name="fork")
    Conversation(fork, "a").add([{"text": "on the fork"}])
    Conversation(context, "a").add([{"text": "here"}])
    assert texts(Conversation(context, "a")) == ["one", "here"]
    assert texts(Conversation(fork, "a")) == ["one", "on the fork"]
    assert texts(Conversation(fork, "b")) == ["two"]
    assert len(context.list_artifacts(ConversationMessage)) == 3


def test_a_message_that_somebody_deleted_is_named() -> None:
    context = Context()
    conversation = Conversation(context)
    conversation.add([{"text": "one"}, {"text": "two"}])
    context.delete("conversation:main:000000")
    with pytest.raises(ConversationDamaged, match="lacks conversation:main:000000"):
        conversation.messages()
    assert [message["text"] for message in conversation.messages(1)] == ["two"]
