"""What may be imported to find the class of a stored type, and that an id leads to nothing but a model."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import pytest
from pydantic import BaseModel, RootModel, create_model
from support import Note

import reactifact.types as public
from reactifact import PendingAction
from reactifact.errors import ReactifactError, ReactifactWarning, TypeNotFoundError
from reactifact.types import registry as types

T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    value: T


@pytest.fixture(autouse=True)
def no_limit() -> Iterator[None]:
    before = public.limit_imports(None)
    yield
    public.limit_imports(before)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two packages: `limshop` with models, `limevil`, which leaves a file behind when it is imported."""
    for name in ("limshop", "limevil"):
        (tmp_path / name).mkdir()
    (tmp_path / "limshop/__init__.py").write_text("")
    (tmp_path / "limshop/models.py").write_text(
        "import json\nfrom pydantic import BaseModel\nclass Order(BaseModel):\n    class Line(BaseModel):\n"
        "        x: int = 0\n"
    )
    (tmp_path / "limshopping.py").write_text("from limshop.models import Order\n")
    (tmp_path / "limevil/__init__.py").write_text(
        f"from pathlib import Path\nfrom pydantic import BaseModel\nPath({str(tmp_path / 'ran')!r}).touch()\n"
        "class Model(BaseModel):\n    pass\n"
    )
    (tmp_path / "limexit.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    made = {"limshop", "limshopping", "limevil", "limexit"}
    for name in [name for name in sys.modules if name.partition(".")[0] in made]:
        del sys.modules[name]


def refused(name: str) -> str:
    with pytest.raises(TypeNotFoundError) as caught:
        types.resolve(name)
    assert repr(name) in str(caught.value)
    assert "register_type" in str(caught.value)
    return str(caught.value)


# --- the allow-list ----------------------------------------------------------------------------------


def test_nothing_outside_the_list_is_imported(packages: Path) -> None:
    assert public.limit_imports(["limshop"]) is None
    message = refused("limevil.Model")
    for part in ("'limevil'", "'limshop'", "limit_imports"):
        assert part in message
    assert "limevil" not in sys.modules
    assert not (packages / "ran").exists()
    assert public.limit_imports(None) == ("limshop",)
    assert types.resolve("limevil.Model").__name__ == "Model"  # so the test above could have failed
    assert (packages / "ran").exists()


def test_a_package_stands_for_all_below_it_and_for_no_longer_name(packages: Path) -> None:
    public.limit_imports(["limshop"])
    line = types.resolve("limshop.models.Order.Line")
    assert line is importlib.import_module("limshop.models").Order.Line
    refused("limshopping.Order")
    assert "limshopping" not in sys.modules
    public.limit_imports(["limshop.models"])
    assert types.resolve("limshop.models.Order.Line") is line
    assert "limit_imports" in refused("limshop.Order")
    assert "limit_imports" not in refused("limshop.models.Missing")
    public.limit_imports([])
    assert "(nothing)" in refused("limevil.sub.Model.Inner")


def test_a_class_is_named_by_its_module_in_the_error(packages: Path) -> None:
    public.limit_imports(["limshop"])
    assert "its module 'limevil.orders' is in none" in refused("limevil.orders.Order.Line")


def test_what_is_imported_already_counts_as_little_as_what_is_not(packages: Path) -> None:
    importlib.import_module("limevil")
    public.limit_imports(["limshop"])
    assert "limit_imports" in refused("limevil.Model")


def test_modules_that_stand_inside_an_allowed_one_are_no_way_out(packages: Path) -> None:
    (packages / "limshop/leak.py").write_text("import limevil\nimport limshop.models as inner\n")
    assert types.resolve("limshop.leak.limevil.Model").__name__ == "Model"
    public.limit_imports(["limshop"])
    refused("limshop.leak.limevil.Model")
    assert types.resolve("limshop.leak.inner.Order").__name__ == "Order"


def test_what_the_program_knows_itself_stays_known() -> None:
    class Named(BaseModel):
        TYPE_ID: ClassVar[str] = "imports:named"

    class Registered(BaseModel):
        pass

    class Local(BaseModel):
        pass

    types.register(Registered, type_id="imports:registered", aliases=["away.models.Old"])
    used = create_model("Used")
    names = {types.type_id_of(model): model for model in (Note, Local, used, Box[Note], Box[Decimal])}
    public.limit_imports(["limshop"])
    assert types.resolve("imports:registered") is types.resolve("away.models.Old") is Registered
    assert types.resolve("imports:named") is Named
    assert types.resolve(types.type_id_of(PendingAction)) is PendingAction
    for name, model in names.items():
        assert types.resolve(name) is model


def test_arguments_of_generics_are_held_to_it_too(packages: Path) -> None:
    public.limit_imports([__name__])
    assert types.resolve(f"{__name__}.Box[decimal.Decimal]") is Box[Decimal]
    assert types.resolve("pydantic.root_model.RootModel[list[int]]") is RootModel[list[int]]
    assert "limit_imports" in refused(f"{__name__}.Box[limevil.Model]")
    assert "limit_imports" in refused(f"{__name__}.Box[list[limevil.Model]]")
    assert "limit_imports" in refused(f"limevil.Model[{__name__}.Box]")
    assert "limevil" not in sys.modules


def test_a_class_that_another_process_may_not_import_is_warned_about(packages: Path) -> None:
    model = importlib.import_module("limshop.models").Order
    public.limit_imports([])
    with pytest.warns(ReactifactWarning, match="a module that limit_imports allows, or call register_type"):
        types.warn_process_local(model)


def test_a_reload_is_followed_where_nothing_may_be_imported(packages: Path) -> None:
    module = importlib.import_module("limshop.models")
    name = types.type_id_of(module.Order)
    public.limit_imports([])
    module = importlib.reload(module)
    assert types.resolve(name) is module.Order


def test_another_class_under_an_old_name_is_the_one_that_counts(packages: Path) -> None:
    """What was found once is looked at again: a name may come to stand for another class."""
    module = importlib.import_module("limshopping")
    assert types.resolve("limshopping.Order") is types.resolve("limshopping.Order") is module.Order
    module.Order = module.Order.Line
    assert types.resolve("limshopping.Order").__name__ == "Line"
    del module.Order
    refused("limshopping.Order")


@pytest.mark.parametrize("wrong", ["shop", ["a b"], [""], ["shop."], [".shop"], [3], ["../x"]])
def test_a_list_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"pass a list|not a name of a package"):
        public.limit_imports(wrong)
    assert public.limit_imports(None) is None


# --- nothing but models ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("os.system", "builtins.eval", "builtins.exec", "subprocess.Popen", "pathlib.Path", "sys.exit"),
        *("pydantic.BaseModel", "pydantic.main.BaseModel", "pydantic.RootModel", "support.BaseModel"),
        *("os.environ", "support.Note.__init__", "support.Note.model_validate", "support.Note.__class__"),
        *(f"{__name__}.Box.__mro__", f"{__name__}.T", "reactifact.errors.ReactifactError"),
        *("eval", "__import__('os').system('true')", "os;system", "support .Note", "..support.Note"),
        *("os.system[int]", f"{__name__}.Box[os.environ[int]]", f"{__name__}.Box[os.system]"),
        *(f"{__name__}.Box[builtins.eval]", f"{__name__}.Box[__import__]", f"{__name__}.Box[typing.cast]"),
        *(f"{__name__}.Box[Literal[__import__('os')]]", f"{__name__}.Box[" * 300, "[" * 4000),
        *(f"{__name__}.Box[json.decoder.scanner[int]]", "support.json.JSONDecoder"),
    ],
)
def test_an_id_leads_to_nothing_but_a_model_with_fields(name: str) -> None:
    with pytest.raises(TypeNotFoundError, match="unknown artifact type") as caught:
        types.resolve(name)
    assert isinstance(caught.value, ReactifactError)


class Trap:
    """Its brackets and bars run code."""

    sprung: ClassVar[list[str]] = []

    def __getitem__(self, key: object) -> object:
        self.sprung.append("[]")
        return int

    def __or__(self, other: object) -> object:
        self.sprung.append("|")
        return int


trap = Trap()


@pytest.mark.parametrize("argument", ["trap[int]", "trap | int", "trap"])
def test_only_types_stand_inside_a_generic(argument: str) -> None:
    with pytest.raises(TypeNotFoundError):
        types.resolve(f"{__name__}.Box[{__name__}.{argument}]")
    assert Trap.sprung == []


def test_a_script_that_ends_the_program_on_import_does_not_end_it(packages: Path) -> None:
    assert "sys.exit(3)" in refused("limexit.Model")


def test_a_look_at_what_is_known_imports_nothing(packages: Path) -> None:
    box = f"{__name__}.Box"
    assert types.known_model(f"{box}[limevil.Model]") is None
    assert types.known_model(f"limevil.Model[{box}]") is None
    assert types.known_model("limevil.Model") is None
    assert "limevil" not in sys.modules
    assert types.known_model(f"{box}[support.Note]") is Box[Note]
    assert types.known_model("support.Note") is Note
    assert types.known_model("json.JSONDecoder") is None
    assert json.JSONDecoder is not None


# --- one explicit id, one class ----------------------------------------------------------------------


def test_two_classes_with_one_type_id_are_refused() -> None:
    class First(BaseModel):
        TYPE_ID: ClassVar[str] = "imports:twice"

    class Second(BaseModel):
        TYPE_ID: ClassVar[str] = "imports:twice"

    assert types.type_id_of(First) == "imports:twice"
    with pytest.raises(
        ValueError, match=r"'imports:twice' of .*Second is already used by .*First; .*another"
    ):
        types.type_id_of(Second)
    assert types.resolve("imports:twice") is First
    types.register(Second)  # it takes the place of the other
    assert types.type_id_of(Second) == "imports:twice"
    assert types.resolve("imports:twice") is Second
    with pytest.raises(ValueError, match="already registered"):
        types.type_id_of(First)


def test_two_classes_that_nobody_has_used_yet_are_no_guess() -> None:
    class One(BaseModel):
        TYPE_ID: ClassVar[str] = "imports:unused"

    class Other(BaseModel):
        TYPE_ID: ClassVar[str] = "imports:unused"

    message = refused("imports:unused")
    assert One.__qualname__ in message
    assert Other.__qualname__ in message


def test_a_definition_that_runs_again_is_one_class() -> None:
    def define() -> type[BaseModel]:
        class Again(BaseModel):
            TYPE_ID: ClassVar[str] = "imports:again"

        return Again

    first, second = define(), define()
    assert types.type_id_of(first) == types.type_id_of(second) == "imports:again"
    assert types.resolve("imports:again") is second
