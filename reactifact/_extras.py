"""Optional parts: the command that installs one from where this copy of reactifact came from.

An index may hold another package under the name of this one, so no command names it there.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

_NAME = "reactifact"
_MARKER = re.compile(r"\s*;\s*(?:.*\band\s+)?extra\s*==\s*['\"]([\w-]+)['\"]\s*$")


def install_command(extra: str) -> str:
    """Return the shell command that installs what the extra `extra` needs, for this interpreter."""
    pip = f"{shlex.quote(sys.executable or 'python')} -m pip install "
    try:
        found = distribution(_NAME)
    except PackageNotFoundError:
        return pip + shlex.quote(f"{_checkout()}[{extra}]")
    origin = _origin(found)
    if origin is not None:
        return pip + _requirement(origin, extra)
    return pip + " ".join(shlex.quote(one) for one in _requirements(found, extra))


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Import what an extra brings, inside of the block; what is missing is an error that says how to get it.

    Raises `ImportError`.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{error.name} is not installed, which the extra `{extra}` brings: run {install_command(extra)}"
        ) from error


def _checkout() -> Path:
    return Path(__file__).resolve().parent.parent


def _origin(found: Distribution) -> dict[str, object] | None:
    """Return where the package was installed from, `None` for an index."""
    text = found.read_text("direct_url.json")
    if text is None:
        return None
    origin: dict[str, object] = json.loads(text)
    return origin


def _requirement(origin: dict[str, object], extra: str) -> str:
    url = str(origin["url"])
    info = origin.get("dir_info")
    if isinstance(info, dict):
        path = unquote(urlsplit(url).path)
        flag = "--editable " if info.get("editable") else ""
        return flag + shlex.quote(f"{path}[{extra}]")
    vcs = origin.get("vcs_info")
    if isinstance(vcs, dict):
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    return shlex.quote(f"{_NAME}[{extra}] @ {url}")


def _requirements(found: Distribution, extra: str) -> list[str]:
    """Return the packages of the extra themselves."""
    matches = ((one, _MARKER.search(one)) for one in found.requires or ())
    return [one[: match.start()].strip() for one, match in matches if match is not None and match[1] == extra]
