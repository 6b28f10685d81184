"""Power cuts: whatever was delivered has its intent in what is left of the store, and every branch reads.

Owns what must hold after a cut; how the power is cut stands in `power_cut_lab`, what runs meanwhile in
`power_cut_shop`. Needs Linux, root, ext4 tools and loop devices, and is skipped with the reason where
they are missing.
"""

from __future__ import annotations

import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from power_cut_lab import UNAVAILABLE

pytestmark = pytest.mark.power_cut

LAB = Path(__file__).with_name("power_cut_lab.py")
TOOLS = ("unshare", "mkfs.ext4", "losetup", "mount", "umount", "sync", "cp")
COUNTS = ("delivered", "returned", "put_back")
CUTS = 8
CUTS_OF_A_FULL_RUN = 20  # in each of the rounds: every round starts with an empty disk
ROUNDS_OF_A_FULL_RUN = 10
TIME_LIMIT = 240.0  # seconds


def why_not() -> str | None:
    """Return why the power cannot be cut on this machine, or `None`."""
    where = f"on {platform.system()} {platform.release()}, uid {os.geteuid()}"
    if sys.platform != "linux":
        return f"{where}: loop-mounted disks are Linux's"
    if os.geteuid() != 0:
        return f"{where}: mounting needs root"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [tool for tool in TOOLS if shutil.which(tool, path=path) is None]
    return f"{where}: no {', '.join(missing)} (e2fsprogs, mount, util-linux)" if missing else None


def cut_power(folder: Path, durability: str, copies: int, seed: int) -> list[dict[str, Any]]:
    """Run the lab and return what each cut left; skips where this machine cannot do it."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    # The mounts are seen by the lab alone, and end with it whatever becomes of it or of us.
    command = [
        "unshare",
        "--mount",
        sys.executable,
        str(LAB),
        str(folder),
        durability,
        str(copies),
        str(seed),
    ]
    lab = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        said, errors = lab.communicate(timeout=TIME_LIMIT)
    finally:
        if lab.poll() is None:
            lab.terminate()  # it ends its shop and unmounts
            try:
                lab.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(lab.pid, signal.SIGKILL)
                lab.communicate()
    if lab.returncode == UNAVAILABLE or (lab.returncode and errors.startswith("unshare:")):
        pytest.skip(f"on {platform.system()} {platform.release()}, uid {os.geteuid()}: {errors.strip()}")
    assert lab.returncode == 0, errors
    cuts: list[dict[str, Any]] = json.loads(said)
    return cuts


def losses(cut: dict[str, Any]) -> dict[str, Any]:
    """Return the losses of a cut by name; a send that is repeated once a session is none."""
    found = {name: value for name, value in cut.items() if name not in COUNTS and value}
    again = [line.rpartition(" ")[0] for line in cut["sent_again"]]
    if len(again) == len(set(again)):
        found.pop("sent_again", None)
    return found


@pytest.fixture
def seed() -> int:
    """The seed of the moments of the cuts; assertions name it."""
    return random.randrange(1 << 32)


@pytest.mark.parametrize("durability", ["full", "strict"])
def test_what_was_delivered_survives_a_power_cut(tmp_path: Path, seed: int, durability: str) -> None:
    cuts = cut_power(tmp_path, durability, CUTS, seed)
    assert [losses(cut) for cut in cuts] == [{}] * CUTS, f"seed {seed}"
    assert cuts[-1]["delivered"] > cuts[0]["delivered"] > 0
    # that files were missing shows that the journal is what saves them
    assert (sum(cut["put_back"] for cut in cuts) > 0) == (durability == "full")


@pytest.mark.full
@pytest.mark.parametrize("durability", ["full", "strict"])
@pytest.mark.parametrize("round_", range(ROUNDS_OF_A_FULL_RUN))
def test_what_was_delivered_survives_many_power_cuts(
    tmp_path: Path, seed: int, round_: int, durability: str
) -> None:
    cuts = cut_power(tmp_path, durability, CUTS_OF_A_FULL_RUN, seed)
    assert [losses(cut) for cut in cuts] == [{}] * CUTS_OF_A_FULL_RUN, f"seed {seed}"


def test_a_store_that_does_not_sync_loses_intents(tmp_path: Path, seed: int) -> None:
    """The control: what the test above looks for is seen where nothing is synced."""
    cuts = cut_power(tmp_path, "os", 3, seed)
    assert any(cut["lost_intents"] for cut in cuts), f"seed {seed}"
