"""Access to the page's server: with the token, under a name of the server, and from the page itself."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from hmac import compare_digest
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

READING = ("GET", "HEAD")
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Stands before `app`: everything it lets through has shown the token. hosts: the names that the server goes by.

    The token comes with the link once (`/?token=...`), and from then on in a cookie, which browsers send to this
    server alone and never for another site (SameSite=Strict).
    """

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str], cookie: str) -> None:
        self._app, self._token, self._hosts, self._cookie = app, token.encode(), hosts, cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request: refuse it, or pass it on; either way with the headers that keep browsers strict."""
        if scope["type"] != "http":
            return  # nothing else is served: the server closes what is not answered
        brought = _token_in(scope) if scope["path"] == "/" else None

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                if brought is not None and message["status"] == 200:
                    headers.append(
                        "set-cookie", f"{self._cookie}={brought.decode()}; Path=/; HttpOnly; SameSite=Strict"
                    )
            await send(message)

        refusal = self._refusal(scope["method"], Headers(scope=scope), brought)
        await (refusal or self._app)(scope, receive, with_headers)

    def _refusal(self, method: str, headers: Headers, brought: bytes | None) -> Response | None:
        host = headers.get("host", "")
        if host.lower() not in self._hosts:  # another name that leads here: DNS rebinding
            return _refused(421, "this server does not go by that name; open the link that `volary ui` printed")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") or not self._is_ours(method, headers):
            return _refused(403, "a request of another site")
        known = (
            brought if brought is not None else cookie_parser(headers.get("cookie", "")).get(self._cookie, "").encode()
        )
        if not compare_digest(known, self._token):
            return _refused(401, "the token is missing or wrong: open the link that `volary ui` printed")
        return None

    def _is_ours(self, method: str, headers: Headers) -> bool:
        """Whether the page itself asks, as far as it says. What changes something must say so."""
        origin = headers.get("origin")
        if origin is None:
            return method in READING
        return origin.lower() == f"http://{headers.get('host', '').lower()}"


def names(host: str, port: int) -> frozenset[str]:
    """The names that `Host:` may have at a server that listens on `host`, an address or a name of this machine.

    A server of loopback has its usual names. On all addresses (`0.0.0.0`, `::`) it also has those of this machine: an
    address cannot be rebound, only a name can.
    """
    found = {host, "localhost", "127.0.0.1", "::1"}
    if not is_loopback(host):
        found |= {socket.gethostname(), socket.getfqdn(), *_addresses()}
    ends = (f":{port}", "") if port == 80 else (f":{port}",)  # browsers leave out the port that is usual
    return frozenset(f"{bracketed(name)}{end}".lower() for name in found for end in ends)


def bracketed(host: str) -> str:
    """`host` as it stands in a link."""
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _addresses() -> Iterator[str]:
    import psutil

    for addresses in psutil.net_if_addrs().values():
        for one in addresses:
            if one.family in (socket.AF_INET, socket.AF_INET6):
                yield one.address.partition("%")[0]


def _token_in(scope: Scope) -> bytes | None:
    """The token of the link, if there is one."""
    values = parse_qs(scope["query_string"].decode("latin-1")).get("token")
    return values[0].encode() if values else None


def _refused(status: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status)
