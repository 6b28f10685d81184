"""The ids of models: which one each has, and what was registered under it.

Owns the registered models of this process and the rule registered id, else `TYPE_ID`, else
`module.qualname`. The way back, from an id to a model, is `types`'.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from pydantic import BaseModel

from ..store.names import encode_name
from . import type_args

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


class Registry:
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
        self.warned_names: set[str] = set()


registry = Registry()


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
    with registry.lock:
        names = (spec.type_id, *spec.aliases)
        for name in names:
            encode_name(name)
            holder = registry.by_name.get(name)
            if holder is not None and not _same_model(holder.model, model):
                raise ValueError(
                    f"type id {name!r} is already registered for {qualified(holder.model)}; "
                    f"give {qualified(model)} another type_id, or drop the alias"
                )
        for old in list(registry.by_model.values()):
            if old.model is model or (old.type_id == spec.type_id and _same_model(old.model, model)):
                _release_names(old)
        registry.by_model[model] = spec
        registry.by_name.update(dict.fromkeys(names, spec))
        registry.ids.clear()  # ids of generics contain those of their arguments
    return model


def type_id_of(model: type[BaseModel]) -> str:
    """Return the id under which artifacts of `model` are stored.

    The registered id, else the class's own `TYPE_ID`, else `module.qualname`. Raises `ValueError`
    when the `TYPE_ID` is registered for another model, or is that of another class as well.
    """
    known = registry.ids.get(model)
    if known is not None:
        return known
    spec = registry.by_model.get(model)
    identity = spec.type_id if spec is not None else _default_id(model)
    holder = registry.by_name.get(identity)
    if holder is not None and spec is None and not _same_model(holder.model, model):
        raise ValueError(
            f"type id {identity!r} of {qualified(model)} is already registered for "
            f"{qualified(holder.model)}; give one of them another id"
        )
    with registry.lock:
        if spec is None and own_type_id(model) is not None:
            _refuse_second_class(model, identity)
        if model not in registry.met or identity not in registry.seen:
            registry.seen[identity] = model  # the newest of several classes wins, not the last asked about
        registry.met.add(model)
        registry.ids[model] = identity
    return identity


def registered_types() -> list[TypeSpec]:
    """Return what is registered, in the order of registration."""
    specs = list(registry.by_model.values())
    return [spec for spec in specs if registry.by_name.get(spec.type_id) is spec]


def _release_names(spec: TypeSpec) -> None:
    # The model keeps its spec: what is left of an older class after a reload is stored as the newer one.
    for name in (spec.type_id, *spec.aliases):
        if registry.by_name.get(name) is spec:
            del registry.by_name[name]


def _same_model(one: type[BaseModel], other: type[BaseModel]) -> bool:
    if one is other:
        return True
    name = qualified(one)
    return name == qualified(other) and "<locals>" not in name


def _refuse_second_class(model: type[BaseModel], identity: str) -> None:
    """Refuse a class whose `TYPE_ID` another one has. Raises `ValueError`."""
    other = registry.seen.get(identity)
    if other is None or own_type_id(other) != identity or qualified(other) == qualified(model):
        return  # one definition that has run again is one class
    raise ValueError(
        f"type id {identity!r} of {qualified(model)} is already used by {qualified(other)}; give one of "
        f"them another id, or call register_type({model.__name__}) if it takes the place of the other"
    )


def qualified(model: type) -> str:
    # `__mp_main__` is what multiprocessing calls the script in the processes that it starts
    module = "__main__" if model.__module__ == "__mp_main__" else model.__module__
    return f"{module}.{model.__qualname__}"


def own_type_id(model: type[BaseModel]) -> str | None:
    # Not an inherited one: a subclass would be read back as its base.
    own = model.__dict__.get("TYPE_ID")
    return own if isinstance(own, str) else None


def generic_parts(model: type[BaseModel]) -> tuple[type[BaseModel] | None, tuple[Any, ...]]:
    # Own metadata only: a plain subclass of `Box[int]` inherits it and is no parametrisation.
    metadata = model.__dict__.get("__pydantic_generic_metadata__") or {}
    return metadata.get("origin"), metadata.get("args", ())


def _default_id(model: type[BaseModel]) -> str:
    own = own_type_id(model)
    if own is not None:
        return own
    origin, arguments = generic_parts(model)
    if origin is None:
        return qualified(model)
    try:
        texts = [type_args.text_of(one, _model_id) for one in arguments]
    except type_args.NotExpressibleError:
        return qualified(model)
    return f"{type_id_of(origin)}[{', '.join(texts)}]"


def _model_id(cls: type) -> str | None:
    return type_id_of(cls) if issubclass(cls, BaseModel) else None
