"""`reactifact graph`, and `load_agents`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mermaid_grammar import read

from reactifact.cli.common import load_agents

MODULE = """
from pydantic import BaseModel
from reactifact import Consume, Produce, create_agent

class Question(BaseModel):
    text: str

class Answer(BaseModel):
    text: str

answerer = create_agent("answerer", consumes=[Consume(Question)], produces=[Produce(Answer)])
"""


def test_every_agent_of_a_module(run):
    found = run("graph", "wiring")
    assert (found.code, found.err) == (0, "")
    diagram = read(found.out)
    assert diagram.direction == "LR"
    assert {"notifier", "reader", "needy", "Watcher", "Order", "Receipt", "PendingAction"} == set(
        diagram.nodes.values()
    )
    assert ("Order", "Consume created, updated", "notifier") in diagram.edges
    assert ("notifier", None, "Receipt") in diagram.edges
    assert diagram.groups["B"] == "Agents"


def test_a_title_and_no_stages(run):
    diagram = read(run("graph", "wiring:notifier", "--title", 'The "shop"', "--no-stages").out)
    assert list(diagram.groups.values()) == ['The "shop"']


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("wiring:notifier", ["notifier"]),
        ("wiring:team", ["notifier", "reader"]),
        ("wiring:Watcher", ["Watcher"]),
        ("wiring", ["notifier", "needy", "reader", "Watcher"]),
    ],
)
def test_the_forms_of_a_target(target, names):
    assert [agent.name for agent in load_agents(target)] == names


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("no_such_module", "module 'no_such_module' cannot be imported: ModuleNotFoundError"),
        ("wiring:nobody", "module 'wiring' has no 'nobody'"),
        ("wiring:number", "wiring:number is int"),
        ("wiring:Needy", "class Needy cannot be made: TypeError"),
        ("json", "module 'json' holds no agents"),
        ("", "names no module"),
        (".wiring", "names no module"),
    ],
)
def test_what_is_no_agent_ends_the_program(run, target, said):
    with pytest.raises(SystemExit) as ended:
        run("graph", target)
    assert said in str(ended.value)


def test_a_module_that_fails_is_named_with_its_error(tmp_path, monkeypatch):
    (tmp_path / "broken_wiring.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="'broken_wiring' cannot be imported: ZeroDivisionError"):
        load_agents("broken_wiring")
    assert str(tmp_path) not in sys.path


def test_the_program_finds_a_module_in_the_current_folder(tmp_path):
    (tmp_path / "mine.py").write_text(MODULE)
    call = (  # as an installed program, which has not the current folder on its path
        "import sys; sys.path.pop(0); sys.path.append(sys.argv.pop(1)); "
        "from reactifact.cli import main; sys.exit(main())"
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", call, root, "graph", "mine"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert read(done.stdout).edges == [
        ("Question", "Consume created, updated", "answerer"),
        ("answerer", None, "Answer"),
    ]
    failed = subprocess.run(
        [sys.executable, "-c", call, root, "graph", "yours"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "No module named 'yours'" in failed.stderr
