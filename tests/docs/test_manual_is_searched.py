"""What people look for is in the manual: every public name, and a page on what they ask for most."""

from __future__ import annotations

import re
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

import pytest
from support import load_script

import reactifact
import reactifact.integrations
from reactifact import recipes

DOCS = Path(__file__).parents[2] / "docs"
GENERATED = {"names.md"}

PAGES = {
    page.relative_to(DOCS).as_posix(): page.read_text(encoding="utf-8") for page in sorted(DOCS.rglob("*.md"))
}
WRITTEN = {name: text for name, text in PAGES.items() if Path(name).name not in GENERATED}

ASKED = (
    "FakeLLM",
    "@tool",
    "structured_llm",
    "JoinConsume",
    "AbsentConsume",
    "effects.ask",
    "resume",
    "ResourceKey",
    "Budget",
    "configure_logging",
    "blueprint",
    "context_to_mermaid",
    "CorrelatedConsume",
    "upsert",
    "astream",
    "retry_action",
    "call.memo",
    "register_type",
    "limit_imports",
    "replay_context",
    "ReplayLLM",
    "build_report",
    "BranchStore",
    "idempotency",
    "compact",
    "session_save_policy",
    "LangGraph",
    "SourceRef",
    "current_request",
)
"""What was searched for and not found once, and what the first pages speak of."""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("manual")


def code_blocks(text: str) -> str:
    return "\n".join(re.findall(r"^```(?:python|sh)[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("word", ASKED)
def test_a_written_page_speaks_of_it(word: str) -> None:
    found = [name for name, text in WRITTEN.items() if re.search(rf"(?<!\w){re.escape(word)}\b", text)]
    assert found, f"no page of the manual speaks of {word}"


@pytest.mark.parametrize("name", recipes.__all__)
def test_every_recipe_is_named_on_the_page_of_recipes(name: str) -> None:
    assert f"`{name}" in PAGES["recipes.md"] or name in code_blocks(PAGES["recipes.md"])


def test_every_public_name_is_listed(script: ModuleType) -> None:
    names = set(reactifact.__all__)
    for module in script.public_modules():
        names |= set(getattr(module, "__all__", ()))
    listed = set(re.findall(r"^\| `(\w+)` \|", PAGES["reference/names.md"], re.MULTILINE))
    errors = set(re.findall(r"`(\w+)`:", PAGES["errors.md"]))
    assert len(names) > 150
    assert names - listed - errors == set()


def test_every_public_module_has_its_docstrings_in_the_reference() -> None:
    pages = "".join(text for name, text in PAGES.items() if name.startswith("reference/"))
    shown = set(re.findall(r"^::: ([\w.]+)$", pages, re.MULTILINE))
    folders = (reactifact, reactifact.integrations)
    modules = {f"{one.__name__}.{found.name}" for one in folders for found in iter_modules(one.__path__)}
    public = {name for name in modules if "._" not in name}
    shared = {"integrations.calls", "integrations.conversation"}  # by two adapters
    other = {"cli", "errors", "integrations", "ui"} | shared  # the first four have pages of their own
    assert public - {f"reactifact.{name}" for name in other} == shown


def test_every_page_is_reached_from_the_navigation() -> None:
    text = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    assert sorted(re.findall(r"[\w/-]+\.md", text)) == sorted(PAGES)


def test_the_pages_are_there_as_markdown_with_a_list_of_them(script: ModuleType, tmp_path: Path) -> None:
    script.write_llms(tmp_path)
    copied = {page.relative_to(tmp_path).as_posix() for page in tmp_path.rglob("*.md")}
    assert copied == PAGES.keys()
    listed = dict(
        re.findall(r"^- \[.+?\]\(([^)]+)\): (.+)$", (tmp_path / "llms.txt").read_text(), re.MULTILINE)
    )
    assert listed.keys() == PAGES.keys()
    assert all(len(line) > 20 for line in listed.values())
