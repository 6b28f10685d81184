"""What importing the package imports: each name comes with its module, when it is first asked for."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from types import FunctionType

import pytest

import reactifact


def imported_by(code: str) -> set[str]:
    """Return the modules that code imports in a fresh interpreter."""
    script = f"import sys\nbefore = set(sys.modules)\n{code}\nprint(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_package_alone_imports_nothing_of_itself_and_no_other_library() -> None:
    modules = imported_by("import reactifact")
    assert {name for name in modules if name.startswith("reactifact")} == {"reactifact"}
    assert not {name.partition(".")[0] for name in modules} & {"anyio", "blake3", "pydantic", "pygit2"}


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        (
            "from reactifact import Consume, Context, PendingAction, Runtime, SessionStore, produce",
            "pygit2 sqlite3 psycopg click reactifact.tools reactifact.branching reactifact.checkpoints "
            "reactifact.replay reactifact.audit reactifact.viz reactifact._sessions.verbs "
            "reactifact._store._history.log reactifact._store._backends.sql "
            "reactifact._html html reactifact._context.history reactifact._context.view "
            "reactifact._store._history.diff reactifact._store._history.oplog "
            "reactifact._store._history.rebase reactifact._store._history.revset "
            "reactifact.merging reactifact._context.merge reactifact._context.rebase "
            "reactifact._store._history.merge reactifact._store._history.adoption.tree tempfile pkgutil "
            "pydantic.root_model pydantic.type_adapter pydantic.plugin._loader "
            "asyncio ssl reactifact.streaming reactifact.otel reactifact._runtime.stream",
        ),
        (
            "from reactifact import SessionStore; SessionStore('there.db')",
            "pygit2 psycopg reactifact._store._backends.sql.postgres",
        ),
        ("from reactifact import Consume", "reactifact.runtime reactifact.session reactifact._runtime"),
    ],
)
def test_a_name_imports_what_it_needs(code: str, absent: str, tmp_path: object) -> None:
    modules = imported_by(f"import os; os.chdir({str(tmp_path)!r}); {code}")
    assert modules & {"reactifact.consume", "reactifact.session"}, "the code imported nothing to speak of"
    assert not modules & set(absent.split())


def test_the_usual_names_import_no_more_modules_than_they_did() -> None:
    names = ", ".join(name for name in reactifact.__all__ if name not in ("View", "Tool", "tool"))
    modules = imported_by(f"from reactifact import {names}")
    own = {name for name in modules if name.startswith("reactifact")}
    assert len(own) <= 87


def test_what_is_imported_late_is_what_type_checkers_see() -> None:
    tree = ast.parse(inspect.getsource(reactifact))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == reactifact._PLACES
    assert set(reactifact.__all__) <= set(seen)
    assert all(getattr(reactifact, name) is not None for name in seen)
    assert set(seen) <= set(dir(reactifact))


def test_functions_that_share_a_name_with_their_module_stay_functions() -> None:
    code = (
        "import reactifact.produce, reactifact.consume, reactifact\n"
        "from reactifact import produce, consume\n"
        "from reactifact.produce import produce as other\n"
        "assert callable(produce) and callable(consume) and produce is other is reactifact.produce"
    )
    assert "reactifact.produce" in imported_by(code)
    assert isinstance(reactifact.produce, FunctionType)


def test_public_modules_are_there_without_an_import_of_their_own() -> None:
    assert "reactifact.merging" in imported_by("import reactifact; reactifact.merging.as_set")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = reactifact.nothing
    with pytest.raises(ImportError, match="nothing"):
        from reactifact import nothing  # noqa: F401
