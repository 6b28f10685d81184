"""`reactifact log` and `reactifact sessions`."""

from __future__ import annotations

import subprocess

LOG_KEYS = {
    "author", "branch", "change", "commit", "generation", "heads", "kind", "parents", "run_id", "session",
    "subject", "tags", "time", "trigger", "version",
}  # fmt: skip


def git(store, *arguments):
    command = ["git", "-C", str(store), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_it_lists_what_git_lists_the_newest_first(run, store):
    shown = run("log", store, "user-1", "--json")
    expected = git(store, "rev-list", "--first-parent", "user-1/main").split()
    assert [found["commit"] for found in shown.json["commits"]] == expected
    assert (shown.json["session"], shown.json["branch"]) == ("user-1", "main")
    assert all(found.keys() == LOG_KEYS for found in shown.json["commits"])
    newest = shown.json["commits"][0]
    assert (newest["version"], newest["author"], newest["kind"]) == (2, "notifier", "agent")
    assert newest["heads"] == ["main"]
    assert newest["trigger"]["artifact_id"] == "o2"


def test_the_lines_for_people(run, store):
    newest, *_, oldest = run("log", store, "user-1").lines
    commit = git(store, "rev-parse", "user-1/main")
    assert newest.startswith(commit[:10] + "  v2  2026-01-01 10:00:")
    assert "notifier" in newest
    assert newest.endswith("<- created o2")
    assert "Begin session user-1" in oldest
    assert oldest == oldest.rstrip()


def test_reverse_turns_what_limit_chose(run, store):
    whole = [found["commit"] for found in run("log", store, "user-1", "--json").json["commits"]]
    shown = run("log", store, "user-1", "--json", "--limit", 2, "--reverse").json
    assert [found["commit"] for found in shown["commits"]] == whole[:2][::-1]
    assert run("log", store, "user-1", "-n", 0).out == ""


def test_by_agent_and_by_artifact(run, store):
    by_agent = run("log", store, "user-1", "--agent", "notifier", "--json").json["commits"]
    assert [found["version"] for found in by_agent] == [2, 1]
    assert run("log", store, "user-1", "--agent", "notif").out == ""
    touching = run("log", store, "user-1", "--artifact", "o1", "--json", "--all").json["commits"]
    # created directly, linked to by the agent's receipt, updated on the branch
    assert [found["kind"] for found in touching] == ["edit", "agent", "direct"]
    delivered = run("log", store, "user-1", "--artifact", "action:notify:o1", "--all", "--json").json
    assert [found["kind"] for found in delivered["commits"]] == ["ledger", "agent"]


def test_all_interleaves_branches_and_ledger_and_keeps_parents_below(run, store):
    commits = run("log", store, "user-1", "--all", "--json").json["commits"]
    expected = git(store, "rev-list", "--branches=user-1/*").split()
    assert sorted(found["commit"] for found in commits) == sorted(expected)
    place = {found["commit"]: index for index, found in enumerate(commits)}
    assert all(place[parent] > place[found["commit"]] for found in commits for parent in found["parents"])
    times = [found["time"] for found in commits]
    assert times == sorted(times, reverse=True)
    assert {"ledger", "edit", "agent"} <= {found["kind"] for found in commits}
    lines = run("log", store, "user-1", "--all").lines
    assert lines[0].endswith("[plan b]")
    assert any("%outbox" in line and "failed notify:o2" in line for line in lines)


def test_a_branch_by_its_name_also_with_slashes_and_blanks(run, store):
    planned = run("log", store, "user-1/plan b", "--json").json
    assert planned["commits"][0]["subject"] == "Plan the party"
    assert run("log", store, "team/x/y", "--json").json["branch"] == "x/y"
    ledger = run("log", store, "user-1/%outbox", "--json").json["commits"]
    assert [found["subject"] for found in ledger] == ["failed notify:o2", "delivered notify:o1"]


def test_options_tell_apart_what_a_path_cannot(run, store):
    own = run("log", store, "--session", "team/a", "--json").json
    other = run("log", store, "--session", "team", "--branch", "a", "--json").json
    assert (own["session"], own["branch"]) == ("team/a", "main")
    assert (other["session"], other["branch"]) == ("team", "a")


def test_without_a_session_it_is_the_one_written_last_and_says_so(run, store):
    shown = run("log", store, "--json")
    assert shown.json["session"] == "shop"
    assert "session shop, branch main" in shown.err
    assert shown.err.count("\n") == 1


def test_commits_of_others_are_shown_as_they_are(run, store, tmp_path):
    copy = tmp_path / "copy.git"
    subprocess.run(["git", "clone", "-q", "--bare", store, copy], check=True)
    tree = git(copy, "rev-parse", "user-1/main^{tree}").strip()
    who = ["-c", "user.name=Hand Made", "-c", "user.email=hand@example.com"]
    oid = git(copy, *who, "commit-tree", tree, "-p", "user-1/main", "-m", "By hand").strip()
    git(copy, "update-ref", "refs/heads/user-1/main", oid)
    newest, second = run("log", copy, "user-1", "--json", "-n", 2).json["commits"]
    assert (newest["kind"], newest["author"], newest["subject"]) == ("foreign", "Hand Made", "By hand")
    assert (newest["change"], newest["version"], second["version"]) == (None, None, 2)
    # the Change-Id of the commit before still means one commit
    shown = run("show", copy, second["change"], "--json", "--session", "user-1")
    assert (shown.code, shown.json["commit"]) == (0, second["commit"])
    assert run("show", copy, oid, "--session", "user-1").code == 0


def test_sessions(run, store):
    found = {one["session"]: one for one in run("sessions", store, "--json").json["sessions"]}
    assert sorted(found) == ["shop", "team", "team/a", "user-1"]
    user = found["user-1"]
    assert (user["version"], user["pending"], user["failed"]) == (2, 0, 1)
    assert [(one["branch"], one["version"], one["failed"]) for one in user["branches"]] == [
        ("main", 2, 1),
        ("plan b", 3, 1),
    ]
    assert user["last_commit"] == max(one["last_commit"] for one in user["branches"])
    assert (found["shop"]["pending"], found["shop"]["failed"]) == (1, 0)
    head, *rows = run("sessions", store).lines
    assert head.split() == ["SESSION", "VERSION", "LAST", "COMMIT", "PENDING", "FAILED", "BRANCHES"]
    assert len(rows) == 4
    assert rows[-1].startswith("user-1   v2")
    assert rows[-1].endswith("main plan b")


def test_tags_are_shown_and_named(run, store, tmp_path):
    copy = tmp_path / "copy.git"
    subprocess.run(["git", "clone", "-q", "--bare", store, copy], check=True)
    git(copy, "tag", "user-1/first", run("log", copy, "user-1", "--json").json["commits"][-1]["commit"])
    newest = run("log", copy, "user-1", "--json").json["commits"][0]["commit"]
    git(copy, "tag", "user-1/last", newest)
    everything = run("log", copy, "user-1", "--json").json["commits"]
    assert (everything[0]["tags"], everything[-1]["tags"]) == (["last"], ["first"])
    assert run("log", copy, "user-1").lines[0].endswith("[tag last]")
    assert run("log", copy, "user-1/last", "--json").json["commits"] == everything
    assert len(run("log", copy, "--session", "user-1", "--branch", "first", "--json").json["commits"]) == 1
    assert run("show", copy, "user-1/last", "--json").json["commit"] == newest
    shown = run("diff", copy, "user-1/first", "user-1/last", "--json").json
    assert shown["new"]["commit"] == newest
    assert run("diff", copy, "user-1/main@v2", "user-1/last", "--json").json["artifacts"]["added"] == []
    unknown = run("log", copy, "user-1/absent")
    assert (unknown.code, "absent" in unknown.err) == (2, True)


def test_time_and_generation(run, store):
    everything = run("log", store, "user-1", "--json").json["commits"]
    middle = everything[1]["time"][:19]
    late = run("log", store, "user-1", "--json", "--since", middle).json["commits"]
    early = run("log", store, "user-1", "--json", "--until", middle).json["commits"]
    assert everything[1] in late
    assert [one for one in everything if one in late or one in early] == everything
    first = run("log", store, "user-1", "--json", "--generation", 1).json["commits"]
    assert first
    assert {one["generation"] for one in first} == {1}
