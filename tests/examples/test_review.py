"""The review example: a person corrects agent state with git, and the corrected sum goes out, once."""

from __future__ import annotations

from pathlib import Path

import forked

ROOT = Path(__file__).parents[2]


def test_a_correction_pushed_with_git_is_what_goes_out(tmp_path: Path) -> None:
    done = forked.run("-m", "examples.review.main", tmp_path / "office", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "the agents plan to pay back 14.00"
    assert "it is not JSON" in done.stdout
    assert "after the correction they plan 9.00, and paid [900]" in lines
    assert "Rita: 9 euros, not 14 days" in lines
    assert any(line.startswith("Rita: adopt ") for line in lines)
