"""The server: a socket that listens, and uvicorn on it."""

from __future__ import annotations

import socket

import uvicorn
from starlette.types import ASGIApp

from ..errors import ReactifactError


class CannotListen(ReactifactError):
    """The address to listen on is taken, or is not one of this machine."""


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one. Raises `CannotListen`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise CannotListen(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another port with "
            f"--port (0 takes a free one), or another address with --host"
        ) from error


def run(app: ASGIApp, listener: socket.socket) -> None:
    """Serve an application on a socket until the process is told to stop (SIGINT, SIGTERM)."""
    config = uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
    )
    uvicorn.Server(config).run(sockets=[listener])
