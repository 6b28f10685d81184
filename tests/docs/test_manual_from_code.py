"""What the manual takes from the code stands there as the code says it: verbs, options, errors."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import click
import pytest
from support import load_script

from reactifact.cli import cli

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def manual() -> ModuleType:
    return load_script("manual")


@pytest.mark.parametrize("page", ["cli.md", "errors.md"])
def test_the_page_says_what_the_code_says(manual: ModuleType, page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert text.count("<!-- from the code: ") == text.count("<!-- end -->") == 1
    assert manual.brought_up_to_date(text) == text, "run `python scripts/manual.py`"


def test_every_verb_prints_json(manual: ModuleType) -> None:
    without = {"git-merge", "git-text", "hooks check", "ui"}  # git calls these, and this one serves
    for name, verb in manual.verbs():
        if name in without:
            continue
        options = {option for found in verb.params for option in found.opts}
        assert "--json" in options, name
        assert "--json" in str(verb.help) or name == "audit", name


def test_every_verb_about_a_store_can_be_told_which(manual: ModuleType) -> None:
    for name, verb in manual.verbs():
        arguments = [found.metavar for found in verb.params if isinstance(found, click.Argument)]
        if "[STORE]" in arguments or "STORE" in arguments:
            assert "-C" in {option for found in verb.params for option in found.opts}, name
    assert "-C" in {option for found in cli.params for option in found.opts}


def test_every_error_has_a_meaning_and_those_people_meet_a_way_out(manual: ModuleType) -> None:
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    kinds = manual.public_errors()
    assert all(kind.__doc__ for kind in kinds)
    rows = [row for row in text.partition("## What to do")[2].splitlines() if row.startswith("|")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    bases = {"ReactifactError", "StoreError"}
    assert named == {kind.__name__ for kind in kinds} - bases
    assert all(len(row.split("|")[3].strip()) > 10 for row in rows[2:])
