"""Serves the page: a socket, a token, and the link that has both."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import time
from pathlib import Path

import uvicorn

from volary.errors import BadInput, VolaryError
from volary.page.overview.folder import Folder
from volary.page.overview.sessions import SessionFiles
from volary.page.server.app import PageApp
from volary.page.server.guard import Guard, bracketed, is_loopback, names
from volary.page.server.requests import BoundedRequests

TOKEN_BYTES = 24
_LEAVE_S = 1  # how long streams may take to end
_RELOADED_WITHIN_S = 3.0  # a tab that is gone may come back
_LOOK_S = 0.2


class PageServer:
    """Listens on `host` and `port` (0: any that is free) as soon as it is made; `run` answers until it is told to end.

    Raises VolaryError if it cannot listen there, and BadInput if there is no such folder.
    """

    def __init__(self, folder: Path, host: str = "127.0.0.1", port: int = 0) -> None:
        if not folder.is_dir():
            raise BadInput(f"{folder}: there is no such folder; accepted: a folder of runs, or a run")
        self._socket = _listening(host, port)
        self._port = int(self._socket.getsockname()[1])
        self._host, self._token = host, secrets.token_urlsafe(TOKEN_BYTES)
        self._pages = pages = PageApp(
            Folder(folder),
            SessionFiles(Path.cwd()),
            lambda: self._server.should_exit,
            starts=is_loopback(host),
        )
        guarded = Guard(pages.app(), self._token, names(host, self._port), f"volary-{self._port}")
        config = uvicorn.Config(
            guarded,
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

    @property
    def link(self) -> str:
        """The link to open: its token lets in whoever has it."""
        host = socket.gethostname() if self._host in ("0.0.0.0", "::") else self._host
        return f"http://{bracketed(host)}:{self._port}/?token={self._token}"

    def run(self) -> None:
        """Answer until Ctrl-C, SIGTERM or `leave`."""
        complaints = logging.getLogger("uvicorn.error")
        complaints.addFilter(self._answers)
        try:
            asyncio.run(self._serve())
        finally:
            complaints.removeFilter(self._answers)
            self._socket.close()

    def _answers(self, _: logging.LogRecord) -> bool:
        """Whether it has not been told to end: then answers that nobody takes are broken off, which is no error."""
        return not self._server.should_exit

    async def _serve(self) -> None:
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            # answers that nobody takes would be waited for without end
            for connection in list(self._server.server_state.connections):
                connection.transport.abort()

    def leave(self) -> None:
        """End `run` as soon as no tab looks on, at once if none ever did; from any other thread."""
        alone_s = _RELOADED_WITHIN_S if not self._pages.tabs else 0.0
        while alone_s < _RELOADED_WITHIN_S and not self._server.should_exit:
            time.sleep(_LOOK_S)
            alone_s = 0.0 if self._pages.tabs else alone_s + _LOOK_S
        self._server.should_exit = True


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
