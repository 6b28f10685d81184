"""A real browser for tests: Debian's chromium without a window, told what to do over a pair of pipes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE = 120  # seconds


def program() -> str | None:
    """Return the path of a chromium, `None` where none is installed."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


class Page:
    """One page of a browser."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._left = b""
        self._number = 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    _session: str | None = None

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, found
                result: dict[str, Any] = found["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            data = os.read(self._answers, 1 << 16)
            assert data, "the browser has ended"
            self._left += data
        first, _, self._left = self._left.partition(b"\0")
        found: dict[str, Any] = json.loads(first)
        return found

    def go(self, url: str) -> None:
        """Open an address."""
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """Run a script in the page and return its value."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        return found["result"].get("value")

    def wait_for(self, script: str) -> Any:
        """Return the value of a script as soon as there is a true one."""
        deadline = time.monotonic() + PATIENCE
        while not (found := self.run(script)):
            assert time.monotonic() < deadline, f"never true: {script}; {self.run('document.body.innerText')}"
            time.sleep(0.02)
        return found


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """Run a browser with a profile of its own, for as long as the block lasts."""
    found = program()
    assert found is not None
    to_browser, commands = os.pipe()
    answers, from_browser = os.pipe()
    options = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run"
    command = (
        f'exec "$0" {options} --remote-debugging-pipe --user-data-dir="$1" 3<&{to_browser} 4>&{from_browser}'
    )
    with subprocess.Popen(
        ["bash", "-c", command, found, str(folder)],
        pass_fds=(to_browser, from_browser),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        os.close(to_browser)
        os.close(from_browser)
        try:
            yield Page(commands, answers)
        finally:
            os.close(commands)  # it ends with its pipe
            os.close(answers)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
