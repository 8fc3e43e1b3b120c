"""Serves the page: a socket, a token, and the link that has both."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from volary.errors import BadInput
from volary.page.overview.folder import Folder
from volary.page.overview.sessions import SessionFiles
from volary.page.server.app import PageApp
from volary.page.server.guard import Guard, is_loopback, names
from volary.page.server.http_server import HttpServer

TOKEN_BYTES = 24
_RELOADED_WITHIN_S = 3.0  # a tab that is gone may come back
_LOOK_S = 0.2


class PageServer:
    """Listens on `host` and `port` (0: any that is free) as soon as it is made; `run` answers until it is told to end.

    data: folders whose data the page may look at, beside the one that it is started in. Raises VolaryError if it
    cannot listen there, and BadInput if there is no such folder.
    """

    def __init__(self, folder: Path, host: str = "127.0.0.1", port: int = 0, data: Sequence[Path] = ()) -> None:
        if not folder.is_dir():
            raise BadInput(f"{folder}: there is no such folder; accepted: a folder of runs, or a run")
        if missing := next((one for one in data if not one.is_dir()), None):
            raise BadInput(f"--data {missing}: there is no such folder; accepted: a folder of data")
        self._http = http = HttpServer(host, port)
        self._token = secrets.token_urlsafe(TOKEN_BYTES)
        sessions = SessionFiles(Path.cwd())
        self._pages = PageApp(Folder(folder), sessions, lambda: http.ending, starts=is_loopback(host), data=data)

    @property
    def link(self) -> str:
        """The link to open: its token lets in whoever has it."""
        return f"{self._http.address}/?token={self._token}"

    def run(self) -> None:
        """Answer until Ctrl-C, SIGTERM or `leave`."""
        http = self._http
        http.run(Guard(self._pages.app(), self._token, names(http.host, http.port), f"volary-{http.port}"))

    def leave(self) -> None:
        """End `run` as soon as no tab looks on, at once if none ever did; from any other thread."""
        alone_s = _RELOADED_WITHIN_S if not self._pages.tabs else 0.0
        while alone_s < _RELOADED_WITHIN_S and not self._http.ending:
            time.sleep(_LOOK_S)
            alone_s = 0.0 if self._pages.tabs else alone_s + _LOOK_S
        self._http.leave()
