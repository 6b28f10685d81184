"""Two laptops, one hub, one mail: run as it stands in the manual, and looked at with git."""

from __future__ import annotations

import subprocess
from pathlib import Path

from click.testing import CliRunner
from orders_support import fsck

from examples.two_laptops.main import main


def refs(store: Path) -> str:
    command = ["git", "-C", str(store), "for-each-ref", "refs/heads/"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_they_work_apart_and_one_mail_is_sent(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, [str(tmp_path / "work")], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    said = done.stdout
    assert "laptop-a  syncs: 2 refs pushed, has the lease of orders\n" in said
    assert "laptop-b  delivers: 0 mails sent; session 'orders' is delivered by laptop-a\n" in said
    assert "laptop-b  syncs: deliveries heard of, 1 refs pushed\n" in said
    assert said.count("1 mail sent") == 1
    assert said.endswith("both hold the same: yes; mails in the mailbox: 1\n")
    work = tmp_path / "work"
    assert len(list((work / "mails" / "new").iterdir())) == 1
    stores = [work / name for name in ("laptop-a.git", "laptop-b.git", "hub.git")]
    assert len({refs(store) for store in stores}) == 1
    for store in stores[:2]:
        assert not fsck(store)


def test_a_folder_of_an_earlier_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "laptop-a.git").mkdir()
    done = CliRunner().invoke(main, [str(tmp_path)])
    assert done.exit_code == 2
    assert "earlier run" in done.stderr
