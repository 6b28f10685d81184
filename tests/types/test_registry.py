"""The type registry: ids of models, and models of ids."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import pytest
from pydantic import BaseModel, Field, create_model

import reactifact.types as public
from reactifact.errors import InvalidName, PayloadError, ReactifactError, ReactifactWarning
from reactifact.types import registry as types

T = TypeVar("T")
U = TypeVar("U")


class Order(BaseModel):
    number: int = 0

    class Line(BaseModel):
        price: int = 0


class Invoice(BaseModel):
    """An invoice."""

    TYPE_ID: ClassVar[str] = "types:invoice"
    amount: int = Field(0, ge=0, alias="sum")


class Child(Invoice):
    pass


class Box(BaseModel, Generic[T]):
    value: T


class Pair(BaseModel, Generic[T, U]):
    left: T
    right: U


class NoModel:
    pass


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "typeshop").mkdir()
    (tmp_path / "typeshop/__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "typeshop"
    for name in [name for name in sys.modules if name.partition(".")[0] == "typeshop"]:
        del sys.modules[name]


# --- ids ---------------------------------------------------------------------------------------------


def test_an_id_is_the_registered_one_else_type_id_else_the_qualified_name() -> None:
    assert types.type_id_of(Order) == f"{__name__}.Order"
    assert types.type_id_of(Order.Line) == f"{__name__}.Order.Line"
    assert types.type_id_of(Invoice) == "types:invoice"

    class Registered(BaseModel):
        TYPE_ID: ClassVar[str] = "types:own"

    assert types.type_id_of(Registered) == "types:own"
    assert public.register(Registered, type_id="types:registered") is Registered
    assert public.type_id_of(Registered) == "types:registered"
    assert public.resolve("types:registered") is Registered


def test_a_subclass_does_not_inherit_the_id() -> None:
    assert types.type_id_of(Child) == f"{__name__}.Child"
    assert types.resolve(types.type_id_of(Child)) is Child


def test_an_alias_leads_to_the_model_and_registering_again_replaces() -> None:
    class Model(BaseModel):
        pass

    types.register(Model, type_id="types:first", aliases=["types:old", "types:older"])
    assert types.resolve("types:old") is types.resolve("types:older") is Model
    types.register(Model, type_id="types:second", aliases=["types:first"])
    assert types.type_id_of(Model) == "types:second"
    assert types.resolve("types:first") is Model
    with pytest.raises(types.TypeNotFoundError):
        types.resolve("types:older")
    assert [spec for spec in types.registered_types() if spec.model is Model] == [
        types.TypeSpec(model=Model, type_id="types:second", aliases=("types:first",))
    ]


@pytest.mark.parametrize(
    "names", [{"type_id": "types:held"}, {"aliases": ["types:held"]}, {"type_id": "types:alias"}]
)
def test_an_id_or_alias_of_another_model_is_refused_and_nothing_changes(names: dict[str, Any]) -> None:
    class Holder(BaseModel):
        pass

    class Other(BaseModel):
        pass

    types.register(Holder, type_id="types:held", aliases=["types:alias"])
    with pytest.raises(ValueError, match=r"'types:\w+' is already registered for .*Holder; give .*Other"):
        types.register(Other, **names)
    assert types.resolve("types:held") is types.resolve("types:alias") is Holder
    types.register(Holder, type_id=f"types:free:{names}")


def test_a_type_id_that_is_registered_for_another_model_is_refused() -> None:
    class Owner(BaseModel):
        pass

    class Claimant(BaseModel):
        TYPE_ID: ClassVar[str] = "types:claimed"

    types.register(Owner, type_id="types:claimed")
    with pytest.raises(ValueError, match="already registered"):
        types.type_id_of(Claimant)


def test_what_cannot_be_registered_is_refused() -> None:
    wrong: Any = NoModel
    with pytest.raises(TypeError, match="not a pydantic model"):
        types.register(wrong)
    with pytest.raises(InvalidName):
        types.register(Order, type_id="")
    with pytest.raises(TypeError, match="pass a list"):
        types.register(Order, aliases="types:letters")


# --- resolving ---------------------------------------------------------------------------------------


def test_qualified_names_are_imported(package: Path) -> None:
    (package / "orders.py").write_text(
        "from pydantic import BaseModel\n"
        "class Order(BaseModel):\n    class Line(BaseModel):\n        x: int\n"
    )
    line = types.resolve("typeshop.orders.Order.Line")
    assert line is importlib.import_module("typeshop.orders").Order.Line
    assert types.type_id_of(line) == "typeshop.orders.Order.Line"


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            "Order",
            "nowhere.Model",
            f"{__name__}.Missing",
            f"{__name__}.NoModel",
            "pathlib.Path",
            "os.path.join",
        ),
        *(
            "a b.c",
            "..",
            f"{__name__}.Box[",
            f"{__name__}.Box[nowhere.X]",
            f"{__name__}.Box[int",
            "x]",
            "[int]",
        ),
        *(f"{__name__}.Order[int]", f"{__name__}.Box[int]]", f"{__name__}.Box[Literal['a]", "list[int]"),
        *(f"{__name__}.f.<locals>.Model", "__main__.Missing", f"{__name__}.Box[int, str]", "types:nobody"),
    ],
)
def test_an_id_that_leads_to_no_model_is_named_with_the_way_out(name: str) -> None:
    with pytest.raises(LookupError) as caught:
        types.resolve(name)
    assert isinstance(caught.value, types.TypeNotFoundError)
    assert isinstance(caught.value, ReactifactError)
    for part in ("unknown artifact type", repr(name), "register_type"):
        assert part in str(caught.value)


def test_a_module_that_fails_on_import_is_told(package: Path) -> None:
    (package / "broken.py").write_text("import surely_not_installed\n")
    with pytest.raises(types.TypeNotFoundError, match=r"unknown artifact type.*surely_not_installed"):
        types.resolve("typeshop.broken.Model")


def test_a_class_from_a_function_is_found_in_this_process_and_the_newest_wins() -> None:
    def make() -> type[BaseModel]:
        class Local(BaseModel):
            pass

        return Local

    old, new = make(), make()
    name = types.type_id_of(old)
    assert "<locals>" in name
    assert types.resolve(name) is old
    assert types.type_id_of(new) == name
    assert types.resolve(name) is new
    types.register(make(), type_id=f"types:{name}")  # forgets what is known about ids
    assert types.type_id_of(old) == name
    assert types.resolve(name) is new


def test_a_created_model_is_found_in_this_process() -> None:
    model = create_model("Dynamic", x=(int, 0))
    assert types.resolve(types.type_id_of(model)) is model
    assert types.is_process_local(model)


def test_a_type_id_alone_is_enough_to_be_found() -> None:
    class NeverWritten(BaseModel):
        TYPE_ID: ClassVar[str] = "types:never-written"

    assert types.resolve("types:never-written") is NeverWritten


def test_a_reloaded_module_brings_the_new_class(package: Path) -> None:
    source = package / "cell.py"
    text = (
        "from pydantic import BaseModel\nfrom reactifact.types import register\n"
        "from typing import ClassVar\n"
        "class Plain(BaseModel):\n    x: int = 0\n"
        "class Marked(BaseModel):\n    TYPE_ID: ClassVar[str] = 'types:marked'\n"
        "class Named(BaseModel):\n    x: int = 0\nregister(Named, type_id='types:cell')\n"
    )
    source.write_text(text)
    module = importlib.import_module("typeshop.cell")
    plain, named = module.Plain, module.Named
    assert types.type_id_of(plain) == "typeshop.cell.Plain"
    assert types.type_id_of(module.Marked) == "types:marked"
    module = importlib.reload(module)
    assert module.Plain is not plain
    assert types.resolve("typeshop.cell.Plain") is module.Plain
    assert types.resolve("types:cell") is module.Named
    assert types.resolve("types:marked") is module.Marked
    assert types.type_id_of(named) == types.type_id_of(module.Named) == "types:cell"
    assert [spec.model for spec in types.registered_types() if spec.type_id == "types:cell"] == [module.Named]


def test_models_of_one_name_under_two_ids_stay_two_models() -> None:
    one, other = create_model("Row", a=(int, 0)), create_model("Row", b=(int, 0))
    types.register(one, type_id="types:row-a")
    types.register(other, type_id="types:row-b")
    assert types.resolve("types:row-a") is one
    assert types.resolve("types:row-b") is other


def test_a_script_finds_its_own_models(package: Path) -> None:
    script = (
        "from pydantic import BaseModel\nfrom reactifact.types import resolve, type_id_of\n"
        "class Order(BaseModel):\n    pass\n"
        "if __name__ == '__main__':\n"
        "    assert type_id_of(Order) == '__main__.Order'\n"
        "    assert resolve('__main__.Order') is Order\n"
        "    assert resolve('typeshop.script.Order') is Order\n"
    )
    (package / "script.py").write_text(script)
    root = Path(types.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "typeshop.script"],
        env={"PYTHONPATH": f"{package.parent}:{root}"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()


def test_a_model_of_another_script_is_told_apart() -> None:
    with pytest.raises(types.TypeNotFoundError, match="script run as __main__"):
        types.resolve("__main__.Elsewhere")


# --- process-local classes ---------------------------------------------------------------------------


def test_a_local_class_is_warned_about_once_with_the_remedy() -> None:
    class Local(BaseModel):
        pass

    with pytest.warns(ReactifactWarning, match=r"register_type\(Local, type_id=\.\.\.\)") as caught:
        types.warn_process_local(Local)
    assert len(caught) == 1
    types.warn_process_local(Local)  # a second warning would be an error here


def test_classes_with_an_id_or_a_place_are_not_local() -> None:
    class Named(BaseModel):
        TYPE_ID: ClassVar[str] = "types:named-local"

    class Registered(BaseModel):
        pass

    types.register(Registered, type_id="types:registered-local")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for model in (Named, Registered, Order, Order.Line, Invoice):
            assert not types.is_process_local(model)
            types.warn_process_local(model)


# --- migrate, merge, revision ------------------------------------------------------------------------


def test_the_hook_of_a_type_is_found_by_id_and_alias_and_works_on_a_copy() -> None:
    class Model(BaseModel):
        pass

    def migrate(payload: dict[str, Any]) -> dict[str, Any]:
        payload["list"].append(2)
        return payload

    types.register(Model, type_id="types:migrating", aliases=["types:migrating-old"], migrate=migrate)
    payload = {"list": [1]}
    for name in ("types:migrating", "types:migrating-old"):
        assert types.has_migrate_hook(name)
        assert types.migrate_payload(name, payload) == {"list": [1, 2]}
    assert payload == {"list": [1]}
    assert types.migrate_payload("types:nobody", payload) is payload
    assert not types.has_migrate_hook(types.type_id_of(Order))


def test_a_hook_that_returns_nothing_is_refused() -> None:
    class Model(BaseModel):
        pass

    forgetful: Any = lambda payload: None  # noqa: E731
    types.register(Model, type_id="types:forgetful", migrate=forgetful)
    with pytest.raises(PayloadError, match=r"'types:forgetful' returned NoneType"):
        types.migrate_payload("types:forgetful", {})


def test_generics_use_what_is_registered_for_their_origin() -> None:
    class Crate(BaseModel, Generic[T]):
        value: T

    def merge(base: Any, ours: Any, theirs: Any) -> Any:
        return ours

    types.register(
        Crate, type_id="types:crate", revision=3, migrate=lambda payload: {"value": 1}, merge=merge
    )
    assert types.type_id_of(Crate[int]) == "types:crate[int]"
    assert types.resolve("types:crate[int]") is Crate[int]
    assert types.revision_of(Crate[int]) == "3"
    assert types.merge_function_of(Crate[int]) is merge
    assert types.migrate_payload("types:crate[int]", {}) == {"value": 1}
    assert types.merge_function_of(Order) is None


def model_with(**fields: Any) -> type[BaseModel]:
    return create_model("Model", **fields)


def test_the_revision_follows_the_shape_of_the_data() -> None:
    plain = types.revision_of(model_with(a=(int, 0)))
    assert types.revision_of(model_with(a=(int, 0))) == plain
    assert types.revision_of(model_with(a=(int, Field(0, description="a number", alias="b")))) == plain
    others = [
        model_with(a=(str, "")),
        model_with(b=(int, 0)),
        model_with(a=(int, ...)),
        model_with(title=(int, 0)),
    ]
    assert len({plain, *map(types.revision_of, others)}) == 5


def test_a_field_called_title_counts() -> None:
    assert types.revision_of(model_with(title=(int, 0))) != types.revision_of(model_with(title=(str, "")))


def test_a_declared_revision_is_taken() -> None:
    class Model(BaseModel):
        pass

    assert types.revision_of(types.register(Model, type_id="types:revised", revision=7)) == "7"


def test_a_revision_that_is_declared_later_counts_from_then_on() -> None:
    class Late(BaseModel):
        a: int

    class Box(BaseModel, Generic[T]):
        item: T

    before = types.revision_of(Late), types.revision_of(Box[int])
    assert before == (types.revision_of(Late), types.revision_of(Box[int]))
    types.register(Late, type_id="types:late", revision=3)
    types.register(Box, type_id="types:box", revision="two")
    assert (types.revision_of(Late), types.revision_of(Box[int])) == ("3", "two") != before


def test_a_model_without_json_schema_has_a_revision() -> None:
    class Odd(BaseModel):
        model_config = {"arbitrary_types_allowed": True}
        call: Callable[[int], int] | None = None
        thing: NoModel | None = None

    class Other(BaseModel):
        model_config = {"arbitrary_types_allowed": True}
        thing: NoModel | None = None

    assert types.revision_of(Odd) == types.revision_of(Odd)
    assert types.revision_of(Odd) != types.revision_of(Other)
