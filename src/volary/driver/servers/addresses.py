"""The addresses of the machines that a run is on: a gate connects to no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from volary.comm.control.errors import BadMessage
from volary.comm.control.service import CLOSE

SERVICE = "addresses"


class AddressService:
    """The service of that name of a run's server (see `volary.comm.control.service`). addresses: gives them."""

    def __init__(self, addresses: Callable[[], set[str]]) -> None:
        self._addresses = addresses

    def opened(self, peer: int, hello: dict[str, Any], now: float) -> Iterator[tuple[int, Any]]:
        """Answer with all of them."""
        yield peer, {"addresses": sorted(self._addresses())}
        yield peer, CLOSE

    def received(self, peer: int, message: Any, now: float) -> Iterator[tuple[int, Any]]:
        """Refuse any message. Raises BadMessage."""
        raise BadMessage("the addresses take no messages")

    def closed(self, peer: int, now: float) -> Iterator[tuple[int, Any]]:
        yield from ()

    def tick(self, now: float) -> Iterator[tuple[int, Any]]:
        yield from ()
