"""The journal of a bare repository: what was acknowledged is put back after a power cut, and nothing else.

A cut is played here: files that are not synced get the content that a disk may have of them. Real ones, of a
disk that loses its power, are in `crash/test_power_cut`.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from blake3 import blake3
from building import MAIN, commit, put
from support import fsck, git

from reactifact._store._backends.git import journal
from reactifact._store._backends.git.backend import GitBackend
from reactifact._store.objects import Oid
from reactifact._store.protocol import Durability, RefUpdate
from reactifact.errors import LinkInStore, NotRecovered, StoreError

OTHER = "refs/heads/t/main"
ZEROS = bytes(40)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.git"


@pytest.fixture
def boot(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let the system have been started anew, under a name."""

    def start(name: str) -> None:
        monkeypatch.setattr(journal, "boot_id", lambda: name)

    return start


def line(backend: GitBackend, *texts: str, ref: str = MAIN) -> list[Oid]:
    """Write commits one after another on a ref, each a write of its own; return their ids."""
    oids: list[Oid] = []
    for text in texts:
        old = backend.refs(ref).get(ref)
        oids.append(put(backend, ref, text, old))
    return oids


def of_packs(path: Path, ending: str) -> list[Path]:
    """Return the files of packs, oldest first."""
    return sorted((path / "objects/pack").glob(f"*.{ending}"), key=lambda file: file.stat().st_mtime_ns)


def spoil(file: Path, content: bytes | None) -> None:
    """Give a file the content that a disk has of it; with `None` it has no such name."""
    mode = file.stat().st_mode
    file.unlink()
    if content is not None:
        file.write_bytes(content)
        file.chmod(mode)


def failing_at(step: str, code: int) -> Callable[[str], None]:
    """Return what lets the system fail at a step of a write."""

    def fail(name: str) -> None:
        if name == step:
            raise OSError(code, os.strerror(code))

    return fail


def log(path: Path, ref: str = MAIN) -> list[str]:
    return git(path, "log", "--format=%s", ref).split()


class TestAfterAPowerCut:
    @pytest.mark.parametrize("kept", [b"", None, ZEROS, b"half"], ids=["empty", "gone", "zeros", "half"])
    @pytest.mark.parametrize("ending", ["pack", "idx"])
    def test_packs_that_the_disk_did_not_get_are_put_back(
        self, path: Path, boot: Callable[[str], None], ending: str, kept: bytes | None
    ) -> None:
        line(GitBackend(path), "one", "two", "three", "four")
        for file in of_packs(path, ending)[1:]:  # the first came with a new ref, and was synced
            spoil(file, file.read_bytes()[:30] if kept == b"half" else kept)
        boot("second")
        backend = GitBackend(path)
        assert log(path) == ["four", "three", "two", "one"]
        fsck(path)
        line(backend, "five")
        fsck(path)

    @pytest.mark.parametrize("kept", [b"", ZEROS, b"first", b"second", b"packed"])
    def test_a_ref_that_the_disk_did_not_get_is_put_back(
        self, path: Path, boot: Callable[[str], None], kept: bytes
    ) -> None:
        oids = line(GitBackend(path), "one", "two", "three")
        old = {b"first": oids[0], b"second": oids[1]}.get(kept)
        if kept == b"packed":
            (path / MAIN).write_text(f"{oids[0]}\n")
            git(path, "pack-refs", "--all")
        else:
            spoil(path / MAIN, kept if old is None else f"{old}\n".encode())
        boot("second")
        assert GitBackend(path).refs() == {MAIN: oids[2]}
        assert (path / MAIN).read_text() == f"{oids[2]}\n"
        fsck(path)

    def test_all_of_it_at_once(self, path: Path, boot: Callable[[str], None]) -> None:
        backend = GitBackend(path)
        (first,) = line(backend, "one")
        (begun,) = line(backend, "other", ref=OTHER)
        synced = {file: file.read_bytes() for file in (path / "objects/pack").iterdir()}
        line(backend, "two", "three")
        line(backend, "beside", ref=OTHER)
        for file in (path / "objects/pack").iterdir():
            if file not in synced:
                spoil(file, b"")
        (path / MAIN).write_text(f"{first}\n")
        (path / OTHER).write_text(f"{begun}\n")
        boot("second")
        GitBackend(path)
        assert log(path) == ["three", "two", "one"]
        assert log(path, OTHER) == ["beside", "other"]
        fsck(path)

    def test_it_is_put_back_once(self, path: Path, boot: Callable[[str], None]) -> None:
        oids = line(GitBackend(path), "one", "two")
        (path / MAIN).write_text("")
        boot("second")
        GitBackend(path)
        (path / MAIN).write_text(f"{oids[0]}\n")  # somebody wants it there
        boot("third")
        assert GitBackend(path).refs() == {MAIN: oids[0]}

    def test_a_record_that_is_torn_ends_it(self, path: Path, boot: Callable[[str], None]) -> None:
        backend = GitBackend(path)
        oids = line(backend, "one", "two")
        size = len((path / "reactifact/journal").read_bytes().rstrip(b"\0"))
        line(backend, "three")
        with (path / "reactifact/journal").open("r+b") as file:
            file.seek(size + 200)
            file.write(bytes(64))
        (path / MAIN).write_text("")
        boot("second")
        assert GitBackend(path).refs() == {MAIN: oids[1]}

    def test_what_failed_after_it_was_noted_is_not_put_back(
        self, path: Path, boot: Callable[[str], None]
    ) -> None:
        backend = GitBackend(path)
        oids = line(backend, "one", "two")

        backend.fault = failing_at("pack-placed", errno.ENOSPC)
        with pytest.raises(StoreError, match="No space left"):
            line(backend, "three")
        boot("second")
        assert GitBackend(path).refs() == {MAIN: oids[1]}
        backend.fault = None

    def test_what_failed_after_others_could_see_it_is_there_for_them(
        self, path: Path, boot: Callable[[str], None]
    ) -> None:
        backend = GitBackend(path)
        line(backend, "one", "two")

        backend.fault = failing_at("ref-renamed", errno.EIO)
        with pytest.raises(StoreError, match="Input/output error"):
            line(backend, "three")
        line(GitBackend(path), "four")
        for file in of_packs(path, "pack")[1:]:
            spoil(file, b"")
        (path / MAIN).write_text("")
        boot("second")
        GitBackend(path)
        assert log(path) == ["four", "three", "two", "one"]
        fsck(path)

    def test_where_all_failed_a_ref_is_what_it_was(self, path: Path, boot: Callable[[str], None]) -> None:
        backend = GitBackend(path)
        oids = line(backend, "one", "two")
        backend.close()

        backend.fault = failing_at("ref-renamed", errno.EIO)
        with pytest.raises(StoreError, match="Input/output error"):
            line(backend, "three")
        (path / MAIN).write_text("")
        boot("second")
        assert GitBackend(path).refs() == {MAIN: oids[1]}

    def test_a_first_record_that_is_torn_is_in_nobodys_way(
        self, path: Path, boot: Callable[[str], None]
    ) -> None:
        backend = GitBackend(path)
        oids = line(backend, "one", "two")
        with (path / "reactifact/journal").open("r+b") as file:
            file.seek(100)
            file.write(bytes(64))
        boot("second")
        oids += line(GitBackend(path), "three")
        (path / MAIN).write_text(f"{oids[1]}\n")
        boot("third")
        assert GitBackend(path).refs() == {MAIN: oids[2]}

    def test_it_is_read_only(self, path: Path, boot: Callable[[str], None]) -> None:
        oids = line(GitBackend(path), "one", "two")
        boot("second")
        assert GitBackend(path, read_only=True).refs() == {MAIN: oids[1]}  # nothing was lost
        (path / MAIN).write_text("")
        with pytest.raises(NotRecovered, match=r"cut off from power.*open it once without read_only"):
            GitBackend(path, read_only=True)
        GitBackend(path)
        assert GitBackend(path, read_only=True).refs() == {MAIN: oids[1]}

    @pytest.mark.parametrize("step", ["put-back-pack", "put-back-ref"])
    def test_putting_back_that_was_broken_off_goes_on(
        self, path: Path, boot: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, step: str
    ) -> None:
        backend = GitBackend(path)
        line(backend, "one")
        line(backend, "a", ref=OTHER)
        came_synced = of_packs(path, "pack")
        line(backend, "two", "three")
        line(backend, "b", ref=OTHER)
        for file in of_packs(path, "pack"):
            if file not in came_synced:
                spoil(file, b"")
        (path / MAIN).write_text("")
        (path / OTHER).write_text("")

        boot("second")
        monkeypatch.setattr(GitBackend, "fault", staticmethod(failing_at(step, errno.EIO)))
        with pytest.raises(StoreError, match="Input/output error"):
            GitBackend(path)
        monkeypatch.setattr(GitBackend, "fault", None)
        GitBackend(path)
        assert (log(path), log(path, OTHER)) == (["three", "two", "one"], ["b", "a"])


class TestWhatOthersDid:
    def test_while_the_system_runs_nothing_is_put_back(self, path: Path) -> None:
        oids = line(GitBackend(path), "one", "two")
        (path / MAIN).write_text(f"{oids[0]}\n")
        assert GitBackend(path).refs() == {MAIN: oids[0]}

    def test_a_move_that_git_made_since_stays(
        self, path: Path, boot: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GIT_COMMITTER_DATE", "2099-01-01T00:00:00Z")  # its log counts whole seconds
        oids = line(GitBackend(path), "one", "two", "three")
        git(path, "-c", "user.name=a", "-c", "user.email=a@b", "update-ref", MAIN, oids[0])
        boot("second")
        assert GitBackend(path).refs() == {MAIN: oids[0]}

    def test_a_branch_that_git_removed_stays_away(self, path: Path, boot: Callable[[str], None]) -> None:
        line(GitBackend(path), "one", "two")
        git(path, "update-ref", "-d", MAIN)
        boot("second")
        assert GitBackend(path).refs() == {}

    def test_a_branch_that_was_removed_and_made_anew_stays_as_it_is(
        self, path: Path, boot: Callable[[str], None]
    ) -> None:
        backend = GitBackend(path)
        oids = line(backend, "one", "two", "three")
        backend.write({}, [RefUpdate(MAIN, oids[2], None)])
        backend.write({}, [RefUpdate(MAIN, None, oids[0])])
        boot("second")
        assert GitBackend(path).refs() == {MAIN: oids[0]}

    def test_an_earlier_commit_that_we_went_back_to_stays(
        self, path: Path, boot: Callable[[str], None]
    ) -> None:
        backend = GitBackend(path)
        oids = line(backend, "one", "two", "three")
        backend.write({}, [RefUpdate(MAIN, oids[2], oids[0]), RefUpdate(OTHER, None, oids[2])])
        (path / MAIN).write_text(f"{oids[1]}\n")
        boot("second")
        assert GitBackend(path).refs() == {MAIN: oids[0], OTHER: oids[2]}

    @pytest.mark.parametrize(
        "about",
        [
            {"stem": "../../../evil", "pack": 4},
            {"ref": "refs/heads/../../../evil", "old": None, "new": "0" * 40},
            {"ref": "refs/heads/s/main", "old": None, "new": "not an id"},
            {"ref": ["refs"], "new": 1},
            [1],
        ],
    )
    def test_a_record_that_somebody_made_up_is_not_followed(
        self, path: Path, boot: Callable[[str], None], about: object
    ) -> None:
        oids = line(GitBackend(path), "one", "two")
        nonce = b"12345678"
        if isinstance(about, dict):
            about |= {"boot": "first", "when": 1}
        head, content = json.dumps(about).encode(), b"evil"
        digest = blake3(nonce + head + content).digest(16)
        prefix = journal._PREFIX.pack(b"RFJ1", 0, nonce, len(head), len(content), digest)
        (path / "reactifact/journal").write_bytes(prefix + head + content)
        boot("second")
        backend = GitBackend(path)
        assert backend.refs() == {MAIN: oids[1]}
        assert list(path.parents[1].rglob("*evil*")) == []
        (last,) = line(backend, "three")  # and what is noted after it is found
        (path / MAIN).write_text("")
        boot("third")
        assert GitBackend(path).refs() == {MAIN: last}

    def test_a_link_in_its_place_is_refused(self, path: Path, tmp_path: Path) -> None:
        line(GitBackend(path), "one")
        (path / "reactifact/journal").unlink()
        (path / "reactifact/journal").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(LinkInStore, match="reactifact/journal"):
            GitBackend(path)


class TestBesideOtherDurabilities:
    @pytest.mark.parametrize("durability", ["strict", "os"])
    def test_what_they_move_back_stays_there(
        self, path: Path, boot: Callable[[str], None], durability: Durability
    ) -> None:
        oids = line(GitBackend(path), "one", "two", "three")
        other = GitBackend(path, durability=durability)
        other.write({}, [RefUpdate(MAIN, oids[2], oids[0])])
        boot("second")
        assert GitBackend(path).refs() == {MAIN: oids[0]}

    def test_alone_they_note_nothing(self, path: Path) -> None:
        line(GitBackend(path, durability="strict"), "one", "two")
        assert not (path / "reactifact/journal").exists()


class TestItsFile:
    def test_it_begins_anew_when_it_is_full(
        self, path: Path, boot: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(journal, "LIMIT", 5_000)
        backend = GitBackend(path)
        line(backend, *(f"number-{number}" for number in range(30)))
        assert (path / "reactifact/journal").stat().st_size <= journal._STEP
        (path / MAIN).write_text("")
        boot("second")
        GitBackend(path)
        assert log(path)[0] == "number-29"
        fsck(path)

    @pytest.mark.parametrize("name", ["locks/journal", "journal"])
    def test_it_goes_on_where_one_of_its_files_was_taken_away(
        self, path: Path, boot: Callable[[str], None], name: str
    ) -> None:
        backend = GitBackend(path)
        oids = line(backend, "one", "two")
        (path / "reactifact" / name).unlink()
        oids += line(backend, "three", "four")
        (path / MAIN).write_text(f"{oids[2]}\n")
        boot("second")
        assert GitBackend(path).refs() == {MAIN: oids[3]}

    def test_settling_syncs_what_it_names_and_leaves_no_record(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        backend = GitBackend(path)
        line(backend, "one")
        line(backend, "a", ref=OTHER)
        came_synced = {*of_packs(path, "pack"), *of_packs(path, "idx")}
        line(backend, "two", "three")
        line(backend, "b", ref=OTHER)
        synced: Counter[str] = Counter()
        fsync = os.fsync

        def note(descriptor: int) -> None:
            synced[os.readlink(f"/proc/self/fd/{descriptor}")] += 1
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", note)
        backend.close()
        unsynced = {*of_packs(path, "pack"), *of_packs(path, "idx")} - came_synced
        assert len(unsynced) == 2 * 3
        files = {*unsynced, path / "objects/pack", *(path / ref for ref in (MAIN, OTHER))}
        folders = {(path / ref).parent for ref in (MAIN, OTHER)}
        assert synced == Counter(map(str, files | folders))
        assert (path / "reactifact/journal").read_bytes()[:4] == bytes(4)
        synced.clear()
        backend.close()
        assert not synced  # nothing was noted since

    def test_maintenance_settles_it(self, path: Path, boot: Callable[[str], None]) -> None:
        backend = GitBackend(path)
        oids = line(backend, *(f"{number}" for number in range(20)))
        assert backend.maintain()
        fresh = journal.Journal(str(path), "s", backend._locks, wait=lambda: 1.0, step=lambda _: None)
        boot("second")
        assert not fresh.is_from_another_boot()
        assert GitBackend(path).refs() == {MAIN: oids[-1]}
        fsck(path)

    def test_nothing_that_was_collected_stays_in_it(self, path: Path) -> None:
        backend = GitBackend(path)
        oids = line(backend, "one", "two")
        backend.write({}, [RefUpdate(MAIN, oids[1], oids[0])])
        backend.collect()
        assert (path / "reactifact/journal").read_bytes() == b""
        line(backend, "three")
        fsck(path)

    def test_large_packs_are_not_written_twice(self, path: Path) -> None:
        backend = GitBackend(path)
        (old,) = line(backend, "one")
        size = (path / "reactifact/journal").stat().st_size
        new, objects = commit(os.urandom(journal.LARGEST_PACK).hex(), old)
        backend.write(objects, [RefUpdate(MAIN, old, new)])
        assert (path / "reactifact/journal").stat().st_size == size

    def test_threads_and_processes_write_side_by_side(
        self, path: Path, boot: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(journal, "LIMIT", 40_000)
        backends = [GitBackend(path), GitBackend(path)]
        stop = threading.Event()

        def settle() -> None:
            while not stop.is_set():
                backends[0]._journal.settle(wait=0.01)

        def write(number: int) -> None:
            ref = f"refs/heads/s{number}/main"
            line(backends[number % 2], *(f"{number}-{turn}" for turn in range(12)), ref=ref)

        settling = threading.Thread(target=settle)
        settling.start()
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(write, range(6)))
        stop.set()
        settling.join()
        line(backends[0], "last", ref="refs/heads/s0/main")
        (path / "refs/heads/s0/main").write_text("")
        spoil(of_packs(path, "pack")[-1], b"")
        boot("second")
        backend = GitBackend(path)
        assert [log(path, ref)[0] for ref in backend.refs()] == ["last", *(f"{n}-11" for n in range(1, 6))]
        fsck(path)
