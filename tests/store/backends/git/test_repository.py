"""What only the bare repository promises: its files, its refusals, `HEAD`, kills, full disks, merging."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import forked
import pygit2
import pytest
from building import MAIN, blob, commit, put

from reactifact._store._backends.git.backend import GitBackend
from reactifact._store._backends.git.pack_folder import TRIGGER
from reactifact._store.objects import GitObject, Oid
from reactifact._store.protocol import Durability, RefUpdate
from reactifact.errors import (
    Contention,
    DamagedRef,
    MissingObject,
    NotAStore,
    SessionBusy,
    StoreBusy,
    StoreError,
)

PACK_STEPS = ["pack-written", "idx-written", "idx-renamed", "pack-placed"]
REF_STEPS = ["ref-written", "ref-renamed", "ref-moved", "keep-removed"]
WRITE_STEPS = {
    "full": ["keep-renamed", "ref-locked", "journal-written", "journal-synced", *PACK_STEPS, *REF_STEPS],
    "strict": ["keep-renamed", *PACK_STEPS[:2], "pack-renamed", *PACK_STEPS[2:], "ref-locked", *REF_STEPS],
    "os": ["keep-renamed", *PACK_STEPS, "ref-locked", *REF_STEPS],
}
"""The steps of a write that moves a ref, by durability."""

ALL_STEPS = [(durability, step) for durability, steps in WRITE_STEPS.items() for step in steps]
LEFT_BY_WRITERS = re.compile(r".*\.(keep|new|lock)")

SETTINGS = (
    "* -text -merge\n.reactifact/** -diff merge=union linguist-generated\n"
    "outbox/** -diff merge=union linguist-generated\n"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.git"


def git(path: Path, *arguments: str, check: bool = True) -> str:
    done = subprocess.run(
        ["git", "-C", str(path), *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    if check:
        assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def fsck(path: Path) -> None:
    done = subprocess.run(
        ["git", "-C", str(path), "fsck", "--strict", "--full", "--no-dangling"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    complaints = [
        line
        for line in (done.stdout + done.stderr).splitlines()
        if not line.startswith(("notice: HEAD points to an unborn branch", "notice: No default references"))
    ]
    assert (done.returncode, complaints) == (0, [])


def child(*arguments: str | Path) -> forked.Process:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    return forked.start(Path(__file__).with_name("writer_child.py"), *arguments, env=environment)


def finish(process: forked.Process) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def made(path: Path) -> GitBackend:
    """Return a backend whose repository is there, although nothing was written."""
    backend = GitBackend(path)
    assert backend.repository.is_bare
    return backend


def packs(path: Path) -> list[Path]:
    return sorted((path / "objects/pack").glob("*.pack"))


def leftovers(path: Path) -> list[str]:
    """Return the files that a writer at work has, and the marks of writers that are dead."""
    found = [item for item in path.rglob("*") if LEFT_BY_WRITERS.fullmatch(item.name)]
    for mark in (path / "reactifact/writers").glob("*"):
        with open(mark, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            found.append(mark)
    return [str(item.relative_to(path)) for item in found]


class TestCreation:
    def test_a_new_path_becomes_a_bare_repository(self, path: Path) -> None:
        backend = made(path)
        assert backend.location == str(path)
        assert git(path, "rev-parse", "--is-bare-repository") == "true"
        assert git(path, "symbolic-ref", "HEAD") == "refs/heads/main"
        assert isinstance(backend.repository, pygit2.Repository)
        assert backend.repository.is_bare
        fsck(path)

    def test_it_is_set_up_so_that_git_leaves_it_alone(self, path: Path) -> None:
        made(path)
        for name, value in (("gc.auto", "0"), ("receive.autogc", "false"), ("maintenance.auto", "false")):
            assert git(path, "config", "--local", name) == value
        assert (path / "info/attributes").read_text() == (SETTINGS)

    def test_an_existing_bare_repository_is_set_up_too(self, path: Path, tmp_path: Path) -> None:
        git(tmp_path, "init", "--bare", "-q", path.name)
        (path / "info").mkdir(exist_ok=True)
        (path / "info/attributes").write_text("*.bin binary")
        git(path, "config", "gc.auto", "5")
        for _ in range(2):
            GitBackend(path)
            assert git(path, "config", "--local", "--get-all", "gc.auto") == "0"
            assert (path / "info/attributes").read_text() == (f"*.bin binary\n{SETTINGS}")

    def test_missing_parents_and_an_empty_folder_are_fine(self, tmp_path: Path) -> None:
        made(tmp_path / "a/b/store.git")
        (tmp_path / "empty").mkdir()
        made(tmp_path / "empty")
        (tmp_path / "mount/lost+found").mkdir(parents=True)
        made(tmp_path / "mount")
        for name in ("a/b/store.git", "empty", "mount"):
            fsck(tmp_path / name)

    def test_nothing_is_made_before_the_first_write(self, tmp_path: Path) -> None:
        for path in (tmp_path / "a/b/store.git", tmp_path / "empty"):
            if path.name == "empty":
                path.mkdir()
            backend, other = GitBackend(path), GitBackend(path)
            assert backend.refs() == backend.scan_refs().refs == {}
            with pytest.raises(MissingObject):
                backend.read_many(["1" * 40])
            backend.write({})
            backend.check_indexes()
            assert backend.maintain()
            backend.forget_history()
            assert not backend.needs_maintenance
            backend.close()
            assert [str(item) for item in tmp_path.rglob("*") if item != tmp_path / "empty"] == []
            oid = put(other, MAIN, "one")
            assert backend.refs() == {MAIN: oid}
            assert backend.read_many([oid])
            fsck(path)
            shutil.rmtree(tmp_path / "a", ignore_errors=True)

    def test_a_lock_makes_it_and_a_thread_that_waits_too(self, tmp_path: Path) -> None:
        for number in range(2):
            backend = GitBackend(tmp_path / f"{number}.git")
            if number:
                backend.queue("x").join().leave()
            with backend.lock("x", wait=1.0):
                fsck(tmp_path / f"{number}.git")

    def test_what_cannot_be_made_is_refused_when_it_is_opened(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("text")
        with pytest.raises(NotAStore, match="is not a folder"):
            GitBackend(tmp_path / "file/store.git")

    def test_without_create_nothing_is_made(self, tmp_path: Path) -> None:
        with pytest.raises(NotAStore, match=r"nothing at .*check the path"):
            GitBackend(tmp_path / "a/b", create=False)
        (tmp_path / "empty").mkdir()
        with pytest.raises(NotAStore, match="empty folder"):
            GitBackend(tmp_path / "empty", create=False)
        assert [str(item) for item in tmp_path.rglob("*")] == [str(tmp_path / "empty")]

    def test_a_creation_cut_short_is_finished_by_the_next(self, path: Path) -> None:
        made(path)
        (path / "reactifact-creating").touch()
        (path / "HEAD").unlink()
        (path / "config").unlink()
        put(GitBackend(path), MAIN, "one")
        assert not (path / "reactifact-creating").exists()
        fsck(path)

    def test_threads_and_processes_opening_one_new_path(self, tmp_path: Path) -> None:
        path = tmp_path / "new/store.git"
        children = [child("open", path) for _ in range(8)]
        with ThreadPoolExecutor(8) as pool:
            list(
                pool.map(
                    lambda number: put(GitBackend(path), f"refs/heads/thread-{number}/main", "one"), range(8)
                )
            )
        assert [finish(process) for process in children] == [(0, "", "")] * 8
        assert len(GitBackend(path).refs()) == 16
        fsck(path)

    def test_a_relative_path_keeps_its_meaning(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        backend = GitBackend("store.git")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        oid = put(backend, MAIN, "one")
        backend.close()
        assert backend.refs() == {MAIN: oid}
        assert backend.repository.is_bare
        assert list((tmp_path / "elsewhere").iterdir()) == []

    def test_an_unknown_durability_is_refused(self, path: Path) -> None:
        with pytest.raises(ValueError, match="'most'"):
            GitBackend(path, durability="most")  # type: ignore[arg-type]


class TestNotAStore:
    def refuse(self, path: Path, *words: str) -> None:
        before = sorted(path.rglob("*"))
        with pytest.raises(NotAStore) as caught:
            GitBackend(path)
        for word in (str(path), *words):
            assert word in str(caught.value)
        assert sorted(path.rglob("*")) == before

    def test_a_file(self, path: Path) -> None:
        path.write_text("text")
        self.refuse(path, "is a file", "give the path of a folder")

    def test_a_folder_with_other_things(self, path: Path) -> None:
        path.mkdir()
        (path / "notes.txt").write_text("text")
        self.refuse(path, "no git repository", "a new path")

    def test_a_repository_with_a_work_tree(self, path: Path, tmp_path: Path) -> None:
        git(tmp_path, "init", "-q", path.name)
        self.refuse(path, "work tree", "git clone --bare")
        self.refuse(path / ".git", "work tree", "git clone --bare")

    def test_a_sha256_repository(self, path: Path, tmp_path: Path) -> None:
        git(tmp_path, "init", "-q", "--bare", "--object-format=sha256", path.name)
        self.refuse(path, "sha256", "--object-format=sha1")

    def test_a_repository_with_reftable(self, path: Path) -> None:
        made(path)
        with open(path / "config", "a") as config:
            config.write("[core]\n\trepositoryformatversion = 1\n[extensions]\n\trefstorage = reftable\n")
        self.refuse(path, "reftable", "git refs migrate")

    def test_an_extension_nobody_knows(self, path: Path) -> None:
        made(path)
        with open(path / "config", "a") as config:
            config.write("[core]\n\trepositoryformatversion = 1\n[extensions]\n\tinvented = true\n")
        self.refuse(path, "extensions.invented", "fsck")

    def test_a_config_that_is_not_text(self, path: Path) -> None:
        GitBackend(path).close()
        subprocess.run(["git", "init", "-q", "--bare", str(path)], check=True)
        with (path / "config").open("ab") as file:
            file.write(b"[core]\n\tworktree = \xff\n")
        with pytest.raises(NotAStore, match="no readable `config`"):
            GitBackend(path)

    def test_a_repository_without_config(self, path: Path) -> None:
        made(path)
        (path / "config").unlink()
        self.refuse(path, "config", "restore it")

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
    def test_a_repository_of_another_user(self, path: Path) -> None:
        made(path)
        os.chown(path, 12345, 12345)
        self.refuse(path, "another user", "safe.directory")


class TestHead:
    def head(self, path: Path) -> str:
        return git(path, "symbolic-ref", "HEAD")

    def test_it_points_at_the_first_branch(self, path: Path) -> None:
        backend = GitBackend(path)
        put(backend, "refs/heads/s/%outbox", "ledger")
        assert self.head(path) == "refs/heads/main"
        put(backend, MAIN, "one")
        assert self.head(path) == MAIN
        put(backend, "refs/heads/t/main", "two")
        assert self.head(path) == MAIN
        assert git(path, "log", "--format=%s") == "one"

    def test_it_prefers_main_of_the_session(self, path: Path) -> None:
        oid, objects = commit("one")
        names = ["refs/heads/s/%outbox", "refs/heads/s/a", MAIN]
        GitBackend(path).write(objects, [RefUpdate(name, None, oid) for name in names])
        assert self.head(path) == MAIN

    def test_it_takes_another_branch_where_there_is_no_main(self, path: Path) -> None:
        put(GitBackend(path), "refs/heads/s/fork", "one")
        assert self.head(path) == "refs/heads/s/fork"

    def test_tags_do_not_count(self, path: Path) -> None:
        put(GitBackend(path), "refs/tags/s/main", "one")
        assert self.head(path) == "refs/heads/main"

    @pytest.mark.parametrize("packed", [False, True])
    def test_it_moves_on_when_its_branch_is_deleted(self, path: Path, packed: bool) -> None:
        backend = GitBackend(path)
        oid = put(backend, MAIN, "one")
        others = ["refs/heads/a/%outbox", "refs/heads/a/fork", "refs/heads/b/main", "refs/heads/s/%outbox"]
        backend.write({}, [RefUpdate(name, None, oid) for name in others])
        if packed:
            git(path, "pack-refs", "--all")
        backend.write({}, [RefUpdate(MAIN, oid, None)])
        assert self.head(path) == "refs/heads/b/main"
        backend.write({}, [RefUpdate("refs/heads/b/main", oid, None)])
        assert self.head(path) == "refs/heads/a/fork"
        backend.write({}, [RefUpdate("refs/heads/a/fork", oid, None)])
        assert self.head(path) == "refs/heads/a/fork"
        assert list(backend.refs()) == ["refs/heads/a/%outbox", "refs/heads/s/%outbox"]

    def test_a_detached_one_is_left_alone(self, path: Path) -> None:
        backend = GitBackend(path)
        oid = put(backend, MAIN, "one")
        git(path, "update-ref", "--no-deref", "HEAD", oid)
        put(backend, "refs/heads/t/main", "two")
        assert (path / "HEAD").read_text().strip() == oid


class TestRefsBesideGit:
    def test_git_reads_what_we_write_and_we_what_git_writes(self, path: Path) -> None:
        backend = GitBackend(path)
        first = put(backend, MAIN, "one")
        assert git(path, "rev-parse", MAIN) == first
        second = put(backend, MAIN, "two", first)
        git(path, "update-ref", MAIN, first, second)
        git(path, "update-ref", "refs/heads/t/x", second)
        git(path, "symbolic-ref", "refs/heads/alias", MAIN)
        assert backend.refs() == {"refs/heads/alias": first, MAIN: first, "refs/heads/t/x": second}

    def test_packed_refs_are_read_moved_and_deleted(self, path: Path) -> None:
        backend = GitBackend(path)
        first = put(backend, MAIN, "one")
        backend.write({}, [RefUpdate(f"refs/heads/{name}", None, first) for name in ("s/x", "t/main", "u")])
        git(path, "tag", "-a", "-m", "note", "v1", first)
        git(path, "pack-refs", "--all")
        assert not (path / "refs/heads/s/main").exists()
        tag = git(path, "rev-parse", "v1")
        assert backend.refs("refs/heads/s/") == {MAIN: first, "refs/heads/s/x": first}
        assert backend.refs("refs/tags/") == {"refs/tags/v1": tag}
        second = put(backend, MAIN, "two", first)
        assert backend.refs(MAIN) == {MAIN: second}
        backend.write({}, [RefUpdate(MAIN, second, None), RefUpdate("refs/heads/t/main", first, None)])
        backend.write({}, [RefUpdate("refs/tags/v1", tag, None)])
        assert GitBackend(path).refs() == {"refs/heads/s/x": first, "refs/heads/u": first}
        shown = git(path, "for-each-ref", "--format=%(refname)").splitlines()
        assert shown == ["refs/heads/s/x", "refs/heads/u"]
        with pytest.raises(StoreError, match="refs/heads/s/x"):
            backend.write({}, [RefUpdate("refs/heads/s", None, first)])
        with pytest.raises(StoreError, match="refs/heads/u"):
            backend.write({}, [RefUpdate("refs/heads/u/v", None, first)])
        fsck(path)

    def test_empty_folders_go_with_the_last_ref(self, path: Path) -> None:
        backend = GitBackend(path)
        oid = put(backend, MAIN, "one")
        backend.write({}, [RefUpdate(MAIN, oid, None)])
        assert not (path / "refs/heads/s").exists()
        assert (path / "refs/heads").is_dir()

    @pytest.mark.parametrize("name", [f"{MAIN}.lock", "packed-refs.lock", "HEAD.lock"])
    def test_a_lock_that_is_not_known_to_be_dead_is_never_broken(self, path: Path, name: str) -> None:
        backend = GitBackend(path, lock_wait=0.05)
        first = put(backend, MAIN, "one")
        put(backend, "refs/heads/t/main", "other")
        (path / name).write_text("")
        assert list(backend.refs()) == [MAIN, "refs/heads/t/main"]
        for _ in range(3):
            with pytest.raises(StoreBusy, match=rf"{name} is held by another.* since .*remove that"):
                backend.write({}, [RefUpdate(MAIN, first, None)])
        assert (path / name).read_text() == ""
        assert git(path, "rev-parse", MAIN) == first
        (path / name).unlink()
        backend.write({}, [RefUpdate(MAIN, first, None)])
        assert leftovers(path) == []
        assert not list((path / "reactifact/locks").glob("lockfile-*"))

    def test_a_held_config_is_waited_for(self, path: Path) -> None:
        put(GitBackend(path), MAIN, "one")
        git(path, "config", "gc.auto", "7")
        (path / "config.lock").write_text("")
        with pytest.raises(StoreBusy, match=r"config.lock is held by another program"):
            GitBackend(path, lock_wait=0.05)
        (path / "config.lock").unlink()
        GitBackend(path)
        assert git(path, "config", "gc.auto") == "0"
        assert git(path, "config", "core.bare") == "true"

    @pytest.mark.parametrize("step", ["ref-locked", "ref-written", "ref-renamed"])
    @pytest.mark.parametrize("links", [True, False])
    def test_the_lock_of_a_killed_writer_goes_with_the_next_move(
        self, path: Path, step: str, links: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        backend = GitBackend(path, lock_wait=0.05)
        first = put(backend, MAIN, "one")
        second, objects = commit("two", first)

        def die(name: str) -> None:
            if name == step:
                os._exit(0)

        def refuse(*_: object) -> None:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

        if not links:
            monkeypatch.setattr(os, "link", refuse)
        child = os.fork()
        if not child:
            try:
                writer = GitBackend(path)
                writer.fault = die
                writer.write(objects, [RefUpdate(MAIN, first, second)])
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        monkeypatch.undo()
        assert (path / f"{MAIN}.lock").exists() is (step != "ref-renamed")
        current = second if step == "ref-renamed" else first
        assert backend.refs() == {MAIN: current}
        third = put(backend, MAIN, "three", current)
        assert git(path, "rev-parse", MAIN) == third
        backend.maintain()
        assert leftovers(path) == []
        assert not list((path / "reactifact/locks").glob("lockfile-*"))

    def test_the_lock_of_git_is_not_taken_for_that_of_a_writer_killed_while_it_waited(
        self, path: Path
    ) -> None:
        backend = GitBackend(path, lock_wait=0.05)
        first = put(backend, MAIN, "one")
        lock = path / f"{MAIN}.lock"
        lock.write_text("git's")
        own = backend._git_locks._own(MAIN)  # what it left
        Path(own).write_text("")
        with pytest.raises(StoreBusy):
            put(backend, MAIN, "two", first)
        assert lock.read_text() == "git's"

    def test_a_lock_that_a_live_git_holds_is_respected(self, path: Path) -> None:
        backend = GitBackend(path)
        first = put(backend, MAIN, "one")
        second, objects = commit("two", first)
        backend.write(objects)
        process = subprocess.Popen(
            ["git", "-C", str(path), "update-ref", "--stdin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"start\nupdate {MAIN} {second} {first}\nprepare\n")
        process.stdin.flush()
        assert [process.stdout.readline() for _ in range(2)] == ["start: ok\n", "prepare: ok\n"]
        third, more = commit("three", first)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(backend.write, more, [RefUpdate(MAIN, first, third)])
            process.stdin.write("commit\n")
            process.stdin.close()
            assert process.wait(30) == 0
            process.stdout.close()
            with pytest.raises(Contention):
                waiting.result(30)
        assert backend.refs() == {MAIN: second}

    def test_a_damaged_ref_leaves_the_others_usable(self, path: Path) -> None:
        backend = GitBackend(path)
        oid = put(backend, MAIN, "one")
        backend.write({}, [RefUpdate("refs/heads/t/main", None, oid)])
        git(path, "pack-refs", "--all", "--no-prune")
        (path / MAIN).write_text("")
        refs, damaged = backend.scan_refs()
        assert refs == backend.refs("refs/heads/t/") == {"refs/heads/t/main": oid}
        assert [error.ref for error in damaged] == [MAIN]
        for asked in ("refs/", "refs/heads/s/", MAIN):
            with pytest.raises(DamagedRef, match=r"s/main.*damaged"):
                backend.refs(asked)
        assert backend.refs("refs/heads/s/mai") == {}
        with pytest.raises(StoreError, match=r"s/main.*damaged.*git update-ref"):
            backend.write({}, [RefUpdate(MAIN, oid, None)])
        put(backend, "refs/heads/u/main", "two")


class TestKilledWriters:
    @pytest.mark.parametrize(("durability", "step"), ALL_STEPS)
    def test_the_store_is_whole_and_writable_after_a_kill(
        self, path: Path, step: str, durability: str
    ) -> None:
        old = put(GitBackend(path), MAIN, "one")
        code, _, err = finish(child("kill", path, step, durability))
        assert (code, err) == (-9, "")
        new, _ = commit("two", old)
        moved = step in REF_STEPS[1:]
        backend = GitBackend(path)
        assert backend.refs() == {MAIN: new if moved else old}
        fsck(path)
        put(backend, MAIN, "three", backend.refs()[MAIN])
        assert git(path, "log", "--format=%s", MAIN).split() == (
            ["three", "two", "one"] if moved else ["three", "one"]
        )
        backend.maintain()
        assert leftovers(path) == []
        fsck(path)

    def test_the_keep_of_a_live_writer_is_never_swept(self, path: Path) -> None:
        writer = GitBackend(path)
        seen: list[int] = []

        def look(step: str) -> None:
            if step in ("pack-written", "pack-renamed", "ref-locked"):
                other = GitBackend(path)
                other.maintain()
                other.close()
                seen.append(len(list((path / "objects/pack").glob("*.keep"))))

        writer.fault = look
        oid = put(writer, MAIN, "one")
        assert seen == [1, 1, 1]
        assert GitBackend(path).refs() == {MAIN: oid}
        assert leftovers(path) == []
        fsck(path)

    def test_a_file_system_without_hard_links_will_do(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

        monkeypatch.setattr(os, "link", refuse)
        self.test_the_keep_of_a_live_writer_is_never_swept(path)

    def test_threads_share_one_writer(self, path: Path) -> None:
        backend = GitBackend(path)

        def write(number: int) -> Oid:
            return put(backend, f"refs/heads/s{number}/main", f"{number}")

        with ThreadPoolExecutor(6) as pool:
            oids = list(pool.map(write, range(60)))
        assert sorted(GitBackend(path).refs().values()) == sorted(oids)
        assert leftovers(path) == []
        fsck(path)

    def test_the_keep_of_somebody_else_is_never_swept(self, path: Path) -> None:
        put(GitBackend(path), MAIN, "one")
        keep = packs(path)[0].with_suffix(".keep")
        keep.write_text("")
        GitBackend(path).maintain()
        assert keep.exists()

    def test_a_lock_dies_with_its_holder(self, path: Path) -> None:
        backend = GitBackend(path)
        holder = child("hold", path, "session s")
        try:
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(SessionBusy, match=rf"'session s'.*process {holder.pid} "):
                backend.lock("session s").__enter__()
        finally:
            holder.kill()
            finish(holder)
        with backend.lock("session s"):
            pass

    def test_a_lock_dies_with_its_holder_though_a_forked_child_lives_on(self, path: Path) -> None:
        backend = GitBackend(path)
        holder = child("fork", path)
        assert finish(holder) == (-9, "forked\n", "")
        try:
            with backend.lock("one", wait=5):
                pass
        finally:
            (path / "end").touch()


class TestRefusingDisks:
    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO])
    @pytest.mark.parametrize(("durability", "step"), [one for one in ALL_STEPS if one[1] != "keep-removed"])
    def test_an_error_at_any_step_leaves_a_usable_store(
        self, path: Path, durability: Durability, step: str, code: int
    ) -> None:
        backend = GitBackend(path, durability=durability)
        old = put(backend, MAIN, "one")

        def fail(name: str) -> None:
            if name == step:
                raise OSError(code, os.strerror(code))

        backend.fault = fail
        new, objects = commit("two", old)
        with pytest.raises(StoreError, match=re.escape(os.strerror(code))) as caught:
            backend.write(objects, [RefUpdate(MAIN, old, new)])
        assert str(path) in str(caught.value)
        assert leftovers(path) == []
        backend.fault = None
        reopened = GitBackend(path)
        head = reopened.refs()[MAIN]
        assert head == (new if step in ("ref-renamed", "ref-moved") else old)
        for usable in (backend, reopened):
            head = put(usable, MAIN, "three", head)
        fsck(path)

    def test_a_file_that_cannot_grow(self, path: Path) -> None:
        old = put(GitBackend(path), MAIN, "one")
        code, out, err = finish(child("fill", path, "20000"))
        assert (code, err) == (0, "")
        assert os.strerror(errno.EFBIG) in out
        assert str(path) in out
        backend = GitBackend(path)
        assert leftovers(path) == []
        put(backend, MAIN, "two", old)
        fsck(path)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_a_read_only_store_can_be_read(self, path: Path) -> None:
        oid = put(GitBackend(path), MAIN, "one")
        for folder in (path, path / "objects/pack", path / "refs/heads/s"):
            folder.chmod(0o555)
        try:
            backend = GitBackend(path)
            assert backend.read_many(backend.refs().values()).keys() == {oid}
            with pytest.raises(StoreError, match=r"failed: Permission denied"):
                put(backend, MAIN, "two", oid)
        finally:
            for folder in (path, path / "objects/pack", path / "refs/heads/s"):
                folder.chmod(0o755)


class TestReading:
    def test_packs_that_git_moved_are_found_again(self, path: Path) -> None:
        backend = GitBackend(path)
        head: Oid | None = None
        objects: dict[Oid, GitObject] = {}
        for number in range(5):
            oid, made = commit(str(number), *([head] if head else []))
            backend.write(made, [RefUpdate(MAIN, head, oid)])
            objects |= made
            head = oid
        reader = GitBackend(path)
        reader.read_many([head or ""])
        git(path, "gc", "--prune=now", "-q")
        assert reader.read_many(objects) == objects

    def test_a_damaged_object_is_no_missing_one(self, path: Path) -> None:
        oid, item = blob(os.urandom(500))
        GitBackend(path).write({oid: item})
        pack = packs(path)[0]
        data = bytearray(pack.read_bytes())
        data[100] ^= 0xFF
        pack.chmod(0o644)
        pack.write_bytes(bytes(data))
        with pytest.raises(StoreError, match=rf"{oid}.*git fsck") as caught:
            GitBackend(path).read_many([oid])
        assert not isinstance(caught.value, MissingObject)

    def test_what_was_just_written_is_read_without_the_disk(self, path: Path) -> None:
        backend = GitBackend(path)
        oid, item = blob(b"just written")
        backend.write({oid: item})
        for pack in packs(path):
            pack.unlink()
        assert backend.read_many([oid]) == {oid: item}
        with pytest.raises(MissingObject):
            GitBackend(path).read_many([oid])
        with pytest.raises(MissingObject):
            backend.write({}, [RefUpdate("refs/tags/gone", None, oid)])
        backend.close()
        with pytest.raises(MissingObject):
            backend.read_many([oid])

    def test_an_id_that_is_none_is_refused(self, path: Path) -> None:
        with pytest.raises(StoreError, match="not an object id"):
            GitBackend(path).read_many(["main"])

    def test_nothing_stays_open(self, path: Path) -> None:
        before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
        if before is None:
            pytest.skip("this system does not list open files")
        for _ in range(3):
            backend = GitBackend(path)
            put(backend, f"refs/heads/s/{os.urandom(4).hex()}", os.urandom(4).hex())
            backend.read_many(backend.refs().values())
            backend.maintain()
            backend.close()
            del backend
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) <= before


class TestMaintenance:
    def fill(self, backend: GitBackend, count: int, *, maintain: bool) -> dict[Oid, GitObject]:
        head = backend.refs(MAIN).get(MAIN)
        written: dict[Oid, GitObject] = {}
        for number in range(count):
            oid, objects = commit(f"{number}", *([head] if head else []))
            backend.write(objects, [RefUpdate(MAIN, head, oid)])
            written |= objects
            head = oid
            if maintain and backend.needs_maintenance:
                assert backend.maintain()
        return written

    def check(self, path: Path, written: dict[Oid, GitObject]) -> None:
        assert GitBackend(path).read_many(written) == written
        listed = subprocess.run(
            ["git", "-C", str(path), "cat-file", "--batch-check=%(objecttype)"],
            input="\n".join(written),
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout.split()
        assert listed == [item.kind for item in written.values()]
        fsck(path)

    def test_the_number_of_packs_stays_bounded_and_nothing_is_lost(self, path: Path) -> None:
        backend = GitBackend(path, durability="os")
        most = 0
        written: dict[Oid, GitObject] = {}
        for _ in range(20):
            written |= self.fill(backend, 30, maintain=True)
            most = max(most, len(packs(path)))
        assert most <= TRIGGER
        backend.maintain()
        assert len(packs(path)) < TRIGGER / 2
        assert not backend.needs_maintenance
        self.check(path, written)

    def test_objects_in_several_packs_are_kept_once(self, path: Path) -> None:
        backend = GitBackend(path, durability="os")
        oid, objects = commit("one")
        backend.write(objects, [RefUpdate(MAIN, None, oid)])
        for _ in range(19):
            backend.write(objects)
        assert backend.maintain()
        assert len(packs(path)) == 1
        assert re.search(r"^in-pack: 4$", git(path, "count-objects", "-v"), re.M)
        self.check(path, objects)

    def test_readers_and_other_writers_go_on(self, path: Path) -> None:
        backend = GitBackend(path, durability="os")
        written = self.fill(backend, 40, maintain=False)
        reader, other = GitBackend(path), GitBackend(path, durability="os")
        some = list(written)[::7]
        reader.read_many(some)

        def meanwhile(step: str) -> None:
            if step in ("pack-merged", "merged-pack-removed"):
                assert reader.read_many(some).keys() == set(some)
                assert not other.maintain()
                beside.append(put(other, f"refs/heads/s/{len(beside)}", f"beside {len(beside)}"))

        beside: list[Oid] = []
        backend.fault = meanwhile
        assert backend.maintain()
        assert other.read_many(beside)
        assert reader.read_many(written) == written
        self.check(path, written)

    @pytest.mark.parametrize("step", ["pack-written", "pack-renamed", "pack-merged", "merged-pack-removed"])
    def test_a_kill_in_the_middle_loses_nothing(self, path: Path, step: str) -> None:
        written = self.fill(GitBackend(path, durability="os"), 30, maintain=False)
        assert finish(child("maintain", path, step))[0] == -9
        self.check(path, written)
        assert GitBackend(path).maintain()
        self.check(path, written)
        assert leftovers(path) == []
        assert len(packs(path)) < 10

    def test_packs_of_git_and_kept_ones_are_left_alone(self, path: Path) -> None:
        backend = GitBackend(path, durability="os")
        written = self.fill(backend, 40, maintain=False)
        git(path, "repack", "-adq", "--depth=50")
        (deltas,) = packs(path)
        written |= self.fill(backend, 20, maintain=False)
        kept = next(pack for pack in packs(path) if pack != deltas)
        kept.with_suffix(".keep").write_text("mine")
        git(path, "multi-pack-index", "write")
        assert backend.maintain()
        assert {deltas, kept} <= set(packs(path))
        assert len(packs(path)) < 12
        assert not (path / "objects/pack/multi-pack-index").exists()
        self.check(path, written)

    def test_a_damaged_pack_is_not_carried_on(self, path: Path) -> None:
        backend = GitBackend(path, durability="os")
        self.fill(backend, 20, maintain=False)
        damaged = packs(path)[3]
        data = bytearray(damaged.read_bytes())
        data[40] ^= 0xFF
        damaged.chmod(0o644)
        damaged.write_bytes(bytes(data))
        assert backend.maintain()
        assert damaged in packs(path)
        assert damaged.read_bytes() == bytes(data)
        assert len(packs(path)) < 12

    def test_a_pack_that_git_removed_meanwhile_does_not_come_back(self, path: Path) -> None:
        backend = GitBackend(path, durability="os")
        self.fill(backend, 20, maintain=False)
        secret, item = blob(b"to be erased")
        backend.write({secret: item})
        ran: list[str] = []

        def collect(step: str) -> None:
            if step == "pack-written" and not ran:
                ran.append(git(path, "gc", "--prune=now", "-q"))

        backend.fault = collect
        assert backend.maintain()
        assert ran
        backend.close()
        with pytest.raises(MissingObject):
            backend.read_many([secret])
        fsck(path)

    def test_it_can_be_paused(self, path: Path) -> None:
        backend = GitBackend(path)
        self.fill(backend, 10, maintain=False)
        other = GitBackend(path)
        with backend.maintenance_paused():
            assert not other.maintain()
            with pytest.raises(SessionBusy), other.maintenance_paused(wait=0):
                pass
        assert len(packs(path)) == 10
        assert other.maintain()
        assert len(packs(path)) == 1
