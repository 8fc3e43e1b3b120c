"""Admits workers of machines that see nothing of the run, by an invitation: `volary invite` makes one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from volary.comm.control.errors import BadMessage
from volary.comm.control.service import CLOSE
from volary.driver.servers.joining import JoinService
from volary.run.launch.invitation import MOST_WORKERS, Terms


class InvitedHello(msgspec.Struct, forbid_unknown_fields=True):
    """workers: how many places are asked for. host: where. terms: the invitation's, which the server has had proved."""

    workers: Annotated[int, msgspec.Meta(ge=1, le=MOST_WORKERS)]
    terms: str
    host: str = ""


class InvitationService:
    """The service "invitation" of a run's server (see volary.comm.control.service). It has terms.

    door: gives places. key: the run's, which those get who are let in.
    """

    def __init__(self, door: JoinService, key: bytes) -> None:
        self._door, self._key = door, key
        self._used = Counter[str]()  # workers, by the invitation's number

    def opened(self, peer: int, hello: dict[str, Any], now: float) -> Iterator[tuple[int, Any]]:
        """Answer with ranks and the run's key, or with why nobody is let in. Raises BadMessage."""
        try:
            wish = msgspec.convert(hello, InvitedHello)
        except msgspec.ValidationError as error:
            raise BadMessage(str(error)) from None
        terms = Terms.parse(wish.terms)
        if terms is None:
            raise BadMessage("an invitation without terms")
        if reason := terms.expired or self._is_used(terms, wish.workers):
            yield peer, {"refused": reason}
        else:
            answer = self._door.admitted(wish.workers, wish.host)
            if "ranks" in answer:
                self._used[terms.number] += wish.workers
                answer["key"] = self._key
            yield peer, answer
        yield peer, CLOSE

    def received(self, peer: int, message: Any, now: float) -> Iterator[tuple[int, Any]]:
        """Refuse any message: the hello has said all. Raises BadMessage."""
        raise BadMessage("an invitation takes no messages")

    def closed(self, peer: int, now: float) -> Iterator[tuple[int, Any]]:
        """Places that were given wait for their workers as long as the first ones do."""
        yield from ()

    def tick(self, now: float) -> Iterator[tuple[int, Any]]:
        yield from ()

    def _is_used(self, terms: Terms, workers: int) -> str:
        """A sentence why not so many workers can come by it any more; empty if they can."""
        if (used := self._used[terms.number]) + workers <= terms.workers:
            return ""
        whole = f"{terms.workers} worker{'s' * (terms.workers != 1)}"
        if used:
            return f"the invitation is for {whole}, and was used by {used}; accepted: a new one, by volary invite"
        return f"the invitation is for {whole}; accepted: --workers {terms.workers} or fewer"
