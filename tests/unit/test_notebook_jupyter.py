"""What a notebook shows, tried in a real Jupyter kernel: cells are executed and their outputs looked at."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

ROOT = Path(__file__).parents[2]

CELLS = (
    """
from typing import ClassVar
from pydantic import BaseModel
from reactifact import PendingAction, ProduceCall, Runtime, SessionStore, step


class Order(BaseModel):
    TYPE_ID: ClassVar[str] = "notebook.Order"
    item: str


@step(consumes=Order, produces=PendingAction)
async def confirm(call: ProduceCall[Order]) -> None:
    call.effects.act("mail", key=f"mail:{call.trigger.id}", payload={"item": call.trigger.data.item})


store = SessionStore("state.git")
session = await store.open("shop")
session.context.create(Order(item="<b>tea</b>"), id="order:1")
await Runtime(session.context, agents=[confirm], session=session, hints=False).arun()
""",
    "session.context",
    'session.context.get("order:1")',
    "session.context.history()[-1]",
    'experiment = session.context.branch(name="experiment")\n'
    'experiment.update("order:1", Order(item="cups"))\n'
    "session.context.merge(experiment, dry_run=True)",
    "store",
    "await store.aclose()",
)


def test_a_notebook_shows_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    cells = [nbformat.v4.new_code_cell(text) for text in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    folder = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3", resources=folder).execute()

    def shown(number: int) -> dict[str, Any]:
        found = [one["data"] for one in notebook.cells[number].outputs if "data" in one]
        assert len(found) == 1, notebook.cells[number].outputs
        return dict(found[0])

    for number, text in ((1, "order:1"), (2, "order:1"), (3, "confirm"), (4, "order:1")):
        html = shown(number)["text/html"]
        assert html.startswith("<table"), html[:80]
        assert text in html
        assert "<script" not in html
        assert "<b>tea" not in html
    assert "&lt;b&gt;tea" in shown(2)["text/html"]
    assert "state.git" in shown(5)["text/plain"]
    assert os.path.isdir(tmp_path / "state.git")
