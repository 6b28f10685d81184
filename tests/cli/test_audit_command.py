"""`reactifact audit` prints a report, `reactifact verify` checks it later."""

from __future__ import annotations

import json

import pytest


def test_markdown(run, store):
    found = run("audit", store, "user-1", "receipt:o1")
    assert (found.code, found.err) == (0, "")
    assert found.lines[0] == "# Audit report"
    assert "receipt:o1" in found.out
    assert "application (directly)" in found.out
    assert run("audit", store, "user-1", "receipt:o1", "--markdown").out == found.out


def test_html_is_one_page_that_needs_nothing_else(run, store):
    found = run("audit", store, "user-1", "receipt:o1", "--html")
    assert (found.code, found.err) == (0, "")
    assert found.out.startswith("<!DOCTYPE html>")
    assert "receipt:o1" in found.out
    assert "(directly)" in found.out
    assert "<style>" in found.out
    assert not [text for text in ("<script", "<link", "src=", "http://", "https://") if text in found.out]


def test_json_and_its_check(run, store, tmp_path):
    found = run("audit", store, "user-1", "receipt:o1", "--json")
    assert (found.code, found.err) == (0, "")
    report = found.json
    assert report["answer"]["data_type"] == "Receipt"
    assert [entry["artifact_id"] for entry in report["provenance"]] == ["o1"]
    assert report["session_id"] == "user-1"
    file = tmp_path / "report.json"
    file.write_text(found.out)
    checked = run("verify", store, file)
    assert (checked.code, checked.err) == (0, "")
    assert checked.lines == ["the store bears the report out: 2 artifacts, every hash, commit and relation"]
    report["provenance"][0]["content_hash"] = "0" * 64
    file.write_text(json.dumps(report))
    differs = run("verify", store, file)
    assert differs.code == 1
    assert differs.lines[0].startswith("DIFFERS: o1.content_hash: the report says '000")
    assert run("verify", store, file, "--json").json["ok"] is False


def test_an_older_version_a_branch_and_choices(run, store):
    old = run("audit", store, "user-1", "receipt:o1", "--version", 1, "--json").json
    assert old["context_version"] == 1
    planned = run("audit", store, "user-1", "o1", "--branch", "plan b", "--json").json
    assert (planned["answer"]["author"], planned["branch"]) == ("ann", "plan b")
    none = run("audit", store, "user-1", "receipt:o1", "--relation", "other", "--json").json
    assert none["provenance"] == []
    read = run("audit", store, "user-1", "receipt:o1", "--relation", "other", "--reads", "--json").json
    assert [entry["artifact_id"] for entry in read["provenance"]] == ["o1"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["user-1", "nothing"], "holds no artifact 'nothing'"),
        (["nobody", "o1"], "holds no session 'nobody'"),
        (["user-1", "o1", "--version", "7"], "has no version 7"),
    ],
)
def test_what_is_not_there(run, store, arguments, said):
    found = run("audit", store, *arguments)
    assert (found.code, found.out) == (1, "")
    assert said in found.err


def test_what_is_no_report(run, store, tmp_path):
    file = tmp_path / "report.json"
    file.write_text("[]")
    found = run("verify", store, file)
    assert (found.code, found.out) == (2, "")
    assert "not an audit report" in found.err
    assert run("verify", store, tmp_path / "absent.json").code == 2
