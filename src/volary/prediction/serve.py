"""Serves a network's predictions on this machine: a socket, a token, and who may ask."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from volary.page.server.guard import names
from volary.page.server.http_server import HttpServer
from volary.page.server.serve import TOKEN_BYTES
from volary.prediction.app import BearerGuard, PredictionApp
from volary.prediction.start import PredictionSettings, request_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from volary.run.directory import RunDirectory

LOOPBACK = "127.0.0.1"


class PredictionServer:
    """Listens on this machine alone, on `port` (0: any that is free), as soon as it is made. token: who asks brings it.

    Raises VolaryError if it cannot listen there, and BadInput if the network cannot be made.
    """

    def __init__(
        self, directory: RunDirectory, settings: PredictionSettings, port: int, say: Callable[[str], None]
    ) -> None:
        self._pages = PredictionApp(request_of(directory, settings, Path(), say))
        self._http = HttpServer(LOOPBACK, port)
        self.token, self.address = secrets.token_urlsafe(TOKEN_BYTES), self._http.address

    def run(self) -> None:
        """Answer until Ctrl-C, SIGTERM or `leave`."""
        hosts = names(self._http.host, self._http.port)
        self._http.run(BearerGuard(self._pages.app(), self.token, hosts))

    def leave(self) -> None:
        """End `run`; from any other thread."""
        self._http.leave()
