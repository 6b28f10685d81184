"""Names on disk: any id as one part of a path or of a ref, and back.

Owns the percent-encoding of ids (artifacts, types, sessions, branches), the fan-out directories and
the shape of our ref names. It knows nothing of what stands behind a path or a ref.

An encoded name holds ASCII letters, digits, `-_.+=,@` and percent escapes, and nothing that git,
POSIX or Windows treats specially. Two ids never share a name: names differ in their bytes, which is
what git compares. Upper case stays plain so that `__main__.Order` reads well in `git log --stat`;
on a disk that folds case, the bare repository refuses the second of two refs that differ in case alone
(`NameTaken`), and a *checkout* of two such artifacts overlaps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote, unquote

from blake3 import blake3

from .._text import plain as plain
from .._text import plain_lines as plain_lines
from .._text import value as value
from ..errors import InvalidName

# -- names on disk: any id as one part of a path or of a ref, and back --


MAX_NAME_BYTES = 200
"""How long an encoded name may be, its suffix included (git allows 250 bytes a part of a ref); it leaves room
for a name that is cut to its hash beside a session of this length in `MAX_REF_BYTES`."""

MAX_REF_BYTES = 255
"""How long the full name of a ref may be that is made new: git hosts refuse longer ones (GitHub's GH005),
and Windows paths of more than 260 characters."""

MAX_ID_CHARACTERS = 4096
"""How long an id may be."""

LEDGER_BRANCH = "%outbox"
"""The ref part of a session's ledger. No encoding produces it: `ou` is not a hexadecimal number."""

_HEADS = "refs/heads/"
_TAGS = "refs/tags/"
_CUT_MARK = "%-"  # encoding follows each `%` with two hex digits
_HASH_DIGITS = 40  # 160 bits, as many as an object id of git

_SAFE = "+=,@"  # beside letters, digits, `_`, `-` and `.`
_ESCAPES = {code: quote(chr(code), safe=_SAFE).replace("~", "%7E") for code in range(128)}
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_DOT_AFTER_DOT = re.compile(r"(?<=\.)\.")
_EDGES = re.compile(r"^[.-]|\.$|\.(?=lock$)", re.IGNORECASE)
_DEVICE_STEM = re.compile(r"(CON|PRN|AUX|NUL|COM[0-9]|LPT[0-9])(\.|$)", re.IGNORECASE)
_PARTIAL_ESCAPE = re.compile(r"%[0-9A-F]?$")
_REF = re.compile(r"refs/heads/([^/]+)/([^/]+)")
_TAG = re.compile(r"refs/tags/([^/]+)/([^/]+)")


@lru_cache(maxsize=8192)
def encode_name(text: str, *, suffix: str = "", longest: int = MAX_NAME_BYTES) -> str:
    """Return `text` as one part of a path or a ref, with `suffix` (plain ASCII, `.json`) behind it.

    The result is at most `longest` bytes long; a longer one is cut and completed with a hash of
    the whole (`is_cut`). Raises `InvalidName` for an empty text, for one of more than
    `MAX_ID_CHARACTERS` characters, and for one that UTF-8 cannot hold.
    """
    data = _checked(text)
    if _PLAIN.fullmatch(text):
        encoded = text
    elif text.isascii():
        encoded = text.translate(_ESCAPES)
    else:
        encoded = quote(data, safe=_SAFE).replace("~", "%7E")
    encoded = _EDGES.sub(_escape, _DOT_AFTER_DOT.sub(_escape, encoded))
    if _DEVICE_STEM.match(encoded):
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    if len(encoded) + len(suffix) <= longest:
        return encoded + suffix
    room = longest - len(suffix) - len(_CUT_MARK) - _HASH_DIGITS
    head = _PARTIAL_ESCAPE.sub("", encoded[:room])
    return head + _CUT_MARK + blake3(data).hexdigest()[:_HASH_DIGITS] + suffix


def is_cut(name: str) -> bool:
    """Return whether `encode_name` had to cut this name, so that the id cannot be read from it."""
    return _CUT_MARK in name


def decode_name(name: str, *, suffix: str = "") -> str | None:
    """Return the text behind an encoded name, `None` for one that was cut.

    Raises `InvalidName` for a name that `encode_name` does not produce with this `suffix`.
    """
    if is_cut(name):
        return None
    if name.endswith(suffix):
        try:
            text = unquote(name[: len(name) - len(suffix)], errors="strict")
            if encode_name(text, suffix=suffix) == name:
                return text
        except ValueError:
            pass  # not UTF-8, or empty: the error below says what is wrong with the name itself
    raise InvalidName(
        f"{_shortened(name)} is not a name that reactifact writes: it was put there by another program; "
        f"move it away, or look it up by its id"
    )


def fan_out(identity: str) -> tuple[str, str, str]:
    """Return the three directories that hold the files of an id: hex digits of its blake3.

    Raises `InvalidName` as `encode_name` does.
    """
    digits = blake3(_checked(identity)).hexdigest()
    return digits[0], digits[1], digits[2]


def branch_ref(session: str, branch: str) -> str:
    """Return the full name of the ref of a branch. Raises `InvalidName` as `encode_name` does."""
    own = encode_name(session)
    room = MAX_REF_BYTES - len(_HEADS) - len(own) - 1
    return f"{_HEADS}{own}/{encode_name(branch, longest=min(MAX_NAME_BYTES, room))}"


def long_branch_ref(session: str, branch: str) -> str | None:
    """Return the longer name that an earlier version gave to the ref of a branch, if it did."""
    name = f"{_HEADS}{encode_name(session)}/{encode_name(branch)}"
    return name if len(name) > MAX_REF_BYTES else None


def ledger_ref(session: str) -> str:
    """Return the full name of the ref of a session's ledger. Raises `InvalidName`."""
    return f"{_HEADS}{encode_name(session)}/{LEDGER_BRANCH}"


def tag_ref(session: str, name: str) -> str:
    """Return the full name of the ref of a tag. Raises `InvalidName` as `encode_name` does.

    It may be longer than `MAX_REF_BYTES`, as tags of earlier versions are.
    """
    return f"{_TAGS}{encode_name(session)}/{encode_name(name)}"


def parse_tag_ref(ref: str) -> tuple[str | None, str] | None:
    """Return session and name of a tag, the session `None` where it was cut; `None` if not ours.

    The name of a tag is never cut (`tags.make_tag` refuses one that would be).
    """
    match = _TAG.fullmatch(ref)
    if match is None:
        return None
    try:
        session, name = (decode_name(part) for part in match.groups())
    except InvalidName:
        return None
    return None if name is None else (session, name)


def is_ledger_ref(ref: str) -> bool:
    """Return whether the ref is a ledger. A branch that somebody called `%outbox` is not."""
    return ref.startswith(_HEADS) and ref.endswith(f"/{LEDGER_BRANCH}")


def parse_ref(ref: str) -> tuple[str | None, str | None] | None:
    """Return session and branch of a ref, each `None` where its name was cut.

    The branch of a ledger is `LEDGER_BRANCH` (`is_ledger_ref` tells it from a branch of that name).
    `None` for refs that are none of ours: tags, notes, branches made by hand.
    """
    match = _REF.fullmatch(ref)
    if match is None:
        return None
    session, branch = match.groups()
    try:
        if branch == LEDGER_BRANCH:
            return decode_name(session), LEDGER_BRANCH
        return decode_name(session), decode_name(branch)
    except InvalidName:
        return None


def case_twins(refs: Iterable[str]) -> list[tuple[str, str]]:
    """Return the parts of refs, in pairs, that a disk which folds upper and lower case takes for one."""
    seen: dict[str, str] = {}
    found: dict[tuple[str, str], None] = {}
    for ref in refs:
        parts = ref.split("/")
        for end in range(1, len(parts) + 1):
            name = "/".join(parts[:end])
            other = seen.setdefault(name.casefold(), name)
            if other != name:
                found[other, name] = None
                break
    return list(found)


def _escape(match: re.Match[str]) -> str:
    return f"%{ord(match[0]):02X}"


def _checked(text: str) -> bytes:
    if not text:
        raise InvalidName("'' is not an id: an id or a name must hold at least one character")
    if len(text) > MAX_ID_CHARACTERS:
        raise InvalidName(
            f"{_shortened(text)} is too long for an id or a name: {len(text)} characters, at most "
            f"{MAX_ID_CHARACTERS} are allowed; use a hash of it, or keep the long text in the data"
        )
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidName(
            f"{_shortened(text)} is not an id: the lone surrogate at position {error.start} cannot be "
            f"written as UTF-8; decode the text correctly where it comes from, or replace that character"
        ) from error


def _shortened(text: str) -> str:
    return repr(text) if len(text) <= 60 else f"{text[:50]!r}... ({len(text)} characters)"
