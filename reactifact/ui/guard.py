"""What every request passes before a page is made: the name of the host, who may write, and headers.

A page of another site can send requests here. So a host must be one that this server was started for (else
a name that the other site points at this machine would do), and a write needs two things that no other site
has: the cookie that the address with the token set, and a secret that stands in the form.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")

POLICY = "; ".join(
    (
        "default-src 'none'",
        "style-src 'self'",
        "script-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with none at all a browser hides the origin of our own forms, too
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Wraps an application: refuses requests for other hosts and from other sites, and sets the headers."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.casefold() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"a request of the kind {scope['type']!r}: only HTTP is spoken here")

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._refusal(scope["method"], Headers(scope=scope))
        if refusal is None:
            await self._app(scope, receive, guarded)
        else:
            await refusal(scope, receive, guarded)

    def _refusal(self, method: str, headers: Headers) -> PlainTextResponse | None:
        host = headers.get("host", "")
        if host_name(host) not in self._hosts:
            return PlainTextResponse(
                "This server does not answer to that host name; start it with --allow-host for it.\n", 421
            )
        if method in ("GET", "HEAD"):
            return None
        origin = headers.get("origin")
        is_own = origin is None or origin.partition("://")[2] == host
        if not is_own or headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return PlainTextResponse("Another site sent this request; it is refused.\n", 403)
        return None


def host_name(host: str) -> str:
    """Return the name in a `Host` header, without its port."""
    if host.startswith("["):
        return host.partition("]")[0].casefold() + "]"
    return host.partition(":")[0].casefold()


class Token:
    """The right to write: a token that the server's owner has, a cookie, and the secret of the forms."""

    def __init__(self, token: str | None = None) -> None:
        self.token = token or secrets.token_urlsafe(24)
        self.cookie_name = "reactifact-" + self._made("cookie name")[:12]  # cookies do not tell ports apart
        self.cookie = self._made("cookie")
        self.form_secret = self._made("form")

    def _made(self, what: str) -> str:
        return hmac.new(self.token.encode(), what.encode(), hashlib.sha256).hexdigest()

    def fits(self, token: str) -> bool:
        """Tell whether somebody has the token."""
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode())

    def is_set(self, headers: Headers) -> bool:
        """Tell whether a browser has shown the token before."""
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self.cookie_name)
        except CookieError:
            return False
        return found is not None and hmac.compare_digest(found.value, self.cookie)

    def allows(self, headers: Headers, form_secret: str) -> bool:
        """Tell whether a form may be acted upon."""
        sent = form_secret.encode("utf-8", "replace")
        return self.is_set(headers) and hmac.compare_digest(sent, self.form_secret.encode())
