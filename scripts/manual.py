"""Write the parts of the manual that are taken from the code: `scripts/manual.py [--check | --llms DIR]`.

They stand in the pages between `<!-- from the code: NAME -->` and `<!-- end -->`. With `--check` nothing is
written, and the exit code is 1 where a page says something else than the code. With `--llms` the pages are
copied as Markdown into a folder, with an `llms.txt` that lists them.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import click

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import reactifact  # noqa: E402
from reactifact import errors  # noqa: E402
from reactifact.cli import cli  # noqa: E402

PART = re.compile(r"(<!-- from the code: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def verbs() -> Iterator[tuple[str, click.Command]]:
    """Yield each verb, those of a group by both names."""
    for name, verb in sorted(cli.commands.items()):
        if isinstance(verb, click.Group):
            yield from ((f"{name} {inner}", found) for inner, found in sorted(verb.commands.items()))
        else:
            yield name, verb


def verbs_table() -> str:
    """Return the table of the verbs: arguments, options, and what they do."""
    rows = ["| verb | arguments | options | what it does |", "| --- | --- | --- | --- |"]
    for name, verb in verbs():
        arguments = [found for found in verb.params if isinstance(found, click.Argument)]
        options = [
            found for found in verb.params if isinstance(found, click.Option) and "-C" not in found.opts
        ]
        taken = " ".join(found.make_metavar(click.Context(verb)) for found in arguments)
        named = " ".join(f"`{max(found.opts, key=len)}`" for found in options)
        said = verb.get_short_help_str(limit=200)
        cells = (f"`{name}`", f"`{_escaped(taken)}`" if taken else "", named, said)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def public_errors() -> set[type]:
    """Return the exceptions of reactifact that stand in a public module."""
    public = [one.name for one in pkgutil.iter_modules(reactifact.__path__) if one.name[0] != "_"]
    left_out = {"cli", "testing", "integrations"}
    modules = [importlib.import_module(f"reactifact.{name}") for name in public if name not in left_out]
    values = [value for module in modules for value in vars(module).values()]
    return {one for one in values if isinstance(one, type) and issubclass(one, errors.ReactifactError)}


def errors_tree() -> str:
    """Return the tree of the exceptions, each with what it means."""
    found = public_errors()
    lines: list[str] = []

    def add(kind: type, depth: int) -> None:
        meaning = (kind.__doc__ or "").strip().split("\n\n")[0].replace("\n    ", " ")
        lines.append(f"{'    ' * depth}- `{kind.__name__}`: {meaning}")
        subclasses: list[type] = kind.__subclasses__()
        for below in sorted(subclasses, key=lambda one: one.__name__):
            if below in found:
                add(below, depth + 1)

    add(errors.ReactifactError, 0)
    return "\n".join(lines) + "\n"


_LEFT_OUT = ("cli", "integrations", "ui", "otel", "errors", "threads")


def public_modules() -> Iterator[ModuleType]:
    """Yield `reactifact` and the modules below it that people import from, without those of extras."""
    yield reactifact
    for found in pkgutil.iter_modules(reactifact.__path__):
        if found.name[0] != "_" and found.name not in _LEFT_OUT:
            yield importlib.import_module(f"reactifact.{found.name}")


def public_names() -> dict[str, tuple[str, object]]:
    """Return each public name with its module, and what it is; the page of errors has those of its tree."""
    errors_listed = public_errors()
    found: dict[str, tuple[str, object]] = {}
    for module in public_modules():
        values = vars(module)
        own = [
            name
            for name, value in values.items()
            if name[0] != "_" and getattr(value, "__module__", "") == module.__name__
        ]
        for name in getattr(module, "__all__", own):
            value = getattr(module, name)
            is_listed = isinstance(value, type) and value in errors_listed
            if not isinstance(value, ModuleType | TypeVar) and not is_listed:
                found.setdefault(name, (module.__name__, value))
    return found


def names_table() -> str:
    """Return the table of all public names: where they are imported from, and what they are."""
    rows = ["| name | import from | what it is |", "| --- | --- | --- |"]
    for name, (module, value) in sorted(public_names().items(), key=lambda item: item[0].lower()):
        rows.append(f"| `{name}` | `{module}` | {_escaped(_meaning(value))} |")
    return "\n".join(rows) + "\n"


def _meaning(value: object) -> str:
    """Return the first sentence of what a class or a function says of itself."""
    if not isinstance(value, type) and not inspect.isroutine(value):
        return "a constant, or a name for a type"
    text = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    assert text, f"{value} says nothing of itself"
    return re.split(r"(?<=\.) ", text)[0]


PARTS: dict[str, Callable[[], str]] = {
    "verbs": verbs_table,
    "errors": errors_tree,
    "names": names_table,
}


def brought_up_to_date(text: str) -> str:
    """Return a page with its parts taken from the code anew."""
    return PART.sub(lambda part: f"{part[1]}{PARTS[part[2]]()}{part[4]}", text)


def write_llms(folder: Path) -> None:
    """Copy every page as Markdown, and list them with their first sentence in `llms.txt`."""
    lines = ["# reactifact", "", "> Agents whose state is a git repository, with an outbox for effects.", ""]
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        name = page.relative_to(ROOT / "docs")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        title = text.partition("\n")[0].removeprefix("# ")
        prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        first = next((part for part in prose.split("\n\n")[1:] if part[:1] not in "#|<-"), "")
        lines.append(f"- [{title}]({name.as_posix()}): {' '.join(first.split())[:200]}")
    (folder / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """Write the pages, or compare them; return the exit code."""
    if "--llms" in sys.argv:
        write_llms(Path(sys.argv[sys.argv.index("--llms") + 1]))
        return 0
    behind = []
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        new = brought_up_to_date(text)
        if new != text:
            behind.append(page)
            if "--check" not in sys.argv:
                page.write_text(new, encoding="utf-8")
    for page in behind:
        print(f"{page.relative_to(ROOT)} {'differs from the code' if '--check' in sys.argv else 'written'}")
    return 1 if behind and "--check" in sys.argv else 0


if __name__ == "__main__":
    raise SystemExit(main())
