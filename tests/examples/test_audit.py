"""The audit example: a number computed in Python, traced to lines of files, equal in every run."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import forked
import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments: str, module: str = "examples.audit.main") -> subprocess.CompletedProcess[str]:
    return forked.run("-m", module, *arguments, cwd=ROOT)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    path = tmp_path_factory.mktemp("audit") / "state.git"
    done = run("--store", str(path))
    assert done.returncode == 0, done.stderr
    return path, done.stdout


def test_two_runs_print_the_same_hashes(store: tuple[Path, str]) -> None:
    first, second = store[1], run().stdout
    assert first == second
    assert len(set(re.findall(r"state hash ([0-9a-f]{64})", first))) == 2


def test_the_number_and_where_it_comes_from(store: tuple[Path, str]) -> None:
    lines = store[1].splitlines()
    assert lines[0] == "computed with 4 executions"
    assert "travel: 1675.75 of 1575.00, over by 100.75: needs the board" in lines
    assert 420_50 + 1180_00 + 75_25 - 1500_00 * 105 // 100 == 100_75
    sources = next(line for line in lines if line.startswith("sources: "))
    assert sources == (
        "sources: budget.csv:2, policy.txt:1, transactions.csv:2, transactions.csv:3, transactions.csv:5"
    )
    for source in sources.removeprefix("sources: ").split(", "):
        name, line = source.split(":")
        assert (ROOT / "examples" / "audit" / name).read_text().splitlines()[int(line) - 1]


def test_the_provenance_is_complete(store: tuple[Path, str]) -> None:
    done = run("audit", str(store[0]), "budget", "finding:travel", "--json", module="reactifact")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    entries = {entry["artifact_id"]: entry for entry in [report["answer"], *report["provenance"]]}
    assert set(entries) == {
        "finding:travel",
        "spending:travel",
        "limit:travel",
        "policy",
        "transaction:t1",
        "transaction:t2",
        "transaction:t4",
    }
    for name, entry in entries.items():
        assert re.fullmatch("[0-9a-f]{40}", entry["commit"]), name
        assert re.fullmatch("[0-9a-f]{64}", entry["content_hash"]), name
        is_fact = not name.startswith(("finding", "spending"))
        assert (entry["is_direct"], bool(entry["code"]), bool(entry["trigger"])) == (
            is_fact,
            not is_fact,
            not is_fact,
        )
        assert entry["author"] == ("importer" if is_fact else {"f": "auditor", "s": "adder"}[name[0]])


def test_editing_an_input_recomputes_exactly_its_dependents(store: tuple[Path, str]) -> None:
    lines = store[1].splitlines()
    assert "corrected transaction:t2: computed again spending:travel, finding:travel" in lines
    assert lines.count("software: 1549.00 of 2100.00, within the policy") == 2
    assert "travel: 1495.75 of 1575.00, within the policy" in lines
    assert lines[-1] == "checked 9 commits: all match"


def test_the_report_holds_against_the_store(store: tuple[Path, str], tmp_path: Path) -> None:
    done = run("audit", str(store[0]), "budget", "finding:travel", "--json", module="reactifact")
    report = tmp_path / "report.json"
    report.write_text(done.stdout)
    checked = run("verify", str(store[0]), str(report), module="reactifact")
    assert (checked.returncode, checked.stderr) == (0, "")
    everything = run("replay", str(store[0]), "--verify-all", module="reactifact")
    assert everything.returncode == 0, everything.stderr


def test_a_store_with_the_session_of_an_earlier_run_is_refused(store: tuple[Path, str]) -> None:
    done = run("--store", str(store[0]))
    assert done.returncode == 2
    assert "earlier run" in done.stderr
