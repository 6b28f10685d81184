"""`reactifact bundle`: one file that git reads, and that every verb reads like a store."""

from __future__ import annotations

import subprocess
from pathlib import Path

import anyio
import pytest
from support import Place, fsck, git

from reactifact import FakeLLM, LLMRequest, Message, SessionStore
from reactifact._store._backends.bundle import BundleBackend, unpack
from reactifact._store._backends.git.pack_entries import DamagedPack
from reactifact._store.object_db import Database
from reactifact.errors import StoreError
from reactifact.replay import ReplayLLM, bundled_versions, replay_context, replay_summary

REQUEST = LLMRequest([Message.user("hi")])


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "calls.jsonl"
    llm = ReplayLLM(path, mode="record", inner=FakeLLM("hello"))
    anyio.run(llm.complete, REQUEST)
    return path


@pytest.fixture
def bundle(run, store, recording, tmp_path):
    path = tmp_path / "bug.bundle"
    found = run("bundle", store, "user-1", "-o", path, "--recording", recording)
    assert (found.code, found.err) == (0, "")
    assert "3 branches and ledgers" in found.out
    return path


def test_git_reads_it(bundle, store, tmp_path):
    assert "records a complete history" in git(store, "bundle", "verify", str(bundle))
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(bundle), str(clone)], check=True, capture_output=True)
    assert (clone / "artifacts").is_dir()
    mirror = tmp_path / "mirror.git"
    subprocess.run(["git", "clone", "-q", "--mirror", str(bundle), str(mirror)], check=True)
    fsck(mirror)
    ours = git(store, "for-each-ref", "refs/heads/user-1/", "--format=%(objectname) %(refname)")
    theirs = git(mirror, "for-each-ref", "refs/heads/", "--format=%(objectname) %(refname)")
    assert ours == theirs
    files = git(mirror, "ls-tree", "--name-only", "refs/reactifact/report").split()
    assert files == ["recording.jsonl", "versions.json"]
    session = anyio.run(Place(mirror).load, "user-1")
    assert session.version == 2


def test_every_verb_reads_it(run, bundle, store):
    expected = run("replay", store, "--session", "user-1", "--hash").lines
    found = run("replay", bundle, "--session", "user-1", "--hash", "--verify-all")
    assert (found.code, found.err) == (0, "")
    assert [line for line in expected if line not in found.lines] == []
    assert any(line.startswith("bundled with reactifact ") for line in found.lines)
    assert "recorded model calls: 1" in found.lines
    assert "every State and every payload hash matches" in found.lines[-1]
    assert run("log", bundle, "user-1").out == run("log", store, "user-1").out
    assert run("audit", bundle, "user-1", "receipt:o1").code == 0
    assert run("replay", bundle, "--session", "shop").code == 1


def test_it_is_a_store_to_look_at(bundle, store):
    async def look():
        whole = replay_summary(await replay_context(store, "user-1"))
        assert replay_summary(await replay_context(bundle, "user-1")) == whole
        assert (await ReplayLLM(bundle).complete(REQUEST)).text == "hello"
        backend = BundleBackend(bundle)
        session = await SessionStore(backend).open("user-1")
        session.context.interrupt("?")
        with pytest.raises(StoreError, match="which is only read"):
            await session.save()

    anyio.run(look)
    versions = bundled_versions(Database(BundleBackend(bundle)))
    assert versions is not None
    assert versions["session"] == "user-1"
    assert {"reactifact", "pydantic", "pygit2"} <= versions["packages"].keys()


def test_equal_sessions_make_equal_files(run, store, bundle, recording, tmp_path):
    again = tmp_path / "again.bundle"
    run("bundle", store, "user-1", "-o", again, "--recording", recording)
    assert again.read_bytes() == bundle.read_bytes()
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_a_bundle_that_git_made(run, store, tmp_path):
    packed = tmp_path / "packed.git"
    subprocess.run(["git", "clone", "-q", "--mirror", str(store), str(packed)], check=True)
    git(packed, "repack", "-adfq", "--depth=50", "--window=50")
    assert "chain length" in git(packed, "verify-pack", "-v", *map(str, packed.glob("objects/pack/*.idx")))
    path = tmp_path / "git.bundle"
    git(packed, "bundle", "create", "-q", str(path), "--all")
    found = run("replay", path, "--session", "user-1", "--verify-all")
    assert (found.code, found.err) == (0, "")
    assert found.lines[0] == "replay v2"
    part = tmp_path / "part.bundle"
    git(packed, "bundle", "create", "-q", str(part), "user-1/main~1..user-1/main")
    refused = run("replay", part)
    assert refused.code == 2
    assert "rests on commit" in refused.err


def test_a_damaged_bundle_is_refused(run, bundle):
    whole = bundle.read_bytes()
    for position in range(20, len(whole), 997):
        changed = bytearray(whole)
        changed[position] ^= 0xFF
        bundle.write_bytes(changed)
        found = run("replay", bundle, "--session", "user-1", "--verify-all")
        assert found.code in (1, 2), position
        assert "Traceback" not in found.err
    bundle.write_bytes(whole[:-1])
    assert "is damaged" in run("replay", bundle).err
    with pytest.raises(DamagedPack, match="holds no pack"):
        unpack(b"nothing")


def test_what_cannot_be_bundled(run, store, tmp_path):
    out = tmp_path / "x.bundle"
    assert "holds no session 'nobody'" in run("bundle", store, "nobody", "-o", out).err
    absent = run("bundle", store, "user-1", "-o", out, "--recording", tmp_path / "absent")
    assert absent.code == 2
    (tmp_path / "bad").write_text("{}\n")
    assert (
        "not a recorded model call"
        in run("bundle", store, "user-1", "-o", out, "--recording", tmp_path / "bad").err
    )
    assert run("bundle", store, "user-1", "-o", tmp_path / "no" / "folder").code == 2
    assert not out.exists()
