"""Checks requests by their Host header, the token, and a header that cross-site forms cannot send; adds headers to
answers.

An ASGI middleware around the app, so that every request is checked.
"""

import hashlib
import hmac
import ipaddress
import json
import socket
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
ACTING_HEADER = "x-fencepost"
SESSION_PATH = "/api/session"
ANY_ADDRESS = ("", "0.0.0.0", "::")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """The name or address in a Host header, without port and brackets."""
    name = header.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0]


class AllowedHosts:
    """Requests under an attacker's host name that resolves to us must be refused: its scripts could read everything.

    An IP address is its own origin, so a listener on all interfaces accepts any address.
    """

    def __init__(self, listening_host: str, more: Iterable[str] = ()) -> None:
        self._names = {"localhost", listening_host.lower(), *(name.lower() for name in more)}
        self._takes_any_address = listening_host in ANY_ADDRESS
        if self._takes_any_address:
            self._names.add(socket.gethostname().lower())
        self._takes_loopback = self._takes_any_address or is_loopback(listening_host)

    def allows(self, header: str) -> bool:
        host = host_of(header)
        if not host:
            return False
        if host in self._names:
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return self._takes_any_address or (self._takes_loopback and is_loopback(host))


class Token:
    """The token that is required if the page is reachable from other hosts."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        # The browser stores a hash, so that its cookies do not reveal the token.
        self.cookie_value = hmac.new(self._secret, b"fencepost page", hashlib.sha256).hexdigest()

    def matches(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._secret)

    def matches_cookie(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.cookie_value.encode())


def cookie_name(port: int) -> str:
    """All ports of a host share cookies, so pages on one host need different names."""
    return f"fencepost_{port}"


class Guard:
    def __init__(self, app: ASGIApp, hosts: AllowedHosts, token: Token | None, cookie: str) -> None:
        self._app = app
        self._hosts = hosts
        self._token = token
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store" if is_api else "no-cache")
            await send(message)

        path: str = scope["path"]
        is_api = path.startswith("/api/")
        headers = Headers(scope=scope)
        scope["fencepost.is_trusted"] = self._is_trusted(headers)
        refusal = self._refusal(scope["method"], path, headers, scope["fencepost.is_trusted"])
        if refusal is None:
            await self._app(scope, receive, send_guarded)
        else:
            await _answer(send_guarded, *refusal)

    def _refusal(self, method: str, path: str, headers: Headers, is_trusted: bool) -> tuple[int, str, str] | None:
        if not self._hosts.allows(headers.get("host", "")):
            return (
                421,
                f"this page does not accept the host name {headers.get('host', '')!r}",
                "use the address it was started with, or start it with --allow-host NAME",
            )
        if not path.startswith("/api/"):
            return None
        if method not in ("GET", "HEAD") and headers.get(ACTING_HEADER) != "1":
            return 403, "requests that change something need the header X-Fencepost: 1", "add the header"
        if not is_trusted and path != SESSION_PATH:
            return 401, "the token is missing or wrong", "open the URL that was printed when the page was started"
        return None

    def _is_trusted(self, headers: Headers) -> bool:
        if self._token is None:
            return True
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self._token.matches(given.strip()):
            return True
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        return self._cookie in cookies and self._token.matches_cookie(cookies[self._cookie].value)


async def _answer(send: Send, status: int, error: str, advice: str) -> None:
    document: dict[str, Any] = {"error": error, "next": advice}
    body = json.dumps(document).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
