"""Each page of the inspector: it shows what is there, on every kind of store, and says what is wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote_plus, urlsplit

import anyio
import pytest
from desk import HOSTILE, LONG, NOW, RESEARCH, SESSION, filled, parked
from reading import Client, page, read
from starlette.testclient import TestClient
from support import git

from reactifact import SessionStore
from reactifact._sessions.stores import open_database
from reactifact.errors import StoreError
from reactifact.outbox import actions
from reactifact.ui.app import PAGES, Token, application

TOKEN = Token("a token of this test")
S = f"s={quote_plus(SESSION)}"


def test_the_sessions_with_what_waits_in_each(client: Client, desk_store: Any) -> None:
    found = page(client(desk_store), "/")
    assert "7 sessions" in found.text
    assert "1 waiting" in found.text
    assert "1 failed" in found.text
    assert "2 open" in found.text
    assert found.link("/session", S)


def test_sessions_are_found_by_a_part_of_their_name(client: Client, desk_store: Any) -> None:
    found = page(client(desk_store), "/?q=DESK")
    assert "1 session with" in found.text
    assert "returns" not in found.text


def test_the_graph_shows_branches_merges_and_what_woke_whom(client: Client, desk_store: Any) -> None:
    found = page(client(desk_store), f"/session?{S}")
    assert len(found.all("circle")) == 30 + 3  # the mark has three
    assert [one for one in found.all("circle") if "merge" in (one.get("class") or "")]
    for text in ("refund trial", "friendlier", "before the sale", "Merge the friendlier replies", "woken by"):
        assert text in found.text


def test_older_commits_follow_without_one_missing_or_twice(client: Client, desk_store: Any) -> None:
    browser = client(desk_store)
    seen: list[str] = []
    address: str | None = f"/session?{S}"
    while address is not None:
        found = page(browser, address)
        seen += [one["href"] or "" for one in found.all("a") if one.get("class") == "subject"]
        address = next((one for one in found.links if "lanes=" in one), None)
    assert "Begin session" in page(browser, seen[-1]).text
    # 33 turns of three commits; two edits, a merge, the questions, the beginning
    assert len(seen) == len(set(seen)) == 33 * 3 + 5


def test_one_branch_alone(client: Client, desk_store: Any) -> None:
    found = page(client(desk_store), f"/session?{S}&b=refund+trial")
    assert "Try refunds without asking" in found.text
    assert "question:refund" not in found.text


def test_a_run_says_who_woke_whom_what_was_read_and_written_and_what_it_cost(
    client: Client, desk_store: Any
) -> None:
    browser = client(desk_store)
    found = page(browser, page(browser, f"/session?{S}").link("/run"))
    for text in ("Generation 1", "Generation 2", "by step 1 (triage)", "1 model call (desk-1)", "Woken by"):
        assert text in found.text
    assert "waiting" in found.text  # the mail of the last turn
    assert [one for one in found.links if one == "#step-1"]
    assert "Began after create Ticket ticket:32 by front door" in found.text


def test_a_run_that_fans_out_and_in(client: Client, desk_store: Any) -> None:
    found = page(client(desk_store), f"/run?s={quote_plus(RESEARCH)}")
    assert found.text.count("by step 1 (planner)") == 4
    assert found.text.count("by step 5 (researcher)") == 1
    assert "4 model calls" not in found.text
    assert "all of desk.Finding" in found.text
    assert len([one for one in found.all("path") if "edge" in (one.get("class") or "")]) == 5


def test_a_commit_with_its_operations_reads_and_calls(client: Client, desk_store: Any) -> None:
    browser = client(desk_store)
    found = page(browser, f"/commit?{S}")
    for text in ("create", "reply:ticket:32", "What it read", "triage:ticket:32", "Model calls", "desk-1"):
        assert text in found.text
    changed = page(browser, found.link("/diff"))
    assert "reply:ticket:32" in changed.text
    assert LONG in changed.text


def test_two_points_by_their_names(client: Client, desk_store: Any) -> None:
    found = page(client(desk_store), f"/diff?{S}&old=v1&new=v2")
    assert "reply:ticket:0" in found.text
    assert "ticket:1" not in found.text


def test_a_difference_of_everything_comes_in_pages(client: Client, desk_store: Any) -> None:
    browser = client(desk_store)
    address: str | None = f"/diff?{S}&old=v0&new=main"
    shown = 0
    while address is not None:
        found = page(browser, address)
        shown += sum("/artifact?" in one for one in found.links)
        address = next((one for one in found.links if "after=" in one), None)
    # tickets, triages, replies and actions of 33 turns, the desk, two questions
    assert shown == 33 * 4 + 3


def test_artifacts_by_type_a_page_at_a_time(client: Client, desk_store: Any) -> None:
    browser = client(desk_store)
    first = page(browser, f"/artifacts?{S}&type=desk.Ticket")
    second = page(browser, first.link("/artifacts", "after="))
    names = {one for found in (first, second) for one in found.links if one.startswith("/artifact?")}
    assert len(names) == 33


def test_an_artifact_with_history_blame_and_relations(client: Client, desk_store: Any) -> None:
    browser = client(desk_store)
    found = page(browser, f"/artifact?{S}&id=desk")
    for text in ("v33", "opened_by", "Rosa", "Blame", "History", "Facts", "writer"):
        assert text in found.text
    older = page(browser, found.link("/artifact", "from="))
    assert "v18" in older.text
    reply = page(browser, f"/artifact?{S}&id=reply:ticket:3")
    assert "answers" in reply.text
    ticket = page(browser, f"/artifact?{S}&id=ticket:3&incoming=1")
    assert "reply:ticket:3" in ticket.text
    assert "triage:ticket:3" in ticket.text


def test_blame_names_the_version_that_wrote_each_field(client: Client, desk_store: Any) -> None:
    found = page(client(desk_store), f"/artifact?{S}&id=reply:ticket:29")
    blamed = found.text.partition("Which version wrote")[2]
    assert "v1Rosa" in blamed.replace(" ", "")  # the edit on a branch, by way of a merge
    assert "v0writer" in blamed.replace(" ", "")


def test_a_version_leads_to_its_commit(client: Client, desk_store: Any) -> None:
    browser = client(desk_store, follow_redirects=False)
    found = page(browser, f"/artifact?{S}&id=reply:ticket:7")
    answer = browser.get(found.link("/change"))
    assert answer.status_code == 303
    assert "reply:ticket:7" in page(browser, answer.headers["location"]).text


def test_an_action_is_shown_with_its_delivery(client: Client, desk_store: Any) -> None:
    browser = client(desk_store)
    assert "delivered" in page(browser, f"/artifact?{S}&id=action:reply:ticket:3").text
    failed = page(browser, f"/artifact?{S}&id=action:reply:ticket:31").text
    assert "451 mailbox of tomek@example.com is full" in failed
    assert "\\u001b[31m" in failed


def ages(store: Any) -> list[str]:
    """Return how long ago what is not delivered was planned, by the times that are stored."""

    async def load() -> Any:
        return await SessionStore(store).load_session(SESSION)

    context = anyio.run(load)
    waiting = [*actions(context, "pending"), *actions(context, "failed")]
    seconds = [int((NOW - action.created_at).total_seconds()) for action in waiting]
    return sorted(f"{whole // 60} min {whole % 60} s" for whole in seconds)


def test_the_board(client: Client, desk_store: Any) -> None:
    browser = client(desk_store)
    found = page(browser, f"/outbox?{S}")
    for text in ("Waiting 1", "Failed 1", "1 attempt", "451 mailbox"):
        assert text in found.text
    assert sorted(re.findall(r"planned (.*?) ago", found.text)) == ages(desk_store)
    assert found.all("form") == []  # nothing may be written
    older = page(browser, found.link("/outbox", "ledger="))
    assert "ticket:3" in older.text
    assert "Older deliveries" not in older.text


def test_the_board_tells_what_is_parked_and_what_waits_for_its_time(client: Client) -> None:
    store = parked()
    browser = client(store, TOKEN)
    browser.get("/", params={"token": TOKEN.token})
    found = page(browser, f"/outbox?{S}")
    waiting, failed = found.text.index("Waiting 1"), found.text.index("Failed 0")
    stuck = found.text.index("Parked 1")
    assert waiting < found.text.index("in 20 h 0 min not before 2026-03-03 05:30:00") < failed < stuck
    assert stuck < found.text.index("451 mailbox of tomek@example.com is full")
    (form,) = found.all("form")  # what waits for its time has none
    assert "label" in str(form["action"])
    assert "1 parked" in page(browser, "/").text
    after = read(browser.post(str(form["action"]), data={"secret": TOKEN.form_secret}).text)
    assert "Waiting 2" in after.text
    assert "Parked" not in after.text


def test_any_two_points_are_asked_for_by_their_names(client: Client, desk_store: Any) -> None:
    browser = client(desk_store)
    asked = page(browser, page(browser, f"/session?{S}").link("/diff", "new=main"))
    (form,) = asked.all("form")
    (hidden,) = [one for one in asked.all("input") if one["type"] == "hidden"]
    names = [one["name"] for one in asked.all("input") if one["type"] == "text"]
    assert names == ["old", "new"]
    for old, new in (
        ("v1", "v2"),
        ("friendlier", "main"),
        ("before the sale", "refund trial"),
        ("main~3", "main"),
    ):
        query = {"old": old, "new": new, str(hidden["name"]): hidden["value"]}
        found = read(browser.get(str(form["action"]), params=query).text)
        values = [one["value"] for one in found.all("input") if one["type"] == "text"]
        assert values == [old, new]
        assert "artifact" in found.text.partition("After")[2]


def test_open_questions(client: Client, desk_store: Any) -> None:
    found = page(client(desk_store), f"/questions?{S}")
    assert "May we refund 42.90 to li@example.com?" in found.text
    assert "Which depot holds the parcel?" in found.text
    assert found.all("form") == []


HOSTILE_PAGES = [
    "/session",
    f"/session?b={quote_plus(HOSTILE)}",
    "/artifacts",
    f"/artifact?id={quote_plus(HOSTILE)}",
    f"/artifact?id={quote_plus('q ' + HOSTILE)}",
    f"/commit?b={quote_plus(HOSTILE)}",
    f"/compare?into=main&from={quote_plus(HOSTILE)}",
    f"/compare?into={quote_plus(HOSTILE)}&from=main",
    "/questions",
    "/outbox",
    "/run",
    "/commit",
    f"/diff?old=v0&new={quote_plus(HOSTILE)}",
    f"/artifact?id={quote_plus('note ' + HOSTILE)}",
    f"/artifact?id={quote_plus('action:' + HOSTILE)}",
]


@pytest.mark.parametrize("address", HOSTILE_PAGES)
def test_no_text_of_a_store_steers_a_page(client: Client, desk_store: Any, address: str) -> None:
    join = "&" if "?" in address else "?"
    found = page(client(desk_store), f"{address}{join}s={quote_plus(HOSTILE)}")
    shown = HOSTILE.replace("\u202e", "\\u202e").replace("\x1b", "\\u001b")
    assert shown in found.text
    assert all(script == {"src": "/static/live.js", "defer": None} for script in found.all("script"))


def test_no_text_of_a_question_steers_its_form(client: Client, desk_store: Any) -> None:
    browser = client(desk_store, TOKEN)
    browser.get("/", params={"token": TOKEN.token})
    found = page(browser, f"/questions?s={quote_plus(HOSTILE)}")
    shown = HOSTILE.replace("\u202e", "\\u202e").replace("\x1b", "\\u001b")
    assert len(found.all("form")) == 3
    assert len(found.all("fieldset")) == 2
    assert found.text.count("which this server does not have") == 1
    assert found.text.count(shown) > 15
    (field,) = [one for one in found.all("textarea") if one["name"] != "answer"]
    assert field["name"] == f"field/{shown}".replace("</", "<~1").replace("/\\", "~1\\")
    (chosen,) = [
        one for one in found.all("form") if "form" in parse_qs(urlsplit(one["action"]).query)["id"][0]
    ]
    answer = browser.post(chosen["action"], data={"secret": TOKEN.form_secret, field["name"]: HOSTILE})
    assert answer.status_code == 422
    assert shown in read(answer.text).text


@pytest.mark.parametrize("kind", ["git", "sqlite", "postgres"])
def test_every_page_on_every_store_and_nothing_is_written(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    places = {"git": tmp_path / "state.git", "sqlite": tmp_path / "state.db"}
    store = places[kind] if kind in places else request.getfixturevalue("postgres_dsn")
    filled(store, 2)
    database = open_database(store, read_only=True)
    before = database.backend.refs()
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    browser = TestClient(application(database), base_url="http://localhost")
    for path in PAGES:
        if path not in ("/change", "/diff", "/artifact"):
            page(browser, f"{path}?{S}")
    page(browser, f"/artifact?{S}&id=desk")
    page(browser, f"/diff?{S}&old=v1&new=main")
    page(browser, f"/compare?{S}&into=main&from=refund+trial")
    assert database.backend.refs() == before
    database.backend.close()
    names = {path for path in files if not path.name.endswith(("-wal", "-shm"))}
    assert {path: path.read_bytes() for path in names} == {path: files[path] for path in names}


def test_a_read_only_store_refuses_what_a_page_would_write(tmp_path: Path) -> None:
    store = filled(tmp_path / "state.git", 1)
    database = open_database(store, read_only=True)
    with pytest.raises(StoreError, match="read-only"):
        database.backend.write({}, [])
    database.backend.close()


def test_the_models_of_a_store_are_neither_needed_nor_imported(tmp_path: Path) -> None:
    filled(tmp_path / "state.git", 1)
    program = f"""
import sys
from starlette.testclient import TestClient
from reactifact import SessionStore
from reactifact._sessions.stores import open_database
from reactifact.ui.app import application

browser = TestClient(application(open_database({str(tmp_path / "state.git")!r})), base_url="http://localhost")
for address in ("/", "/session?{S}", "/artifact?{S}&id=desk", "/compare?{S}&into=main&from=refund+trial"):
    answer = browser.get(address)
    assert answer.status_code == 200, answer.text
assert "Mei" in answer.text and "conflict" in answer.text
assert "desk" not in sys.modules
"""
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": f"{here.parents[1]}:{here}"},  # so that it could be imported
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_damaged_branch_is_named_and_hides_nothing_else(tmp_path: Path) -> None:
    store = tmp_path / "state.git"
    filled(store, 1)
    ref = store / "refs/heads/returns/main"
    ref.parent.mkdir(parents=True, exist_ok=True)
    ref.write_text("f" * 40 + "\n")
    browser = TestClient(application(open_database(store, read_only=True)), base_url="http://localhost")
    found = page(browser, "/")
    assert "Cannot be read" in found.text
    assert "refs/heads/returns/main" in found.text
    assert "support desk" in found.text
    broken = browser.get("/session?s=returns")
    assert broken.status_code in (404, 500)
    assert "ffff" in read(broken.text).text


def test_a_shallow_clone_ends_where_its_commits_end(tmp_path: Path) -> None:
    filled(tmp_path / "state.git", 4)
    clone, source = tmp_path / "clone.git", f"file://{tmp_path}/state.git"
    git(tmp_path, "clone", "--quiet", "--bare", "--depth", "2", "--no-single-branch", source, str(clone))
    browser = TestClient(application(open_database(clone, read_only=True)), base_url="http://localhost")
    found = page(browser, f"/session?{S}")
    assert "it is a shallow clone" in found.text
    assert "create Reply reply:ticket:6" in found.text
    assert "ticket:0" not in found.text
    assert " or before" in page(browser, f"/artifact?{S}&id=desk").text
    page(browser, found.link("/run"))
    for path in ("/", f"/outbox?{S}", f"/questions?{S}", f"/artifacts?{S}", f"/commit?{S}"):
        page(browser, path)
