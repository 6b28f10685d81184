"""The type registry: which model stands behind a type id, and what goes with a model.

Owns ids, aliases, migrate hooks, schema revisions and merge functions, and the way from an id back
to a model. How a payload is written or validated is the codec's business.

An id leads to a model by, in this order: a registered id, a registered alias, a qualified name that
can be imported (parametrised generics through origin and arguments), a class that this process has
written before, a class that carries the id as its own `TYPE_ID`.
"""

from __future__ import annotations

import copy
import importlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from pydantic import BaseModel

from ..errors import PayloadError, ReactifactWarning, TypeNotFoundError
from ..store.names import encode_name
from . import type_args
from .schema import schema_digest

__all__ = [
    "MergeFunction",
    "Migrate",
    "TypeNotFoundError",
    "TypeSpec",
    "has_migrate_hook",
    "is_process_local",
    "known_model",
    "merge_function_of",
    "migrate_payload",
    "register",
    "registered_types",
    "resolve",
    "revision_of",
    "type_id_of",
    "warn_process_local",
]

M = TypeVar("M", bound=BaseModel)
Migrate = Callable[[dict[str, Any]], dict[str, Any]]
MergeFunction = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class TypeSpec:
    """What is registered for one model."""

    model: type[BaseModel]
    type_id: str
    aliases: tuple[str, ...] = ()
    migrate: Migrate | None = None
    revision: str | None = None
    merge: MergeFunction | None = None


class _Registry:
    """The registered and the seen models of this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.by_name: dict[str, TypeSpec] = {}  # ids and aliases
        self.by_model: dict[type[BaseModel], TypeSpec] = {}
        # Strong on purpose: a class from a function body is still asked for when its function is long over.
        self.seen: dict[str, type[BaseModel]] = {}
        self.ids: WeakKeyDictionary[type[BaseModel], str] = WeakKeyDictionary()
        self.revisions: WeakKeyDictionary[type[BaseModel], str] = WeakKeyDictionary()
        self.met: WeakSet[type[BaseModel]] = WeakSet()
        self.warned: WeakSet[type[BaseModel]] = WeakSet()


_registry = _Registry()


def register(
    model: type[M],
    *,
    type_id: str | None = None,
    aliases: Iterable[str] = (),
    migrate: Migrate | None = None,
    revision: int | str | None = None,
    merge: MergeFunction | None = None,
) -> type[M]:
    """Register `model` and return it; registering it again replaces what was said before.

    `type_id` is what is stored (default: its own `TYPE_ID`, else `module.qualname`); `aliases` are
    older ids that lead here too. `migrate(payload) -> payload` brings older payloads into today's
    shape and runs when a payload was written under another `revision` (default: a hash of the
    model's schema). `merge(base, ours, theirs)` combines two changes of one artifact, in a merge of
    branches and of two patches of one generation; `reactifact.merging` has ready ones.

    A class of the same module and name, as a reload or a notebook cell makes it, is the same model.
    Raises `ValueError` when another model holds the id or an alias, `InvalidName` for an id that
    cannot be stored, and `TypeError` for what is no pydantic model.
    """
    given: Any = model  # callers without a type checker pass anything
    if not (isinstance(given, type) and issubclass(given, BaseModel)):
        raise TypeError(f"{model!r} cannot be registered: it is no pydantic model; pass a BaseModel subclass")
    if isinstance(aliases, str):
        raise TypeError(f"aliases={aliases!r} is one text; pass a list of ids: aliases=[{aliases!r}]")
    spec = TypeSpec(
        model=model,
        type_id=type_id if type_id is not None else _default_id(model),
        aliases=tuple(aliases),
        migrate=migrate,
        revision=None if revision is None else str(revision),
        merge=merge,
    )
    with _registry.lock:
        names = (spec.type_id, *spec.aliases)
        for name in names:
            encode_name(name)
            holder = _registry.by_name.get(name)
            if holder is not None and not _same_model(holder.model, model):
                raise ValueError(
                    f"type id {name!r} is already registered for {_qualified(holder.model)}; "
                    f"give {_qualified(model)} another type_id, or drop the alias"
                )
        for old in list(_registry.by_model.values()):
            if old.model is model or (old.type_id == spec.type_id and _same_model(old.model, model)):
                _release_names(old)
        _registry.by_model[model] = spec
        _registry.by_name.update(dict.fromkeys(names, spec))
        _registry.ids.clear()  # ids of generics contain those of their arguments
    return model


def type_id_of(model: type[BaseModel]) -> str:
    """Return the id under which artifacts of `model` are stored.

    The registered id, else the class's own `TYPE_ID`, else `module.qualname`. Raises `ValueError`
    when the `TYPE_ID` is registered for another model.
    """
    known = _registry.ids.get(model)
    if known is not None:
        return known
    spec = _registry.by_model.get(model)
    identity = spec.type_id if spec is not None else _default_id(model)
    holder = _registry.by_name.get(identity)
    if holder is not None and spec is None and not _same_model(holder.model, model):
        raise ValueError(
            f"type id {identity!r} of {_qualified(model)} is already registered for "
            f"{_qualified(holder.model)}; give one of them another id"
        )
    with _registry.lock:
        if model not in _registry.met or identity not in _registry.seen:
            _registry.seen[identity] = model  # the newest of several classes wins, not the last asked about
        _registry.met.add(model)
        _registry.ids[model] = identity
    return identity


def resolve(type_id: str) -> type[BaseModel]:
    """Return the model behind a type id.

    Raises `TypeNotFoundError` when there is none in this process, or when the name leads to
    something that is no pydantic model.
    """
    spec = _registry.by_name.get(type_id)
    if spec is not None:
        return spec.model
    declared = _registry.seen.get(type_id)
    if declared is not None and declared.__dict__.get("TYPE_ID") == type_id:
        return _newest(declared, type_id)  # a declared id names no module to look for
    found, cause = _imported_model(type_id)
    if found is None:
        found = _registry.seen.get(type_id) or _with_type_id(type_id)
    if found is None:
        raise TypeNotFoundError(_not_found(type_id, cause)) from cause
    return _newest(found, type_id)


def known_model(type_id: str) -> type[BaseModel] | None:
    """Return the model behind a type id if this process has it already; nothing is imported."""
    spec = _registry.by_name.get(type_id)
    if spec is not None:
        return spec.model
    name, _, arguments = type_id.partition("[")
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        found: Any = sys.modules.get(".".join(parts[:end]))
        for part in parts[end:]:
            found = getattr(found, part, None)
        if isinstance(found, type) and issubclass(found, BaseModel):
            return resolve(type_id) if arguments else found
    return _registry.seen.get(type_id)


def registered_types() -> list[TypeSpec]:
    """Return what is registered, in the order of registration."""
    specs = list(_registry.by_model.values())
    return [spec for spec in specs if _registry.by_name.get(spec.type_id) is spec]


def migrate_payload(type_id: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Return `payload` in today's shape: what the migrate hook of the type makes of a copy of it.

    Without a hook, `payload` itself. What the hook raises reaches the caller with a note that names
    the type. Raises `PayloadError` when the hook returns no dict.
    """
    spec = _registry.by_name.get(type_id) or _spec_behind(type_id)
    if spec is None or spec.migrate is None:
        return payload
    try:
        migrated = spec.migrate(copy.deepcopy(payload))
    except Exception as error:
        error.add_note(f"raised by the migrate hook registered for type {type_id!r}")
        raise
    if not isinstance(migrated, dict):
        raise PayloadError(
            f"the migrate hook of type {type_id!r} returned {type(migrated).__name__}; "
            f"it must return the payload as a dict"
        )
    return migrated


def has_migrate_hook(type_id: str) -> bool:
    """Return whether `migrate_payload` does anything for this type id."""
    spec = _registry.by_name.get(type_id) or _spec_behind(type_id)
    return spec is not None and spec.migrate is not None


def merge_function_of(model: type[BaseModel]) -> MergeFunction | None:
    """Return the merge function registered for `model`, if any."""
    spec = _spec_of(model)
    return None if spec is None else spec.merge


def revision_of(model: type[BaseModel]) -> str:
    """Return the schema revision of `model`: the registered one, else a hash of its schema.

    The hash covers names, types and constraints of the stored fields, not titles, descriptions and
    aliases, so that a better docstring is no new revision.
    """
    spec = _spec_of(model)
    if spec is not None and spec.revision is not None:
        return spec.revision
    known = _registry.revisions.get(model)
    if known is None:
        known = schema_digest(model)
        _registry.revisions[model] = known
    return known


def is_process_local(model: type[BaseModel]) -> bool:
    """Return whether the id of `model` means nothing outside this process.

    True for a class without a registered id or `TYPE_ID` of its own that no import leads to: one
    from a function body or `create_model`, and a generic with such a class inside.
    """
    if model in _registry.by_model:
        return False
    origin, arguments = _generic(model)
    if origin is not None:
        local = is_process_local(origin) or any(_is_local_argument(one) for one in arguments)
        return local or _imported_model(type_id_of(model))[0] is None
    return _own_type_id(model) is None and _imported_model(_qualified(model))[0] is None


def warn_process_local(model: type[BaseModel]) -> None:
    """Warn, once a class, when `model` is written durably and only this process can read it back."""
    if model in _registry.warned or not is_process_local(model):
        return
    _registry.warned.add(model)
    warnings.warn(
        f"artifacts of {_qualified(model)} are stored, but another process cannot find that class: move it "
        f"to the top level of a module, or call register_type({model.__name__}, type_id=...) at import time",
        ReactifactWarning,
        stacklevel=3,
    )


def _release_names(spec: TypeSpec) -> None:
    # The model keeps its spec: what is left of an older class after a reload is stored as the newer one.
    for name in (spec.type_id, *spec.aliases):
        if _registry.by_name.get(name) is spec:
            del _registry.by_name[name]


def _same_model(one: type[BaseModel], other: type[BaseModel]) -> bool:
    if one is other:
        return True
    name = _qualified(one)
    return name == _qualified(other) and "<locals>" not in name


def _qualified(model: type) -> str:
    return f"{model.__module__}.{model.__qualname__}"


def _own_type_id(model: type[BaseModel]) -> str | None:
    # Not an inherited one: a subclass would be read back as its base.
    own = model.__dict__.get("TYPE_ID")
    return own if isinstance(own, str) else None


def _generic(model: type[BaseModel]) -> tuple[type[BaseModel] | None, tuple[Any, ...]]:
    # Own metadata only: a plain subclass of `Box[int]` inherits it and is no parametrisation.
    metadata = model.__dict__.get("__pydantic_generic_metadata__") or {}
    return metadata.get("origin"), metadata.get("args", ())


def _default_id(model: type[BaseModel]) -> str:
    own = _own_type_id(model)
    if own is not None:
        return own
    origin, arguments = _generic(model)
    if origin is None:
        return _qualified(model)
    try:
        texts = [type_args.text_of(one, _model_id) for one in arguments]
    except type_args.NotExpressibleError:
        return _qualified(model)
    return f"{type_id_of(origin)}[{', '.join(texts)}]"


def _model_id(cls: type) -> str | None:
    return type_id_of(cls) if issubclass(cls, BaseModel) else None


def _is_local_argument(argument: Any) -> bool:
    if isinstance(argument, type) and issubclass(argument, BaseModel):
        return is_process_local(argument)
    if "<locals>" in getattr(argument, "__qualname__", ""):
        return True
    return any(_is_local_argument(one) for one in getattr(argument, "__args__", ()))


def _spec_of(model: type[BaseModel]) -> TypeSpec | None:
    origin, _ = _generic(model)
    return _registry.by_model.get(model) or (_registry.by_model.get(origin) if origin else None)


def _spec_behind(type_id: str) -> TypeSpec | None:
    try:
        return _spec_of(resolve(type_id))
    except TypeNotFoundError:
        return None


def _imported_model(type_id: str) -> tuple[type[BaseModel] | None, Exception | None]:
    """Return the model that a qualified name leads to, or why an import on the way failed."""
    try:
        if type_id.endswith("]"):
            # Whatever a generic says about arguments it does not take, the id leads nowhere.
            found = type_args.parse(type_id, _find_for(type_id))
        else:
            found = _import_object(type_id)
    except Exception as error:
        return None, error
    return (found if isinstance(found, type) and issubclass(found, BaseModel) else None), None


def _find_for(type_id: str) -> Callable[[str], Any]:
    """Return how names inside a generic's id are found; bare ones also stand in the origin's module."""
    module = sys.modules.get(type_id.partition("[")[0].rpartition(".")[0])

    def find(name: str) -> Any:
        try:
            return resolve(name)
        except TypeNotFoundError:
            found = _import_object(name) if "." in name else getattr(module, name, None)
            if found is None:
                raise
            return found

    return find


def _import_object(name: str) -> Any:
    """Return what a dotted name leads to, `None` if nothing. Raises what a module raises on import."""
    parts = name.split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        return None
    for split in range(len(parts) - 1, 0, -1):
        module = _module(".".join(parts[:split]))
        if module is None:
            continue
        found = module
        for part in parts[split:]:
            found = getattr(found, part, None)
        if found is not None:
            return found
    return None


def _module(name: str) -> Any:
    if name in sys.modules:
        return sys.modules[name]
    # `python -m shop.orders` runs as `__main__`; a second copy of it would have other classes.
    main = sys.modules.get("__main__")
    if getattr(getattr(main, "__spec__", None), "name", None) == name:
        return main
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            return None
        raise


def _with_type_id(type_id: str) -> type[BaseModel] | None:
    """Return the newest model that carries the id as its own `TYPE_ID` and was not written before."""
    found = None
    for model in _subclasses(BaseModel):
        if _own_type_id(model) == type_id:
            found = model
    return found


def _newest(model: type[BaseModel], type_id: str) -> type[BaseModel]:
    """Return the class that has taken the place of `model` in its module by a reload, or `model`."""
    if _own_type_id(model) == type_id:
        current, _ = _imported_model(_qualified(model))
        model = current if current is not None and _own_type_id(current) == type_id else model
        _registry.seen[type_id] = model
    return model


def _subclasses(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in base.__subclasses__():
        yield model
        yield from _subclasses(model)


def _not_found(type_id: str, cause: Exception | None) -> str:
    reason = "no model is registered under it and no import leads to one"
    if cause is not None and not isinstance(cause, TypeNotFoundError):
        reason = f"looking it up failed with {type(cause).__name__}: {cause}"
    if type_id.startswith("__main__."):
        reason = "it was written by a script run as __main__, and this is another one"
    return (
        f"unknown artifact type {type_id!r}: {reason}. Import the module that defines it, or call "
        f"register_type(Model, aliases=[{type_id!r}]) for the model that takes its place"
    )
