"""Branches that must not lose history: named by globs, guarded wherever a ref would move back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ..errors import ProtectedBranch


@dataclass(frozen=True, slots=True)
class Protection:
    """Globs of `session/branch`, such as `*/main` or `orders/release-*`; `*` matches slashes too."""

    patterns: tuple[str, ...] = ()

    @staticmethod
    def of(patterns: Iterable[str]) -> Protection:
        """Return the protection that some globs mean. Raises `TypeError` for a bare string."""
        if isinstance(patterns, str):
            raise TypeError(f"protected= takes a list of globs, such as [{patterns!r}], not one text")
        return Protection(tuple(patterns))

    def pattern_of(self, session: str, branch: str) -> str | None:
        """Return the first glob that names a branch, or `None`."""
        name = f"{session}/{branch}"
        return next((pattern for pattern in self.patterns if fnmatchcase(name, pattern)), None)

    def require_free(self, verb: str, session: str, branch: str) -> None:
        """Refuse what would take history from a protected branch. Raises `ProtectedBranch`."""
        pattern = self.pattern_of(session, branch)
        if pattern is not None:
            raise ProtectedBranch(
                f"cannot {verb} {session}/{branch}: it is protected by {pattern!r}; open the store "
                f"without this pattern in protected= if that is meant"
            )
