"""How many Python calls one outbox turn makes: what `scripts/structure.py --turn` counts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

MOST = 2_800
"""Calls of one turn, the application's own, the event loop's and the worker threads' included."""


def test_a_turn_makes_no_more_python_calls_than_it_did() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "structure.py"), "--turn"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    found = re.search(r"([\d,]+)\s+calls of a turn", shown)
    assert found is not None, shown
    assert 500 < int(found[1].replace(",", "")) <= MOST
