"""Python programs that start in 40 ms: forks of a process that has imported the library already.

`start` gives what `subprocess.Popen` gives of `python ARGUMENT...`: a process with streams, environment,
folder, signals and exit code of its own. Only the imports were made before, once for each test process.
`shell_functions` lets the blocks of a shell script start `python` and `reactifact` in the same way.

Run as a program, this file is the process that forks. What a process imports, and how a real one starts,
is tested with `subprocess`.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, cast

ROOT = Path(__file__).parents[1]
STATUS = struct.Struct("i")
PRELOADED = (
    "reactifact",
    "reactifact.checkpoints",
    "reactifact.cli",
    "reactifact.replay",
    "reactifact.transfer",
    "reactifact._store._backends.sql.postgres",
    "reactifact._store._backends.sql.sqlite",
    "anyio._backends._asyncio",
    "asyncio",
)


# -- the process that forks ----------------------------------------------------------------------


class Asked:
    """A program that was asked for: its arguments, folder and environment, and the streams it is lent."""

    def __init__(self, connection: socket.socket) -> None:
        message, self.streams, _, _ = socket.recv_fds(connection, 1 << 16, 3)
        while not message.endswith(b"\n"):
            message += connection.recv(1 << 16)
        self.arguments, self.folder, self.environment = json.loads(message)

    def become(self) -> None:
        """Run the program in this process, as a new Python would."""
        for number, stream in enumerate(self.streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(self.folder)
        os.environ.clear()
        os.environ.update(self.environment)
        time.tzset()
        unbuffered = bool(self.environment.get("PYTHONUNBUFFERED"))
        cast(TextIOWrapper, sys.stdout).reconfigure(line_buffering=os.isatty(1), write_through=unbuffered)
        arguments = list(self.arguments)
        while arguments[0] == "-W":
            warnings.simplefilter(arguments[1])
            del arguments[:2]
        kind, *rest = arguments
        is_module = kind == "-m"
        first = os.getcwd() if is_module else os.path.dirname(os.path.abspath(kind))
        paths = filter(None, self.environment.get("PYTHONPATH", "").split(os.pathsep))
        sys.path[:0] = [first, *map(os.path.abspath, paths)]
        sys.argv = rest if is_module else arguments
        if is_module:
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(kind, run_name="__main__")


def serve(address: str) -> None:
    """Fork for each that connects, until standard input ends. In a fork, return after its program."""
    for name in PRELOADED:
        importlib.import_module(name)
    del sys.path[0]  # the folder of this file
    gc.freeze()  # a fork copies what its collector visits
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    os.write(1, b"\n")
    while True:
        ready = select.select([listening, 0], [], [], 0.1)[0]
        _reap()
        if 0 in ready:
            while _reap(0):
                pass
            return
        if not ready:
            continue
        connection, _ = listening.accept()
        if os.fork():
            connection.close()
            continue
        listening.close()
        asked = Asked(connection)
        child = os.fork()
        if child == 0:
            connection.close()
            asked.become()
            return
        for stream in (*asked.streams, 0, 1, 2):
            os.close(stream)
        for number in (signal.SIGINT, signal.SIGTERM):  # of a group: the program alone decides
            signal.signal(number, signal.SIG_IGN)
        connection.sendall(STATUS.pack(child))
        _, status = os.waitpid(child, 0)
        connection.sendall(STATUS.pack(os.waitstatus_to_exitcode(status)))
        os._exit(0)


def _reap(options: int = os.WNOHANG) -> bool:
    """Wait for a keeper of a fork that has ended; return whether there was one."""
    try:
        return os.waitpid(-1, options)[0] != 0
    except ChildProcessError:
        return False


# -- those that ask --------------------------------------------------------------------------------


@cache
def address() -> str:
    """Return the address of this test process's own forking process, started when first asked for."""
    folder = tempfile.mkdtemp(prefix="reactifact-forks-")
    os.chmod(folder, 0o755)
    address = f"{folder}/asked"
    process = subprocess.Popen(
        [sys.executable, __file__, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"\n"

    def end() -> None:
        process.communicate()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return address


class Process:
    """A program that runs in a fork; it is used as `subprocess.Popen` is, with texts in its streams."""

    stdin: IO[str]
    stdout: IO[str]
    stderr: IO[str]

    def __init__(self, message: bytes, stdin: int, stdout: int, stderr: int) -> None:
        self.returncode: int | None = None
        theirs = []
        for number, given in enumerate((stdin, stdout, stderr)):
            if given == subprocess.PIPE:
                ends = os.pipe()
                theirs.append(ends[0] if number == 0 else ends[1])
                ours = os.fdopen(ends[1], "w") if number == 0 else os.fdopen(ends[0])
                setattr(self, ("stdin", "stdout", "stderr")[number], ours)
            elif given == subprocess.DEVNULL:
                theirs.append(os.open(os.devnull, os.O_RDWR))
            else:
                theirs.append(os.dup(given))
        self._status = socket.socket(socket.AF_UNIX)
        self._status.connect(address())
        socket.send_fds(self._status, [message[:1000]], theirs)
        self._status.sendall(message[1000:])
        for stream in theirs:
            os.close(stream)
        (self.pid,) = STATUS.unpack(self._status.recv(STATUS.size))

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, at most `timeout` seconds, and return the exit code."""
        if self.returncode is not None:
            return self.returncode
        self._status.settimeout(timeout)
        try:
            code: int = STATUS.unpack(self._status.recv(STATUS.size))[0]
        except (TimeoutError, BlockingIOError):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0) from None
        self._status.close()
        self.returncode = code
        return code

    def poll(self) -> int | None:
        """Return the exit code, `None` while the process runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask the process to end."""
        self.send_signal(signal.SIGTERM)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Close its input, read all that it prints, and wait for its end."""

        def rest(stream: IO[str] | None) -> str:
            if stream is None or stream.closed:
                return ""
            with stream:
                return stream.read()

        if "stdin" in vars(self) and not self.stdin.closed:
            with suppress(BrokenPipeError):
                self.stdin.close()
        with ThreadPoolExecutor(2) as pool:
            out, err = (pool.submit(rest, vars(self).get(name)) for name in ("stdout", "stderr"))
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
            return out.result(), err.result()


def start(
    *arguments: object,
    stdin: int = subprocess.PIPE,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Process:
    """Start `python ARGUMENT...`: options `-W`, then `-m MODULE` or a file, and what it takes."""
    asked = [list(map(str, arguments)), os.path.abspath(cwd or ""), dict(os.environ if env is None else env)]
    return Process(json.dumps(asked).encode() + b"\n", stdin, stdout, stderr)


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, without input."""
    process = start(*arguments, stdin=subprocess.DEVNULL, **options)
    out, err = process.communicate()
    return subprocess.CompletedProcess(list(map(str, arguments)), process.wait(), out, err)


def shell_command() -> str:
    """Return what a shell starts instead of `python`."""
    file = str(Path(__file__).with_name("forked_call.py"))
    return shlex.join([sys.executable, "-I", "-S", file, address(), sys.executable])


def shell_functions() -> str:
    """Return the functions `python` and `reactifact` for a shell."""
    call = shell_command()
    return f'python() {{ {call} "$@"; }}\nreactifact() {{ {call} -m reactifact "$@"; }}\n'


if __name__ == "__main__":
    serve(sys.argv[1])
