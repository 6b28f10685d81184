"""Names on disk: no two ids share one, and git, POSIX and Windows take each of them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactifact._store.names import (
    LEDGER_BRANCH,
    MAX_REF_BYTES,
    branch_ref,
    decode_name,
    encode_name,
    fan_out,
    is_cut,
    is_ledger_ref,
    ledger_ref,
    parse_ref,
)
from reactifact.errors import InvalidName

DEVICE = re.compile(r"(CON|PRN|AUX|NUL|COM[0-9]|LPT[0-9])(\..*)?", re.IGNORECASE)
NASTY = [
    *("a", "A", "a/b", "a\\b", "a:b", "a b", "a.", "a ", " a"),
    *(".", "..", "...", "a..b", ".a", "-a", "--", "@", "@{"),
    *(".git", ".GIT", "git~1", "GIT~1", ".gitmodules"),
    *("gitmod~1", ".git\u200c", ".g\u200dit", ".git ", ".git."),
    *("CON", "con", "Con.txt", "NUL", "nul.tar.gz", "com1"),
    *("LPT9.x", "aux", "prn", "COM0", "CONIN$", "COM\u00b9"),
    *("x.lock", "x.LOCK", "x.lock.", ".lock", "lock", "x~y"),
    *("x^y", "x?y", "x*y", "x[y", "x\\y", "x@{y", "@{-1}"),
    *("%outbox", "%25outbox", "%", "%%", "%-", "%2F"),
    *("%2f", "HEAD", "main", "refs/heads/main", "a//b", "/a", "a/"),
    *("\0", "\n", "a\nb", "\x7f", "\x1f", "\t"),
    *("\ufeff", "\u2028", "\u00e9", "e\u0301", "\U0001f600", "\u044f" * 42),
    *("<script>", "a|b", 'a"b', "$HOME", "`id`", "a;b"),
    *("a&b", "!", "#", "x" * 195, "x" * 200, "x" * 201, "x" * 4096),
    *("\u044f" * 4096, "x" * 199 + ".", "y" * 158 + "/" * 50),
    *("order:42", "__main__.Order", "m.Box[m.Order, int]"),
]  # fmt: skip

ids = st.one_of(
    st.text(min_size=1, max_size=40),
    st.text(alphabet="aA./%:~-@{ \\lockgitCONul1\u00e9\u0301", min_size=1, max_size=12),
    st.text(min_size=60, max_size=400),
    st.sampled_from(NASTY),
)


def git(cwd: Path, *arguments: str, data: bytes = b"") -> str:
    done = subprocess.run(["git", *arguments], cwd=cwd, input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def assert_portable(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_.+=,@%-]+", name), name
    assert len(name) <= 200
    assert not name.startswith((".", "-"))
    assert not name.endswith(".")
    assert not name.lower().endswith(".lock")
    assert ".." not in name
    assert not DEVICE.fullmatch(name), name
    assert name != LEDGER_BRANCH


@given(ids, st.sampled_from(["", ".json"]))
def test_every_id_becomes_a_portable_name_and_comes_back(identity: str, suffix: str) -> None:
    name = encode_name(identity, suffix=suffix)
    assert_portable(name)
    assert name.endswith(suffix)
    assert decode_name(name, suffix=suffix) == (None if is_cut(name) else identity)


@given(ids, ids)
def test_two_ids_never_share_a_name(one: str, other: str) -> None:
    assert (encode_name(one) == encode_name(other)) == (one == other)


@given(
    st.text(alphabet="ab/\u044f", min_size=150, max_size=400), st.text(alphabet="ab", min_size=1, max_size=3)
)
def test_cut_names_keep_apart_what_differs_behind_the_cut(long: str, tail: str) -> None:
    one, other = encode_name(long), encode_name(long + tail)
    assert one != other
    assert is_cut(one) == (len(quote(long, safe="")) > 200)
    assert_portable(one)


@given(st.text(min_size=1, max_size=60))
def test_a_foreign_name_is_refused_or_is_exactly_what_encoding_gives(name: str) -> None:
    try:
        text = decode_name(name)
    except InvalidName:
        return  # what it says is asserted below
    assert text is None or encode_name(text) == name


def test_a_foreign_name_is_named_when_it_is_refused() -> None:
    for name in ("a~b", "%zz", "", "a%2fb", ".git", "%FF"):
        with pytest.raises(InvalidName, match=re.escape(repr(name)) + ".*another program"):
            decode_name(name)


@given(ids, ids)
def test_refs_come_back_and_the_ledger_is_no_branch(session: str, branch: str) -> None:
    ref = branch_ref(session, branch)
    assert ref.count("/") == 3
    assert len(ref) <= MAX_REF_BYTES
    cut = [is_cut(part) for part in ref.split("/")[2:]]
    assert parse_ref(ref) == (None if cut[0] else session, None if cut[1] else branch)
    assert not is_ledger_ref(ref)
    assert ref != ledger_ref(session)
    assert parse_ref(ledger_ref(session)) == (None if cut[0] else session, LEDGER_BRANCH)
    assert is_ledger_ref(ledger_ref(session))


@given(ids)
def test_the_fan_out_is_three_hex_digits(identity: str) -> None:
    assert all(re.fullmatch("[0-9a-f]", digit) for digit in fan_out(identity))


def test_the_fan_out_spreads_ids() -> None:
    assert len({fan_out(f"order:{number}") for number in range(4096)}) > 2000


@pytest.mark.parametrize("text", ["order:42", "__main__.Order", "user@example.com", "Invoice-7_a.b"])
def test_usual_ids_stay_readable(text: str) -> None:
    assert encode_name(text) == text.replace(":", "%3A")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "must hold at least one character"),
        ("a\ud800b", "lone surrogate at position 1"),
        ("x" * 4097, "4097 characters"),
    ],
)
def test_ids_that_cannot_be_stored_are_refused_with_their_name(text: str, cause: str) -> None:
    for refuse in (encode_name, fan_out, ledger_ref):
        with pytest.raises(InvalidName, match=re.escape(repr(text[:50])) + ".*" + cause):
            refuse(text)


@pytest.mark.parametrize(
    "ref",
    [
        "refs/tags/a/b",
        "refs/heads/main",
        "refs/heads/a/b/c",
        "refs/heads/a/b~1",
        "refs/heads/%zz/x",
        "HEAD",
        "",
    ],
)
def test_refs_of_others_are_not_ours(ref: str) -> None:
    assert parse_ref(ref) is None


def test_git_takes_every_name_as_a_part_of_a_ref(tmp_path: Path) -> None:
    refs = [branch_ref(one, other) for one, other in zip(NASTY, reversed(NASTY), strict=True)]
    refs += [ledger_ref(one) for one in NASTY]
    for ref in refs:
        git(tmp_path, "check-ref-format", ref)
    git(tmp_path, "init", "-q", "--bare", ".")
    commit = _commit(tmp_path, ["file"])
    git(tmp_path, "update-ref", "--stdin", data="".join(f"create {ref} {commit}\n" for ref in refs).encode())
    assert sorted(git(tmp_path, "for-each-ref", "--format=%(refname)").split()) == sorted(set(refs))


def test_git_stores_checks_clones_and_checks_out_every_name(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    git(store, "init", "-q", "--bare", ".")
    names = [encode_name(one, suffix=suffix) for one in NASTY for suffix in ("", ".json")]
    assert len(set(names)) == len(names)
    git(store, "update-ref", "refs/heads/main", _commit(store, names))
    git(store, "symbolic-ref", "HEAD", "refs/heads/main")
    assert git(store, "fsck", "--strict", "--full") == ""
    guards = ("-c", "core.protectNTFS=true", "-c", "core.protectHFS=true", "-c", "transfer.fsckObjects=true")
    git(tmp_path, *guards, "clone", "-q", "--no-local", str(store), "clone")
    assert sorted(one.name for one in (tmp_path / "clone").iterdir() if one.name != ".git") == sorted(names)
    assert git(tmp_path / "clone", "status", "--porcelain") == ""


def _commit(repository: Path, names: Sequence[str]) -> str:
    blob = git(repository, "hash-object", "-w", "--stdin", data=b"{}\n").strip()
    tree = git(
        repository, "mktree", "-z", data="".join(f"100644 blob {blob}\t{one}\0" for one in names).encode()
    )
    person = ("-c", "user.name=test", "-c", "user.email=test@example.com")
    return git(repository, *person, "commit-tree", tree.strip(), "-m", "names").strip()
