"""HTTP whose requests come in time: whoever sends half of one keeps no connection open."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_WITHIN_S = 10.0  # a request's head: at least, and twice that at most


class BoundedRequests(H11Protocol):
    """uvicorn's HTTP/1.1, which waits without end for the rest of a request's head."""

    _looking: asyncio.TimerHandle | None = None
    _answered: Any = object()  # the request that was answered last when it was looked; None: there was none

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._looking is not None:
            self._looking.cancel()

    def _look(self) -> None:
        waits = self.cycle is None or self.cycle.response_complete
        if waits and self._answered is self.cycle:
            self.transport.abort()
            return
        self._answered = self.cycle if waits else object()
        self._looking = self.loop.call_later(REQUEST_WITHIN_S, self._look)
