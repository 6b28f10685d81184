"""Golden snapshots: what they show, what they leave out, and the files they are compared with."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel
from support import Answer, Note, Order, Outside, Question, answering_agents, commit, notifier

from reactifact import Consume, Context, ProduceCall, Runtime, SessionStore, create_agent, produce
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.testing import GoldenFiles, golden, golden_text

pytestmark = pytest.mark.anyio


class Stamped(BaseModel):
    transient_fields: ClassVar[frozenset[str]] = frozenset({"seen_at"})

    text: str
    seen_at: datetime


async def answered() -> Context:
    context = Context()
    context.create(Question(text="why"), id="q")
    context.link("q", "about", "nothing")
    await Runtime(context, answering_agents()).arun()
    return context


async def test_it_shows_artifacts_relations_and_commits() -> None:
    shown = golden(await answered())
    assert shown["version"] == 2
    assert shown["artifacts"] == [
        {"id": "q", "type": "Question", "versions": {"0": {"text": "why"}}},
        {"id": "answer:<id 1>", "type": "Answer", "versions": {"0": {"text": "re: why"}}},
        {"id": "echo:<id 2>", "type": "Echo", "versions": {"0": {"text": "RE: WHY"}}},
    ]
    assert shown["relations"] == ["q -about-> nothing"]
    assert [commit["author"] for commit in shown["commits"]] == ["answerer", "echoer"]
    assert shown["commits"][0]["operations"] == ["create answer:<id 1> Answer"]
    assert shown["commits"][0]["reads"] == ["q@0"]
    assert shown["commits"][1]["writes"] == ["create echo:<id 2>@0"]
    assert shown["deliveries"] == []


async def test_equal_runs_give_equal_texts_and_others_do_not() -> None:
    one, two = await answered(), await answered()
    assert [a.id for a in one.list_artifacts()] != [a.id for a in two.list_artifacts()]
    assert golden_text(one) == golden_text(two)
    two.update("q", Question(text="how"))
    assert golden_text(one) != golden_text(two)
    assert json.loads(golden_text(two))["artifacts"][0]["versions"] == {
        "0": {"text": "why"},
        "1": {"text": "how"},
    }


async def test_looking_changes_nothing() -> None:
    context = await answered()
    context.create(Note(text="direct"), id="n")
    before = context.version, len(context.pending_events())
    golden(context)
    assert (context.version, len(context.pending_events())) == before
    assert golden_text(context) == golden_text(context)


async def test_deliveries_show_how_they_went() -> None:
    store = SessionStore(InMemoryKVBackend())
    session = await store.open("s")
    for name in ("a", "b"):
        session.context.create(Order(item=name), id=name)
    runtime = Runtime(session.context, [notifier()], dispatcher=Outside("notify:b"), session=session)
    with pytest.raises(ConnectionError):
        await runtime.arun()
    shown = golden(session)
    assert shown["deliveries"] == [
        {"key": "notify:a", "kind": "mail", "status": "dispatched", "attempts": 0, "error": None},
        {
            "key": "notify:b",
            "kind": "mail",
            "status": "failed",
            "attempts": 1,
            "error": "no route for notify:b",
        },
    ]
    [action, _] = [found for found in shown["artifacts"] if found["type"] == "PendingAction"]
    assert list(action["versions"]) == ["0"]  # a delivery is not a new version of the intent
    assert action["versions"]["0"]["payload"] == {"item": "a"}
    assert "status" not in action["versions"]["0"]
    loaded = await store.load_session("s")
    assert loaded is not None
    assert golden(loaded) == shown


async def test_what_is_gone_is_shown_by_the_commits_that_made_it() -> None:
    context = Context()
    await commit(context, lambda call: call.effects.create(Note(text="short"), id="n"))
    await commit(context, lambda call: call.effects.delete("n"))
    shown = golden(context)
    assert "n" not in [artifact["id"] for artifact in shown["artifacts"]]
    [made] = shown["commits"][0]["operations"]
    assert made["create n Note"]["text"] == "short"
    assert shown["commits"][1]["operations"] == ["delete n"]


async def test_compaction_leaves_what_is_kept_readable() -> None:
    @produce(Answer)
    def count(call: ProduceCall) -> Answer:
        return Answer(text=str(len(call.context.list_artifacts(Question))))

    context = Context()
    context.create(Question(text="why"), id="q")
    agents = [create_agent(name, consumes=[Consume(Question)], produces=[count]) for name in "ab"]
    await Runtime(context, agents).arun()
    before = golden(context)
    assert [made["reads"] for made in before["commits"]] == [["q@0"], ["q@0"]]
    context.compact(keep_commits=1)  # the snapshot that both saw is folded
    after = golden(context)
    assert [made["reads"] for made in after["commits"]] == [["(a listing of a snapshot that was compacted)"]]
    assert after["artifacts"] == before["artifacts"]


async def test_transient_fields_and_random_ids_in_data_do_not_count() -> None:
    texts = []
    for year in (2030, 2031):
        context = Context()
        first = context.create(Note(text="x"))
        context.create(Stamped(text=f"see {first.id}", seen_at=datetime(year, 1, 1, tzinfo=UTC)), id="s")
        texts.append(golden_text(context))
    assert texts[0] == texts[1]
    assert golden(context)["artifacts"][1]["versions"]["0"] == {"text": "see <id 1>"}


async def test_digits_that_are_no_id_are_shown_as_they_are() -> None:
    digest = "0123456789abcdef" * 2
    context = Context()
    context.create(Note(text=digest), id="n")
    assert golden(context)["artifacts"][0]["versions"]["0"]["text"] == digest


def test_something_else_is_refused() -> None:
    wrong: Any = "state.git"
    with pytest.raises(TypeError, match="takes a Context or a Session, not str"):
        golden(wrong)


# --- files -------------------------------------------------------------------------------------


async def test_a_file_is_written_on_request_and_compared_afterwards(tmp_path: Path) -> None:
    context = await answered()
    folder = tmp_path / "golden"
    with pytest.raises(AssertionError, match=r"there is no golden file .*answered\.json: run pytest with"):
        GoldenFiles(folder, name="answered").check(context)
    GoldenFiles(folder, update=True).check(context, "answered")
    assert (folder / "answered.json").read_text() == golden_text(context)
    GoldenFiles(folder, name="answered").check(await answered())
    context.update("q", Question(text="how"))
    with pytest.raises(AssertionError, match=r"\n\+ +\"text\": \"how\"") as caught:
        GoldenFiles(folder).check(context, "answered")
    assert "--update-golden" in str(caught.value)


async def test_two_checks_do_not_write_different_contents_to_one_file(tmp_path: Path) -> None:
    written: dict[Path, str] = {}
    GoldenFiles(tmp_path, update=True, written=written).check(await answered(), "one")
    GoldenFiles(tmp_path, update=True, written=written).check(await answered(), "one")
    with pytest.raises(AssertionError, match="different contents"):
        GoldenFiles(tmp_path, update=True, written=written).check(Context(), "one")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b", "x\n"])
async def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a golden file"):
        GoldenFiles(tmp_path, update=True).check(Context(), name)
    assert list(tmp_path.iterdir()) == []
