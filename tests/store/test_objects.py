"""Single objects are git's: the same ids and bytes as real git writes; damage is named."""

from __future__ import annotations

import subprocess
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reactifact._store import objects
from reactifact._store.objects import (
    BLOB_MODE,
    TREE_MODE,
    CommitObject,
    GitObject,
    Hashed,
    Signature,
    TreeEntry,
    deflate,
    encode_commit,
    encode_tree,
    inflate,
    misnamed,
    object_id,
    parse_commit,
    parse_tree,
    references,
    tag_target,
    with_folder,
)
from reactifact.errors import ObjectTooLarge, StoreError

ZOE = Signature("Zoë", "zoe@example.com", 1_700_000_000)
OID = "0123456789abcdef0123456789abcdef01234567"
names = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=12).filter(
    lambda name: name not in (".", "..") and name.lower() != ".git"
)
entries = st.dictionaries(names, st.sampled_from([BLOB_MODE, TREE_MODE]), max_size=8).map(
    lambda modes: {name: TreeEntry(mode, OID) for name, mode in modes.items()}
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("objects") / "r.git"
    subprocess.run(["git", "init", "-q", "--bare", str(path)], check=True)
    return path


def git(repository: Path, *arguments: str, given: bytes = b"") -> bytes:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, input=given, capture_output=True, check=True).stdout


@pytest.mark.parametrize("data", [b"", b"one\n", b"\0\xff" * 100])
def test_an_id_is_the_one_git_gives(repository: Path, data: bytes) -> None:
    assert object_id("blob", data) == git(repository, "hash-object", "--stdin", given=data).decode().strip()


@given(entries=entries)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_tree_has_the_order_and_the_id_that_git_gives_it(
    repository: Path, entries: dict[str, TreeEntry]
) -> None:
    lines = [
        f"{mode:06o} {'tree' if mode == TREE_MODE else 'blob'} {oid}\t{name}\0"
        for name, (mode, oid) in entries.items()
    ]
    made = git(repository, "mktree", "--missing", "-z", given="".join(lines).encode()).decode().strip()
    data = encode_tree(entries)
    assert object_id("tree", data) == made
    assert parse_tree(data) == entries


def test_a_commit_reads_as_git_reads_it(tmp_path: Path) -> None:
    repository = tmp_path / "r.git"
    subprocess.run(["git", "init", "-q", "--bare", str(repository)], check=True)
    tree = git(repository, "mktree").decode().strip()
    commit = CommitObject(tree, (), ZOE, ZOE, "Say what\n\nand why\n", record='{"change":"c"}')
    oid = git(repository, "hash-object", "-t", "commit", "-w", "--stdin", given=encode_commit(commit))
    shown = git(repository, "log", "-1", "--format=%an|%ae|%at|%s|%b", oid.decode().strip()).decode()
    assert shown.strip() == "Zoë|zoe@example.com|1700000000|Say what|and why"
    assert git(repository, "fsck", "--strict").decode().strip() in (
        "",
        f"dangling commit {oid.decode().strip()}",
    )
    assert parse_commit(git(repository, "cat-file", "commit", oid.decode().strip())) == commit


def test_headers_of_others_are_passed_over_and_an_odd_time_is_taken_as_git_does() -> None:
    data = f"tree {OID}\nauthor A <a@b> soon +0000\ncommitter A <a@b> 5 +0200\nencoding x\ngpgsig y\n z\n\nm"
    found = parse_commit(data.encode())
    assert (found.author.time, found.committer.time, found.message, found.record) == (0, 5, "m", "")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "it has no tree"),
        (b"tree 12\n\nm", "its tree is '12'"),
        (f"tree {OID}\nparent x\n\nm".encode(), "its parent is 'x'"),
        (f"tree {OID}\nauthor A <a@b> 1 +0000\n\nm".encode(), "it has no 'committer'"),
    ],
)
def test_a_damaged_commit_is_named(data: bytes, says: str) -> None:
    with pytest.raises(StoreError, match=says) as error:
        parse_commit(data)
    assert object_id("commit", data) in str(error.value)


@pytest.mark.parametrize("cut", [1, 10, 25])
def test_a_tree_that_is_cut_short_is_named(cut: int) -> None:
    data = encode_tree({"name": TreeEntry(BLOB_MODE, OID)})[:-cut]
    with pytest.raises(StoreError, match=object_id("tree", data)):
        parse_tree(data)


def test_what_an_object_refers_to() -> None:
    tree = encode_tree({"f": TreeEntry(BLOB_MODE, "1" * 40), "d": TreeEntry(TREE_MODE, "2" * 40)})
    assert sorted(references(GitObject("tree", tree))) == [("1" * 40, True), ("2" * 40, False)]
    submodule = encode_tree({"s": TreeEntry(0o160000, "3" * 40)})
    assert references(GitObject("tree", submodule)) == []
    commit = encode_commit(CommitObject(OID, ("4" * 40,), ZOE, ZOE, "m"))
    assert references(GitObject("commit", commit)) == [(OID, False), ("4" * 40, False)]
    assert references(GitObject("blob", b"tree 1")) == []
    tag = f"object {OID}\ntype commit\ntag t\n\nm".encode()
    assert references(GitObject("tag", tag)) == [(OID, False)]
    with pytest.raises(StoreError, match="does not say what it points at"):
        tag_target(b"type commit\n")


@pytest.mark.parametrize("said", [-1, 0, 9, 11, 10_000])
def test_what_is_inflated_has_the_size_it_said(said: int) -> None:
    packed = zlib.compress(b"0123456789")
    assert inflate(packed, 10) == b"0123456789"
    with pytest.raises(ValueError, match="bytes"):
        inflate(packed, said)
    with pytest.raises(ValueError, match="bytes"):
        inflate(packed + b"x", 10)
    with pytest.raises(ValueError, match="decompressed"):
        inflate(b"no zlib", 10)


def test_a_size_over_the_limit_names_the_option() -> None:
    objects.require_size("blob x", 10, 10)
    with pytest.raises(ObjectTooLarge, match=r"blob x has 11 bytes, and 10 are taken.*max_object="):
        objects.require_size("blob x", 11, 10)


def test_objects_under_a_wrong_id_are_found_and_those_hashed_here_are_not_hashed_again() -> None:
    data = [b"one", b"two" * 40_000]
    right = {object_id("blob", one): GitObject("blob", one) for one in data}
    wrong = {OID: GitObject("blob", b"one")}
    assert misnamed(right) == []
    assert misnamed({**right, **wrong}) == [OID]
    assert misnamed(Hashed(wrong)) == []  # it is the promise of the type, which `Branch` and `Ledger` keep
    assert type({**Hashed(right), **wrong}) is dict  # and is lost where anything else is added


@given(st.dictionaries(st.sampled_from("0123456789abcdef"), st.binary(max_size=2)), st.sampled_from("07af"))
def test_a_folder_put_into_a_tree_of_folders_gives_what_encoding_it_whole_does(
    before: dict[str, bytes], name: str
) -> None:
    entries = {digit: TreeEntry(TREE_MODE, object_id("blob", data)) for digit, data in before.items()}
    after = {**entries, name: TreeEntry(TREE_MODE, OID)}
    assert with_folder(encode_tree(entries), len(entries), name, OID) == encode_tree(after)


@pytest.mark.parametrize(
    ("name", "mode"), [("a", BLOB_MODE), ("meta", TREE_MODE), ("é", TREE_MODE), ("A", TREE_MODE)]
)
def test_a_tree_of_anything_else_than_fanned_out_folders_is_left_to_the_encoder(name: str, mode: int) -> None:
    entries = {"0": TreeEntry(TREE_MODE, OID), name: TreeEntry(mode, OID)}
    assert with_folder(encode_tree(entries), len(entries), name, OID) is None


@given(st.binary(max_size=5000), st.sampled_from([b"", b"40000 ", b"100644 "]))
def test_what_is_deflated_is_what_zlib_reads(data: bytes, start: bytes) -> None:
    packed = deflate(start + data, 1)
    assert zlib.decompress(packed) == start + data
    assert inflate(packed, len(start + data)) == start + data
    assert deflate(bytes(start + data), 1) == packed


@pytest.mark.parametrize(("entries", "is_compressed"), [(2, False), (16, False), (200, True)])
def test_a_small_tree_is_left_as_it_is_and_a_large_one_compressed(entries: int, is_compressed: bool) -> None:
    data = encode_tree(
        {f"{n:03}": TreeEntry(TREE_MODE, object_id("blob", b"%d" % n)) for n in range(entries)}
    )
    packed = deflate(data, 1)
    assert (data in packed) is not is_compressed
    assert (len(packed) < len(data)) is is_compressed
