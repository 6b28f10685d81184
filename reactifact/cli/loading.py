"""What a verb is pointed at: a store by its path and kind, agents by the name of a module.

Owns which backend a path means, and the import of a user's module with the current folder at hand.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar

import click
from pydantic import BaseModel

from ..authoring.agents import Agent
from ..context.types import known_model
from ..errors import StoreError
from ..sessions.stores import is_dsn, open_database
from ..store.bundle import BundleBackend, is_bundle
from ..store.database import Database
from ..store.files import address_kind
from ..store.kv import FileKVBackend
from ..store.sql.sqlite import SQLiteKVBackend

F = TypeVar("F")

BACKENDS = ("auto", "file", "sqlite")
SQLITE_SUFFIXES = (".db", ".sqlite", ".sqlite3")


class NoSessionStore(StoreError):
    """There is no store at the path that a verb was given, or it cannot be opened."""


def backend_option(function: F) -> F:
    """Add `--backend`."""
    endings = ", ".join(SQLITE_SUFFIXES)
    text = f"What the path is; auto: a SQLite file for {endings}, else a bare git repository. Not for a DSN."
    option = click.option("--backend", type=click.Choice(BACKENDS), default="auto", help=text)
    return option(function)  # type: ignore[type-var]  # a function or a command, and the same comes back


def open_store(
    path: str | os.PathLike[str],
    backend: str = "auto",
    *,
    create: bool = True,
    read_only: bool = False,
) -> FileKVBackend | SQLiteKVBackend:
    """Return the backend of a path: SQLite if asked for or the path's ending says so, else files.

    Raises `NotAStore` for a path that is something else, and for one with nothing there when `create`
    is false; `ValueError` for a backend that does not exist.
    """
    if backend not in BACKENDS:
        raise ValueError(f"{backend!r} is no backend of the command line: use {', '.join(BACKENDS)}")
    is_sqlite = backend == "sqlite" or (backend == "auto" and os.fspath(path).endswith(SQLITE_SUFFIXES))
    if is_sqlite:
        return SQLiteKVBackend(path, create=create, read_only=read_only)
    return FileKVBackend(path, create=create, read_only=read_only)


def without_password(place: str) -> str:
    """Return a path as it is, a DSN without its password and its parameters, which may hold one too.

    Of an address that is no store's nothing is repeated.
    """
    if not is_dsn(place):
        return place if address_kind(place) is None else "that address"
    scheme, _, rest = place.partition("://")
    user, at, host = rest.partition("?")[0].rpartition("@")
    return f"{scheme}://{user.partition(':')[0]}{at}{host}"


def bundle_at(path: str) -> Database | None:
    """Return what a bundle holds, `None` for a path that is none. Raises `NotAStore` for a damaged one."""
    return Database(BundleBackend(path)) if is_bundle(path) else None


@contextmanager
def stored_at(path: str, backend: str, *, read_only: bool) -> Iterator[Database]:
    """Open a store, or a bundle, that is there; nothing is made. Raises `NoSessionStore`."""
    try:
        opened = bundle_at(path) or _opened(path, backend, read_only=read_only)
    except (StoreError, OSError) as error:
        raise NoSessionStore(f"no session store at {without_password(path)}: {error}") from error
    try:
        yield opened
    finally:
        opened.backend.close()


def _opened(path: str, backend: str, *, read_only: bool) -> Database:
    if backend == "auto":
        return open_database(path, create=False, read_only=read_only)
    if is_dsn(path):
        raise NoSessionStore(f"a DSN is a PostgreSQL store: leave out --backend {backend}")
    return Database(open_store(path, backend, create=False, read_only=read_only))


# -- models --------------------------------------------------------------------------------------


def models_option(function: F) -> F:
    """Add `--models`."""
    text = "Import a module with models (several times), for the transient fields they declare."
    option = click.option("--models", metavar="MODULE", multiple=True, help=text)
    return option(function)  # type: ignore[type-var]  # as above


def find_models(names: Iterable[str]) -> Callable[[str], type[BaseModel] | None]:
    """Import modules, and return what finds the classes of stored types without importing more.

    Raises `SystemExit`, saying why, for a module that cannot be imported.
    """
    for name in names:
        _imported(name)
    return known_model


# -- agents --------------------------------------------------------------------------------------


def load_agents(target: str) -> list[Agent]:
    """Return the agents that `module` or `module:attribute` names.

    The attribute is an agent, a class of agents or several of both; without one it is every agent
    of the module, and every class of agents defined in it of which it holds no agent. The current
    folder is looked in too. Raises `SystemExit`, saying why, when there is nothing of the kind.
    """
    name, _, attribute = target.partition(":")
    module = _imported(name)
    if not attribute:
        found = _agents_of(module)
        if not found:
            raise SystemExit(
                f"reactifact: module {name!r} holds no agents: "
                f"name an agent or a list of agents, as in {name}:ATTRIBUTE"
            )
        return found
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise SystemExit(
                f"reactifact: module {name!r} has no {attribute!r}: check the name after the colon"
            )
        value = getattr(value, part)
    items = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    if not items or not all(_is_agent(item) for item in items):
        raise SystemExit(
            f"reactifact: {target} is {type(value).__name__}: "
            f"name an agent, a class of agents, or a list of them"
        )
    return [_made(item) for item in items]


def _imported(name: str) -> ModuleType:
    if not name or name.startswith("."):
        raise SystemExit(
            f"reactifact: {name!r} names no module: give it as package.module or package.module:ATTRIBUTE"
        )
    here = os.getcwd()
    added = here not in sys.path and "" not in sys.path
    if added:  # as `python -m` does; an installed program has only its own folder there
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except Exception as error:  # a module of the user's may raise anything when it is imported
        raise SystemExit(
            f"reactifact: module {name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    finally:
        if added and here in sys.path:
            sys.path.remove(here)


def _is_agent(value: object) -> bool:
    return isinstance(value, Agent) or (isinstance(value, type) and issubclass(value, Agent))


def _made(item: Any) -> Agent:
    if isinstance(item, Agent):
        return item
    try:
        made: Agent = item()
    except Exception as error:  # its constructor is the user's
        raise SystemExit(
            f"reactifact: an agent of class {item.__name__} cannot be made: {type(error).__name__}: {error}; "
            f"name a ready agent instead"
        ) from error
    return made


def _agents_of(module: ModuleType) -> list[Agent]:
    values = list(vars(module).values())
    listed = [item for value in values if isinstance(value, list | tuple) for item in value]
    agents = {id(item): item for item in [*values, *listed] if isinstance(item, Agent)}
    known = {type(agent) for agent in agents.values()}
    classes = {
        value: None
        for value in values
        if isinstance(value, type) and issubclass(value, Agent) and value.__module__ == module.__name__
    }
    return [*agents.values(), *(_made(kind) for kind in classes if kind not in known)]
