"""Admits workers to a run that is under way: `volary join` asks here for places, then starts the workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import msgspec

from volary.comm.control.errors import BadMessage
from volary.comm.control.service import CLOSE
from volary.driver.watching.failure_detector import FailureDetector

MOST_AT_ONCE = 1024


class JoinRequest(msgspec.Struct, forbid_unknown_fields=True):
    """workers: how many places are asked for. host: where they are asked for."""

    workers: Annotated[int, msgspec.Meta(ge=1, le=MOST_AT_ONCE)]
    host: str = ""


class JoinService:
    """The service "door" of a run's server (see volary.comm.control.service).

    why_closed: a sentence why so many workers cannot join (any more), or an empty one. expect: told the rank of each
    who is let in. spare: these wait until those that train pause.
    """

    def __init__(
        self,
        watch: FailureDetector,
        why_closed: Callable[[int], str],
        expect: Callable[[int], None],
        *,
        spare: bool = False,
    ) -> None:
        self._watch, self._why_closed, self._expect, self._spare = watch, why_closed, expect, spare

    def opened(self, peer: int, hello: dict[str, Any], now: float) -> Iterator[tuple[int, Any]]:
        """Answer a request for places with their ranks, or with why there are none.

        Raises BadMessage if it is no such request.
        """
        try:
            wish = msgspec.convert(hello, JoinRequest)
        except msgspec.ValidationError as error:
            raise BadMessage(str(error)) from None
        yield peer, self.admitted(wish.workers, wish.host)
        yield peer, CLOSE

    def admitted(self, workers: int, host: str) -> dict[str, Any]:
        """Give places to so many workers of a host; their "ranks", or why there are none: "refused"."""
        if reason := self._why_closed(workers) or self._watch.why_out(host):
            return {"refused": reason}
        ranks = [self._watch.expect(spare=self._spare) for _ in range(workers)]
        for rank in ranks:
            self._expect(rank)
        return {"ranks": ranks}

    def received(self, peer: int, message: Any, now: float) -> Iterator[tuple[int, Any]]:
        """Refuse any message: the hello has said all. Raises BadMessage."""
        raise BadMessage("the door takes no messages")

    def closed(self, peer: int, now: float) -> Iterator[tuple[int, Any]]:
        """Places that were given wait for their workers as long as the first ones do."""
        yield from ()

    def tick(self, now: float) -> Iterator[tuple[int, Any]]:
        yield from ()
