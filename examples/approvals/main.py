"""Refunds that a person approves: `python -m examples.approvals.main --store PATH [--port N]`.

Open the page, ask for a refund of more than 20.00, and approve or refuse it. The question waits in the store:
the process may be killed and started again, and `reactifact questions PATH` shows it too.
"""

from __future__ import annotations

from datetime import timedelta

import click
import uvicorn

from reactifact import SessionStore

from .app import make_app


@click.command(help=__doc__)
@click.option(
    "--store", "path", required=True, type=click.Path(), help="A bare repository, made when absent."
)
@click.option(
    "--port", default=8000, show_default=True, help="Where the page is served, on this machine alone."
)
@click.option("--patience", default=3600.0, show_default=True, help="Seconds for which a question is open.")
def main(path: str, port: int, patience: float) -> None:
    """Serve the page."""
    app = make_app(SessionStore(path), timedelta(seconds=patience))
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
