"""An HTTP server on a socket of its own: requests in time, an end in time, and nothing but HTTP."""

from __future__ import annotations

import asyncio
import logging
import socket

import uvicorn
from starlette.types import ASGIApp

from volary.errors import BadInput, VolaryError
from volary.page.server.guard import bracketed
from volary.page.server.requests import BoundedRequests

_LEAVE_S = 1  # how long streams may take to end


class HttpServer:
    """Listens on `host` and `port` (0: any that is free) as soon as it is made; `run` answers until it is told to end.

    ending: whether it has been told to end, or what tells it. Raises VolaryError if it cannot listen there, and
    BadInput for no address of this machine.
    """

    def __init__(self, host: str, port: int) -> None:
        self._socket = _listening(host, port)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self._server: uvicorn.Server | None = None

    @property
    def address(self) -> str:
        """The address as a link begins with it; of a server on all addresses it has this machine's name."""
        host = socket.gethostname() if self.host in ("0.0.0.0", "::") else self.host
        return f"http://{bracketed(host)}:{self.port}"

    @property
    def ending(self) -> bool:
        return self._server is not None and self._server.should_exit

    def leave(self) -> None:
        """End `run`; from any other thread."""
        if self._server is not None:
            self._server.should_exit = True

    def run(self, app: ASGIApp) -> None:
        """Answer by `app` until Ctrl-C, SIGTERM or `leave`."""
        config = uvicorn.Config(
            app,
            http=BoundedRequests,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_LEAVE_S,
        )
        self._server = uvicorn.Server(config)
        complaints = logging.getLogger("uvicorn.error")
        complaints.addFilter(self._answers)
        try:
            asyncio.run(self._serve(self._server))
        finally:
            complaints.removeFilter(self._answers)
            self._socket.close()

    def _answers(self, _: logging.LogRecord) -> bool:
        """Whether it has not been told to end: then answers that nobody takes are broken off, which is no error."""
        return not self.ending

    async def _serve(self, server: uvicorn.Server) -> None:
        try:
            await server.serve(sockets=[self._socket])
        finally:
            # answers that nobody takes would be waited for without end
            for connection in list(server.server_state.connections):
                connection.transport.abort()


def _listening(host: str, port: int) -> socket.socket:
    try:
        ((family, kind, _, _, address), *_) = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        found = socket.socket(family, kind)
    except OSError as error:
        raise BadInput(f"--host {host}: {error.strerror}; accepted: an address of this machine") from None
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(128)
    except OSError as error:
        found.close()
        raise VolaryError(f"cannot listen on {host} port {port}: {error.strerror}") from None
    return found
