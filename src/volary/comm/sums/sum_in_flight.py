"""One sum under way: drives the hops of its timetable over this rank's links."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from volary.comm.sums.hops import SEGMENT_BYTES

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.sums.hops import Hop
    from volary.comm.topology.links import Links, Transfer

AHEAD = 8  # receives that are posted before their data comes, and hops that a sum begins with
TAGS = 1024  # sums that tags tell apart: more than are ever under way
FLOWS = 4096  # flows of one sum that tags tell apart


def scratch() -> Tensor:
    """Memory for what one sum has received and not yet added: (AHEAD, SEGMENT_BYTES)."""
    return torch.empty(AHEAD, SEGMENT_BYTES, dtype=torch.uint8)


class SumInFlight:
    """The sum of `values`, (numel,), along `hops`. number: counts the sums, alike on all ranks.

    gather: puts together what this node contributes to the values from start to end, where that is not there yet.

    Receives are posted at once, nothing leaves before `begin`. What is stored may come before the last send of the same
    values was waited for: a sum that comes back contains what this rank has sent, so that has left.
    """

    def __init__(
        self,
        links: Links,
        values: Tensor,
        hops: Sequence[Hop],
        number: int,
        scratch: Tensor,
        gather: Callable[[int, int], None] | None,
    ) -> None:
        self._links, self._values, self._gather, self._hops = links, values, gather, hops
        self._tag = number % TAGS * FLOWS
        self._places = scratch.view(values.dtype)
        self._awaited = enumerate(hop for hop in hops if hop.source is not None)
        self._coming: deque[tuple[Tensor, Transfer]] = deque()
        self._left: list[Transfer] = []
        self._done = 0
        self._sends = sum(hop.to is not None for hop in hops)
        for _ in range(AHEAD):
            self._await_next()

    @property
    def all_left(self) -> bool:
        """Whether nothing more will be sent."""
        return len(self._left) == self._sends

    def begin(self) -> None:
        """Send what needs nobody else's values first; not all where that is much, so that another may go on."""
        while self._done < min(AHEAD, len(self._hops)) and self._hops[self._done].source is None:
            self._do_next()

    def finish(self, between: Callable[[], None]) -> None:
        """Drive it to its end; `between` is called after each hop. Raises PeerLost if a peer went away."""
        while self._done < len(self._hops):
            self._do_next()
            between()
        for transfer in self._left:
            transfer.wait()

    def _do_next(self) -> None:
        hop = self._hops[self._done]
        self._done += 1
        if hop.first and self._gather is not None:
            self._gather(hop.start, hop.end)
        values = self._values[hop.start : hop.end]
        if hop.source is not None:
            received, transfer = self._coming.popleft()
            transfer.wait()
            if hop.add:
                values.add_(received)
            self._await_next()
        if hop.to is not None:
            self._left.append(self._links.send(values, hop.to, self._tag + hop.flow))

    def _await_next(self) -> None:
        """Post the next receive: the place of the one that was just used is free for it."""
        turn, hop = next(self._awaited, (0, None))
        if hop is None:
            return
        assert hop.source is not None
        place, numel = turn % AHEAD, hop.end - hop.start
        into = self._places[place, :numel] if hop.add else self._values[hop.start : hop.end]
        self._coming.append((into, self._links.receive(into, hop.source, self._tag + hop.flow)))
