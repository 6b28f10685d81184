"""The type registry: which model stands behind a type id, and what goes with a model.

Owns the way from an id to a model, schema revisions, and the use of migrate hooks and merge functions.
Which id a model has is `types/ids`'; what a dotted name leads to, and what may be imported for it, is
`types/importer`'s; how a payload is written or validated is `types/codec`'s.

An id leads to a model by, in this order: a registered id, a registered alias, a qualified name that
can be imported (parametrised generics through origin and arguments), a class that this process has
written before, a class that carries the id as its own `TYPE_ID`. It never leads to anything but a
pydantic model.
"""

from __future__ import annotations

import copy
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from weakref import ref

from blake3 import blake3
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from .._store import canonical
from ..errors import PayloadError, ReactifactWarning, TypeNotFoundError, add_note, told
from . import ids
from .ids import (
    MergeFunction,
    Migrate,
    TypeSpec,
    generic_parts,
    own_type_id,
    qualified,
    register,
    registered_types,
    registry,
    type_id_of,
)
from .importer import (
    ImportRefused,
    find_object,
    has_file,
    is_allowed,
    limit,
    limit_imports,
    loaded_object,
)

__all__ = [
    "MergeFunction",
    "Migrate",
    "TypeNotFoundError",
    "TypeSpec",
    "has_migrate_hook",
    "is_process_local",
    "known_model",
    "limit_imports",
    "merge_function_of",
    "migrate_payload",
    "register",
    "registered_revision",
    "registered_types",
    "resolve",
    "revision_of",
    "type_id_of",
    "warn_process_local",
]


# -- A digest of the shape in which a model's payloads are stored --


_DIGITS = 16


def schema_digest(model: type[BaseModel]) -> str:
    """Return a short hash of the model's JSON schema, as hex digits.

    Where a field has no JSON schema, of the names and annotations of the fields instead.
    """
    return blake3(_schema_bytes(model)).hexdigest()[:_DIGITS]


def _schema_bytes(model: type[BaseModel]) -> bytes:
    try:
        schema = model.model_json_schema(by_alias=False, schema_generator=_QuietSchema, mode="validation")
        return canonical.encode(_shape(schema))
    except Exception:
        # A field that has no JSON schema, or whose own hook for it fails, must not stop a write.
        shape = {name: repr(field.annotation) for name, field in model.model_fields.items()}
        return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(sorted(shape.items()))).encode()


class _QuietSchema(GenerateJsonSchema):
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default", "skipped-discriminator"}  # noqa: RUF012


_TEXTS_FOR_PEOPLE = frozenset({"title", "description", "examples", "deprecated"})
_MAPS_OF_SCHEMAS = frozenset({"properties", "$defs", "patternProperties", "dependentSchemas"})


def _shape(schema: Any) -> Any:
    """Return a JSON schema without the texts that are written for people."""
    if isinstance(schema, list):
        return [_shape(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    shape = {}
    for key, value in schema.items():
        if key in _MAPS_OF_SCHEMAS and isinstance(value, dict):
            shape[key] = {name: _shape(one) for name, one in value.items()}
        elif key not in _TEXTS_FOR_PEOPLE:
            shape[key] = _shape(value)
    return shape


# -- the type registry: which model stands behind a type id, and what goes with a model --


def resolve(type_id: str) -> type[BaseModel]:
    """Return the model behind a type id.

    Raises `TypeNotFoundError` when there is none in this process, when the name leads to something
    that is not a pydantic model, or out of what `limit_imports` allows.
    """
    spec = registry.by_name.get(type_id)
    if spec is not None:
        return spec.model
    declared = registry.seen.get(type_id)
    if declared is not None and declared.__dict__.get("TYPE_ID") == type_id:
        return _newest(declared, type_id)  # a declared id names no module to look for
    place = _places.get(type_id)
    if place is not None and place.holds():
        return place.model
    found, cause = _imported_model(type_id)
    if found is not None:
        _places[type_id] = _Place.of(type_id, found)
    if found is None and type_id in registry.seen:
        # of this process' own use, so the allow-list does not matter: a reload is still followed
        found = _as_model(loaded_object(type_id)) or registry.seen[type_id]
    if found is None:
        found = _with_type_id(type_id)
    if found is None:
        raise TypeNotFoundError(_not_found(type_id, cause)) from cause
    return _newest(found, type_id)


class _Place(NamedTuple):
    """Where a model was found, so that it need not be looked for again while it is there."""

    module: str
    name: str
    model: type[BaseModel]
    allowed: tuple[str, ...] | None

    @classmethod
    def of(cls, type_id: str, model: type[BaseModel]) -> _Place:
        """Return the place of a model that was just found; of a nested one or a generic it never holds."""
        module, _, name = type_id.rpartition(".")
        return cls(module, name, model, limit.packages)

    def holds(self) -> bool:
        """Whether nothing has changed: a reload or a cell puts another class there."""
        found = getattr(sys.modules.get(self.module), self.name, None)
        return found is self.model and self.allowed is limit.packages


_places: dict[str, _Place] = {}


def known_model(type_id: str) -> type[BaseModel] | None:
    """Return the model behind a type id if this process has it already; nothing is imported."""
    spec = registry.by_name.get(type_id)
    if spec is not None:
        return spec.model
    found, _ = _model_behind(type_id, _known_for)
    return found or registry.seen.get(type_id)


def migrate_payload(type_id: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Return `payload` in today's shape: what the migrate hook of the type makes of a copy of it.

    Without a hook, `payload` itself. What the hook raises reaches the caller with a note that names
    the type. Raises `PayloadError` when the hook returns no dict.
    """
    spec = registry.by_name.get(type_id) or _spec_behind(type_id)
    if spec is None or spec.migrate is None:
        return payload
    try:
        migrated = spec.migrate(copy.deepcopy(payload))
    except Exception as error:
        add_note(error, f"raised by the migrate hook registered for type {type_id!r}")
        raise
    if not isinstance(migrated, dict):
        raise PayloadError(
            f"the migrate hook of type {type_id!r} returned {type(migrated).__name__}; "
            f"it must return the payload as a dict"
        )
    return migrated


def has_migrate_hook(type_id: str) -> bool:
    """Return whether `migrate_payload` does anything for this type id."""
    spec = registry.by_name.get(type_id) or _spec_behind(type_id)
    return spec is not None and spec.migrate is not None


def merge_function_of(model: type[BaseModel]) -> MergeFunction | None:
    """Return the merge function registered for `model`, if any."""
    spec = _spec_of(model)
    return None if spec is None else spec.merge


def revision_of(model: type[BaseModel]) -> str:
    """Return the schema revision of `model`: the registered one, else a hash of its schema.

    The hash covers names, types and constraints of the stored fields, not titles, descriptions and
    aliases, so that a better docstring is not a new revision.
    """
    known = registry.revisions.get(ref(model))  # which a registration empties
    if known is None:
        known = registered_revision(model)
        if known is None:
            known = schema_digest(model)
            registry.revisions.keep(model, known)
    return known


def registered_revision(model: type[BaseModel]) -> str | None:
    """Return the revision that `model` was registered with, if any."""
    spec = _spec_of(model)
    return None if spec is None else spec.revision


def is_process_local(model: type[BaseModel]) -> bool:
    """Return whether the id of `model` means nothing outside this process.

    True for a class without a registered id or `TYPE_ID` of its own that no import leads to: one
    from a function body, a notebook cell or `create_model`, and a generic with such a class inside.
    """
    if model in registry.by_model:
        return False
    origin, arguments = generic_parts(model)
    if origin is not None:
        local = is_process_local(origin) or any(_is_local_argument(one) for one in arguments)
        return local or _imported_model(type_id_of(model))[0] is None
    return own_type_id(model) is None and not _has_place(model)


_SCRIPTS = ("__main__", "__mp_main__")  # which may be a notebook


def warn_process_local(model: type[BaseModel]) -> None:
    """Warn, once for each name, when `model` is written durably and only this process can read it back."""
    module = model.__module__
    is_there = getattr(sys.modules.get(module), model.__qualname__, None) is model  # most stand in a module
    if (is_there and limit.packages is None and module not in _SCRIPTS) or model in registry.warned:
        return
    if not is_process_local(model):
        return
    registry.warned.add(model)
    if qualified(model) in registry.warned_names:
        return  # the definition has run again
    registry.warned_names.add(qualified(model))
    warnings.warn(
        f"artifacts of {qualified(model)} are stored, but another process cannot find that class: move it "
        f"to the top level of a module{_within_limit(model)}, or call register_type({model.__name__}, "
        f"type_id=...) at import time",
        ReactifactWarning,
        stacklevel=3,
    )


def _has_place(model: type[BaseModel]) -> bool:
    """Whether another process that may import the module finds the class under its name."""
    name = qualified(model)
    if _as_model(loaded_object(name)) is None or not is_allowed(model.__module__):
        return False
    return not name.startswith("__main__.") or has_file("__main__")  # a notebook has none


def _within_limit(model: type[BaseModel]) -> str:
    return "" if is_allowed(model.__module__) else " that limit_imports allows"


def _is_local_argument(argument: Any) -> bool:
    if isinstance(argument, type) and issubclass(argument, BaseModel):
        return is_process_local(argument)
    if "<locals>" in getattr(argument, "__qualname__", ""):
        return True
    return any(_is_local_argument(one) for one in getattr(argument, "__args__", ()))


def _spec_of(model: type[BaseModel]) -> TypeSpec | None:
    origin, _ = generic_parts(model)
    return registry.by_model.get(model) or (registry.by_model.get(origin) if origin else None)


def _spec_behind(type_id: str) -> TypeSpec | None:
    try:
        return _spec_of(resolve(type_id))
    except TypeNotFoundError:
        return None


Finder = Callable[[str], Any]


def _imported_model(type_id: str) -> tuple[type[BaseModel] | None, Exception | None]:
    """Return the model that a qualified name leads to, or why an import on the way failed."""
    return _model_behind(type_id, _find_for)


def _model_behind(
    type_id: str, finder: Callable[[str], Finder]
) -> tuple[type[BaseModel] | None, Exception | None]:
    find = finder(type_id)
    try:
        # Whatever a generic says about arguments it does not take, the id leads nowhere.
        found = ids.parse(type_id, find) if type_id.endswith("]") else find(type_id)
    except Exception as error:
        return None, error
    return _as_model(found), None


def _as_model(found: Any) -> type[BaseModel] | None:
    """Return what was found if it is a model; pydantic's own bases are none, they hold no data."""
    if isinstance(found, type) and issubclass(found, BaseModel):
        from pydantic import (
            RootModel,  # a model that costs as much as all of them: who has none waits for none
        )

        return found if found not in (BaseModel, RootModel) else None
    return None


def _find_for(type_id: str) -> Finder:
    """Return how names are found; inside a generic's id, bare ones also stand in the origin's module."""
    if not type_id.endswith("]"):
        return find_object
    module = _origin_module(type_id)

    def find(name: str) -> Any:
        try:
            return resolve(name)
        except TypeNotFoundError:
            found = find_object(name) if "." in name else getattr(module, name, None)
            if found is None:
                raise
            return found

    return find


def _known_for(type_id: str) -> Finder:
    """Return how names are found where nothing may be imported."""
    if not type_id.endswith("]"):
        return loaded_object
    module = _origin_module(type_id)

    def find(name: str) -> Any:
        found = known_model(name)
        return found or (loaded_object(name) if "." in name else getattr(module, name, None))

    return find


def _origin_module(type_id: str) -> Any:
    return sys.modules.get(type_id.partition("[")[0].rpartition(".")[0])


def _with_type_id(type_id: str) -> type[BaseModel] | None:
    """Return the newest model that carries the id as its own `TYPE_ID` and was not written before.

    Raises `TypeNotFoundError` when there are two such classes.
    """
    found = None
    for model in _subclasses(BaseModel):
        if own_type_id(model) != type_id:
            continue
        if found is not None and qualified(found) != qualified(model):
            raise TypeNotFoundError(
                f"unknown artifact type {type_id!r}: {qualified(found)} and {qualified(model)} both have it "
                f"as TYPE_ID. Give one of them another id, or call register_type for the one that is meant"
            )
        found = model
    return found


def _newest(model: type[BaseModel], type_id: str) -> type[BaseModel]:
    """Return the class that has taken the place of `model` in its module by a reload, or `model`."""
    if own_type_id(model) == type_id:
        current = _as_model(loaded_object(qualified(model)))
        model = current if current is not None and own_type_id(current) == type_id else model
        registry.seen[type_id] = model
    return model


def _subclasses(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in base.__subclasses__():
        yield model
        yield from _subclasses(model)


def _not_found(type_id: str, cause: Exception | None) -> str:
    reason = "no model is registered under it and no import leads to one"
    if isinstance(cause, ImportRefused):
        reason = str(cause)
    elif cause is not None and not isinstance(cause, TypeNotFoundError):
        reason = f"looking it up failed with {told(cause)}"
    if type_id.startswith("__main__."):
        reason = "it was written by a script run as __main__, and this is another one"
    return (
        f"unknown artifact type {type_id!r}: {reason}. Import the module that defines it, or call "
        f"register_type(Model, aliases=[{type_id!r}]) for the model that takes its place"
    )
