"""Links: they carry tensors between two ranks of a group, and count the bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from torch import distributed

from volary.comm.groups.peers import peers_needed

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import Work

    from volary.comm.groups.group import Group


class Transfer(Protocol):
    """A tensor that is being sent or received."""

    def wait(self) -> None:
        """Return when it has left, or has come. Raises PeerLost if the peer went away."""
        ...


class _TorchTransfer:
    def __init__(self, work: Work) -> None:
        self._work = work

    def wait(self) -> None:
        with peers_needed():
            self._work.wait()


class Links:
    """This rank's links to all others of a group, whose ranks all are. Used from one thread.

    A receive that is posted before its data comes is twice as fast: otherwise each message costs a round trip behind
    what is under way. sent_bytes and received_bytes: payload since the start.
    """

    def __init__(self, group: Group) -> None:
        self.group, self.rank, self.size = group, group.rank, group.size
        self.sent_bytes = self.received_bytes = 0

    def send(self, values: Tensor, to: int, tag: int = 0) -> Transfer:
        """Begin to send contiguous `values`, of any shape, which must not change until it is waited for."""
        self.sent_bytes += values.numel() * values.element_size()
        with peers_needed():
            work = distributed.isend(values, group=self.group.process_group, tag=tag, group_dst=to)
        return _TorchTransfer(_underway(work))

    def receive(self, values: Tensor, source: int, tag: int = 0) -> Transfer:
        """Begin to receive into contiguous `values`, of any shape; of a source and tag in the order of being sent."""
        self.received_bytes += values.numel() * values.element_size()
        with peers_needed():
            work = distributed.irecv(values, group=self.group.process_group, tag=tag, group_src=source)
        return _TorchTransfer(_underway(work))


def _underway(work: Work | None) -> Work:
    assert work is not None, "this rank is not in the group"
    return work
