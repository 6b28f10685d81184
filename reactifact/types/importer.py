"""Finding a class by its dotted name, and what may be imported for it.

Owns the walk from `shop.orders.Order.Line` to an object, and the allow-list of `limit_imports`. Which
names are ids of models is the registry's knowledge (`types`).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from types import ModuleType
from typing import Any

_ALWAYS = (
    "reactifact",
    "__main__",  # it runs already, and is never imported
    # what stands as an argument in the id of a generic: Box[decimal.Decimal], RootModel[list[int]]
    "collections",
    "datetime",
    "decimal",
    "ipaddress",
    "pathlib",
    "pydantic.main",
    "pydantic.networks",
    "pydantic.root_model",
    "pydantic.types",
    "typing",
    "uuid",
)


class _Limit:
    """What `limit_imports` allows, `None` for everything."""

    packages: tuple[str, ...] | None = None


limit = _Limit()
"""The limit that holds for the process."""

_may_import: ContextVar[bool] = ContextVar("reactifact_may_import", default=True)


class ImportRefused(Exception):
    """Nothing of a name lies in a package that the allow-list names."""

    def __init__(self, module: str, allowed: tuple[str, ...]) -> None:
        listed = ", ".join(map(repr, allowed)) or "nothing"
        super().__init__(
            f"its module {module!r} is in none of the packages that limit_imports allows ({listed}), and "
            f"was not looked for. If it is yours, call limit_imports with {module!r} or its package too"
        )


def limit_imports(packages: Iterable[str] | None) -> tuple[str, ...] | None:
    """Let the names of stored types lead into these packages alone; return what was allowed before.

    `"shop"` allows `shop` and everything below it, not `shopping`; an empty list allows nothing, `None`
    everything (as it is when a program starts). The limit holds for the whole process, for modules that
    are imported already as for those that are not: another library's model is not a type of yours because
    some module uses it. Models that were registered, that carry the id as their own `TYPE_ID`, or that
    this process has used itself need no import and stay known; so do reactifact's own models, those of
    the script that runs as `__main__`, and plain value types as arguments of generics.

    Importing `shop.models` imports `shop` first, as Python does. Raises `TypeError` for one text in
    place of a list, `ValueError` for what is not a name of a package.
    """
    if isinstance(packages, str):
        raise TypeError(
            f"limit_imports({packages!r}) is one text; pass a list: limit_imports([{packages!r}])"
        )
    wanted = None if packages is None else tuple(packages)
    names: tuple[Any, ...] = wanted or ()  # callers without a type checker pass anything
    for name in names:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(
                f"{name!r} is not a name of a package: give names such as 'shop' or 'shop.models'"
            )
    before, limit.packages = limit.packages, wanted
    return before


@contextmanager
def importing_nothing() -> Iterator[None]:
    """Let the names of stored types lead to what is imported already, for whoever only looks at a store.

    It holds for the code inside, and for the threads and tasks that it starts.
    """
    token = _may_import.set(False)
    try:
        yield
    finally:
        _may_import.reset(token)


def is_allowed(module: str) -> bool:
    """Tell whether the names of stored types may lead into a module."""
    allowed = limit.packages
    return allowed is None or any(
        module == package or module.startswith(f"{package}.") for package in (*allowed, *_ALWAYS)
    )


def find_object(name: str) -> Any:
    """Return what a dotted name leads to, importing its module if need be; `None` if nothing.

    Raises `ImportRefused` where the allow-list is in the way, and what a module raises on import.
    """
    candidates = _candidates(name)
    refused = 0
    for module_name, attributes in candidates:
        if not is_allowed(module_name):
            refused += 1
            continue
        module = _module(module_name)
        found = None if module is None else _attribute(module, attributes)
        if found is not None:
            return found
    if refused and refused == len(candidates):
        # classes are written in capitals: `acme.models.Order.Line` is a class of `acme.models`
        modules = [module for module, _ in candidates if not module.rpartition(".")[2][:1].isupper()]
        raise ImportRefused((modules or [candidates[-1][0]])[0], limit.packages or ())
    return None


def loaded_object(name: str) -> Any:
    """Return what a dotted name leads to in the modules that are imported already, `None` if nothing."""
    for module_name, attributes in _candidates(name):
        module = sys.modules.get(module_name)
        found = None if module is None else _attribute(module, attributes)
        if found is not None:
            return found
    return None


def has_file(module_name: str) -> bool:
    """Tell whether a module was read from a file, which another process can read too."""
    file = getattr(sys.modules.get(module_name), "__file__", None)
    return file is not None and not file.startswith("<")  # `<stdin>` is not a file


@lru_cache(maxsize=4096)
def _candidates(name: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the (module, attributes) that a dotted name may mean, the longest module first."""
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return ()
    return tuple((".".join(parts[:end]), tuple(parts[end:])) for end in range(len(parts) - 1, 0, -1))


def _attribute(module: Any, attributes: tuple[str, ...]) -> Any:
    found = module
    for name in attributes:
        found = getattr(found, name, None)
        if isinstance(found, ModuleType) and not is_allowed(found.__name__):
            return None  # `shop.models.json` would else lead out of `shop`
    return found


def _module(name: str) -> Any:
    if name in sys.modules:
        return sys.modules[name]
    # `python -m shop.orders` runs as `__main__`; a second copy of it would have other classes.
    main = sys.modules.get("__main__")
    if getattr(getattr(main, "__spec__", None), "name", None) == name:
        return main
    if not _may_import.get():
        return None
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            return None
        raise
    except SystemExit as error:  # a script without a guard: reading data must not end the program
        raise ImportError(
            f"module {name} ended with sys.exit({error.code!r}) when it was imported"
        ) from error
