"""From one rank to another: tensors between two ranks of the default group, counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import distributed

from volary.comm.peers import peers_needed

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import Work


class Transfer:
    """A tensor on its way."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def wait(self) -> None:
        """Return when it has left, or has come. Raises PeerLost if the peer went away."""
        with peers_needed():
            self._work.wait()


class Links:
    """This rank's links to all others. Used from one thread.

    A receive that is posted before its data comes is twice as fast: otherwise each message costs a round trip behind
    what is under way. sent_bytes and received_bytes: payload since the start.
    """

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size
        self.sent_bytes = self.received_bytes = 0

    def send(self, values: Tensor, to: int, tag: int = 0) -> Transfer:
        """Begin to send contiguous `values`, which must not change until it is waited for."""
        self.sent_bytes += values.numel() * values.element_size()
        with peers_needed():
            return Transfer(_underway(distributed.isend(values, to, tag=tag)))

    def receive(self, values: Tensor, source: int, tag: int = 0) -> Transfer:
        """Begin to receive into contiguous `values`; of one source and tag in the order in which they were sent."""
        self.received_bytes += values.numel() * values.element_size()
        with peers_needed():
            return Transfer(_underway(distributed.irecv(values, source, tag=tag)))


def _underway(work: Work | None) -> Work:
    assert work is not None, "this rank is not in the default group"
    return work
