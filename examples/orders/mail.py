"""Mails: a server that accepts each once, and the dispatcher that talks SMTP to a server.

Owns the message an action becomes and its `Message-ID`, which is the action's idempotency key: by it
a server recognises a mail that is sent again. What is to be sent is decided by the agents.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import smtplib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import default as default_policy
from email.utils import format_datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aiosmtpd.smtp import SMTP, Envelope, Session
from anyio import CancelScope, Lock, from_thread, lowlevel, to_thread

from reactifact import Artifact, Context, PendingAction

SENDER = Address("The order desk", "orders", "shop.example")
TIMEOUT = 15.0
"""Seconds to wait for an answer of the SMTP server."""

CLOSING = 421
"""What a server answers that is about to hang up (RFC 5321, 3.8)."""


class DeliveryFailed(Exception):
    """The server was asked and refused one mail; others may go through."""


class ServerUnreachable(Exception):
    """There is no SMTP server to talk to; no other mail has a chance either."""


def compose(action: Artifact[PendingAction]) -> EmailMessage:
    """Return the mail of an action: the same bytes each time it is sent."""
    payload = action.data.payload
    message = EmailMessage()
    message["Message-ID"] = f"<{quote(action.data.idempotency_key, safe='')}@{SENDER.domain}>"
    message["Date"] = format_datetime(action.created_at)
    message["From"] = SENDER
    message["To"] = Address(payload["name"], addr_spec=payload["address"])
    message["Subject"] = payload["subject"]
    message.set_content(payload["text"])
    return message


class Mailer:
    """The dispatcher: sends each action to one SMTP server, over one connection.

    A drain sends for several sessions at once, and an SMTP connection carries one mail at a time: each
    mail waits for its turn. Raises `DeliveryFailed` for a mail that is refused. Once the server cannot
    be reached it raises `ServerUnreachable`, and for what follows at once, so that a batch does not wait
    again and again.
    """

    def __init__(self, host: str, port: int, on_sent: Callable[[], Any] = lambda: None) -> None:
        self.host = host
        self.port = port
        self.on_sent = on_sent
        self.sent = 0
        self.unreachable: ServerUnreachable | None = None
        self._connection: smtplib.SMTP | None = None
        self._turn = Lock()

    async def __call__(self, context: Context, action: Artifact[PendingAction]) -> None:
        """Send one mail."""
        await lowlevel.checkpoint()  # Ctrl-C takes effect here, between two mails ...
        message = compose(action)
        async with self._turn:
            with CancelScope(shield=True):  # ... so that one that was sent is also recorded
                await to_thread.run_sync(self._send, message)
        self.sent += 1
        self.on_sent()

    def close(self) -> None:
        """Say goodbye to the server."""
        if self._connection is None:
            return
        try:
            self._connection.quit()
        except (OSError, smtplib.SMTPException):
            self._connection.close()
        self._connection = None

    def _send(self, message: EmailMessage) -> None:
        if self.unreachable is not None:
            raise ServerUnreachable(str(self.unreachable))
        try:
            self._send_once(message)
        except (smtplib.SMTPServerDisconnected, smtplib.SMTPConnectError, smtplib.SMTPHeloError) as error:
            raise self._lost(error) from error
        except smtplib.SMTPException as error:  # an OSError too, so it comes first
            if CLOSING in _codes(error):
                raise self._lost(error) from error
            raise DeliveryFailed(f"{message['To']}: the server refused the mail: {_cause(error)}") from error
        except OSError as error:
            raise self._lost(error) from error

    def _lost(self, error: Exception) -> ServerUnreachable:
        self.close()
        self.unreachable = ServerUnreachable(
            f"the SMTP server at {self.host}:{self.port} cannot be reached: {_cause(error)}"
        )
        return self.unreachable

    def _send_once(self, message: EmailMessage) -> None:
        if self._connection is not None:
            try:
                self._connection.send_message(message)
                return
            except smtplib.SMTPServerDisconnected:
                self.close()  # a server may hang up on an idle client: call once more
        self._connection = smtplib.SMTP(self.host, self.port, local_hostname="localhost", timeout=TIMEOUT)
        self._connection.send_message(message)


def _cause(error: BaseException) -> str:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return "; ".join(_answer(*answer) for answer in error.recipients.values())
    if isinstance(error, smtplib.SMTPResponseException):
        return _answer(error.smtp_code, error.smtp_error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _codes(error: smtplib.SMTPException) -> list[int]:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return [code for code, _ in error.recipients.values()]
    return [error.smtp_code] if isinstance(error, smtplib.SMTPResponseException) else []


def _answer(code: int, text: bytes | str) -> str:
    return f"{code} {text.decode(errors='replace') if isinstance(text, bytes) else text}"


class Mailbox:
    """A maildir that takes each `Message-ID` once, and has it on disk before it says so.

    Any mail program reads it. A mail is written under `tmp` and linked into `new` under a name made
    from its `Message-ID`: a kill leaves a whole mail or none, and a second one meets the first. What a
    kill leaves under `tmp` is written over when that mail comes again, as it does.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.repeats = 0
        for folder in ("tmp", "new", "cur"):
            (path / folder).mkdir(parents=True, exist_ok=True)
        for folder_path in (path.parent, path):
            _sync_folder(folder_path)

    def __len__(self) -> int:
        return len(os.listdir(self.path / "new"))

    def add(self, message_id: str, content: bytes) -> bool:
        """Store a mail durably; `False`, and counted, when its id is there already."""
        name = f"{hashlib.sha256(message_id.encode()).hexdigest()[:40]}.orders"
        written = self.path / "tmp" / name
        with written.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(written, self.path / "new" / name)
        except FileExistsError:
            self.repeats += 1
            return False
        finally:
            written.unlink()
        _sync_folder(self.path / "new")
        return True


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Handler:
    """What `aiosmtpd` calls for a mail that came in."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.mailbox = mailbox

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        content = envelope.content
        assert isinstance(content, bytes)
        message_id = message_from_bytes(content, policy=default_policy)["Message-ID"]
        if not message_id:
            return "550 a mail without Message-ID is not accepted here"
        is_new = self.mailbox.add(str(message_id).strip(), content)
        return "250 accepted" if is_new else "250 accepted before"


@contextmanager
def mail_server(mailbox: Mailbox) -> Iterator[tuple[str, int]]:
    """Serve SMTP for a mailbox, in a thread of its own, for the length of a `with`.

    Yields host and port: a free port of the loopback interface.
    """
    handler = _Handler(mailbox)

    async def start() -> asyncio.Server:
        new_protocol = partial(SMTP, handler, hostname="localhost", enable_SMTPUTF8=True)
        return await asyncio.get_running_loop().create_server(new_protocol, "127.0.0.1", 0)

    with from_thread.start_blocking_portal("asyncio") as portal:
        server = portal.call(start)
        try:
            host, port = server.sockets[0].getsockname()[:2]
            yield host, port
        finally:
            portal.call(server.close)
