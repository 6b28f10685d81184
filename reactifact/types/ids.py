"""The ids of models: which one each has, what was registered under it, and the ids of generics.

Owns the registered models of this process, the rule registered id, else `TYPE_ID`, else
`module.qualname`, and the text form of type arguments. The way back, from an id to a model, is
`types/registry`'s.
"""

from __future__ import annotations

import ast
import builtins
import re
import threading
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin
from urllib.parse import unquote
from weakref import WeakSet, ref

from pydantic import BaseModel

from .._store.names import encode_name

# -- type ids of parametrised generics: `shop.Box[int]`, `shop.Pair[str, list[shop.Order]]` --


_TOKEN = re.compile(r"\s*([\[\],|]|[^\[\],|]+)")
_LITERAL = re.compile(r"Literal\[")
_RESERVED = re.compile(r"[\[\],|%'\"\s]")


class NotExpressibleError(Exception):
    """The argument has no text form that leads back to it."""


def text_of(argument: Any, id_of: Callable[[type], str | None]) -> str:
    """Return the text form of one type argument.

    `id_of` gives the id of a model and `None` for other classes. Raises `NotExpressibleError` for type
    variables, `Annotated` and other forms that no text stands for.
    """
    if argument is None or argument is type(None):
        return "None"
    if argument is Ellipsis:
        return "..."
    if argument is Any:
        return "typing.Any"
    origin = get_origin(argument)
    if origin is None:
        return _class_text(argument, id_of)
    arguments = get_args(argument)
    if origin is types.UnionType:
        return " | ".join(text_of(one, id_of) for one in arguments)
    if origin is Union:  # `Box[Union[int, str]]` and `Box[int | str]` are two classes to pydantic
        return f"typing.Union[{', '.join(text_of(one, id_of) for one in arguments)}]"
    if origin is Literal:
        if not all(type(one) in (str, int, bool, bytes, type(None)) for one in arguments):
            raise NotExpressibleError(argument)
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if not isinstance(origin, type):
        raise NotExpressibleError(argument)
    alias = getattr(argument, "_name", None) if isinstance(argument, typing._GenericAlias) else None  # type: ignore[attr-defined]
    base = f"typing.{alias}" if alias else _class_text(origin, id_of)
    return f"{base}[{', '.join(text_of(one, id_of) for one in arguments)}]"


def _class_text(cls: Any, id_of: Callable[[type], str | None]) -> str:
    if not isinstance(cls, type):
        raise NotExpressibleError(cls)
    identity = id_of(cls)
    if identity is not None:
        return identity if identity.endswith("]") else _RESERVED.sub(_percent, identity)
    name: str = cls.__name__
    if getattr(builtins, name, None) is cls:
        return name
    return f"{cls.__module__}.{cls.__qualname__}"


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode())


def parse(text: str, find: Callable[[str], Any]) -> Any:
    """Return the type that a text form stands for.

    `find` gives what a name stands for; only classes and the forms of `typing` are taken. Raises
    `ValueError` for a text that is not such a form, whatever `find` raises, and whatever the generic
    raises when it does not take the arguments.
    """
    reader = _Reader(text, find)
    result = reader.union()
    if reader.peek():
        raise ValueError(f"{text!r} goes on after its end")
    return result


def _is_typing_form(name: str, found: Any) -> bool:
    module, _, form = name.rpartition(".")
    return module == "typing" and type(found).__module__ == "typing" and getattr(typing, form, None) is found


class _Reader:
    """A reader of one text form by recursive descent."""

    def __init__(self, text: str, find: Callable[[str], Any]) -> None:
        self._text = text
        self._at = 0
        self._find = find

    def peek(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        return match[1].strip() if match else ""

    def _take(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise ValueError(f"{self._text!r} ends too early")
        self._at = match.end()
        return match[1].strip()

    def union(self) -> Any:
        result = self._term()
        while self.peek() == "|":
            self._take()
            result = result | self._term()
        return result

    def _term(self) -> Any:
        rest = self._text[self._at :].lstrip()
        if _LITERAL.match(rest):
            return self._literal(len(self._text) - len(rest))
        name = self._take()
        if name == "None":
            return None
        if name == "...":
            return Ellipsis
        base: Any = getattr(builtins, name, None) if "." not in name else None
        if not isinstance(base, type):
            base = self._find(unquote(name))
        if not isinstance(base, type) and not _is_typing_form(name, base):
            # An object with a `[]` or `|` of its own would run code that has nothing to do with types.
            raise ValueError(f"{name!r} in {self._text!r} stands for no type")
        if self.peek() != "[":
            return base
        return base[tuple(self._arguments())]

    def _arguments(self) -> Iterator[Any]:
        closing = self._take()
        while closing != "]":
            yield self.union()
            closing = self._take()
            if closing not in (",", "]"):
                raise ValueError(f"{self._text!r} has {closing!r} where a comma or a bracket belongs")

    def _literal(self, start: int) -> Any:
        # Strings may hold brackets: the shortest reading that is a Python literal is the right one.
        opening = start + len("Literal[")
        end = self._text.find("]", opening)
        while end >= 0:
            try:
                values = ast.literal_eval(f"({self._text[opening:end]},)")
            except SyntaxError:
                end = self._text.find("]", end + 1)
                continue
            self._at = end + 1
            return Literal[values]
        raise ValueError(f"{self._text!r} has a Literal without its end")


# -- the ids of models: which one each has, and what was registered under it --


M = TypeVar("M", bound=BaseModel)
Migrate = Callable[[dict[str, Any]], dict[str, Any]]
MergeFunction = Callable[..., Any]


class TypeSpec(NamedTuple):
    """What is registered for one model."""

    model: type[BaseModel]
    type_id: str
    aliases: tuple[str, ...] = ()
    migrate: Migrate | None = None
    revision: str | None = None
    merge: MergeFunction | None = None


V = TypeVar("V")


class ByModel(dict["ref[type[BaseModel]]", V]):
    """What is known of models, for as long as each lives; looked up by `ref(model)`, which costs no call."""

    def keep(self, model: type[BaseModel], value: V) -> None:
        """Remember what is known of a model."""
        self[ref(model, self._forget)] = value

    def _forget(self, gone: ref[type[BaseModel]]) -> None:
        self.pop(gone, None)


class Registry:
    """The registered and the seen models of this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.by_name: dict[str, TypeSpec] = {}  # ids and aliases
        self.by_model: dict[type[BaseModel], TypeSpec] = {}
        # Strong on purpose: a class from a function body is still asked for when its function is long over.
        self.seen: dict[str, type[BaseModel]] = {}
        self.ids: ByModel[str] = ByModel()
        self.revisions: ByModel[str] = ByModel()
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
    cannot be stored, and `TypeError` for what is not a pydantic model.
    """
    given: Any = model  # callers without a type checker pass anything
    if not (isinstance(given, type) and issubclass(given, BaseModel)):
        raise TypeError(
            f"{model!r} cannot be registered: it is not a pydantic model; pass a BaseModel subclass"
        )
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
        registry.revisions.clear()  # the registered one counts
    return model


def type_id_of(model: type[BaseModel]) -> str:
    """Return the id under which artifacts of `model` are stored.

    The registered id, else the class's own `TYPE_ID`, else `module.qualname`. Raises `ValueError`
    when the `TYPE_ID` is registered for another model, or is that of another class as well.
    """
    known = registry.ids.get(ref(model))
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
        registry.ids.keep(model, identity)
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
    # Own metadata only: a plain subclass of `Box[int]` inherits it and is not a parametrisation.
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
        texts = [text_of(one, _model_id) for one in arguments]
    except NotExpressibleError:
        return qualified(model)
    return f"{type_id_of(origin)}[{', '.join(texts)}]"


def _model_id(cls: type) -> str | None:
    return type_id_of(cls) if issubclass(cls, BaseModel) else None
