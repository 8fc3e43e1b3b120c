"""All-reduce: every worker keeps all parameters, and contributions are summed among all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.exchange._peers import peers_needed

if TYPE_CHECKING:
    from volary.codec._base import Codec
    from volary.exchange._base import Exchange
    from volary.exchange._buckets import Bucket


@dataclass(frozen=True, kw_only=True)
class AllReduce:
    """`torch.distributed`'s all-reduce (gloo on CPU, NCCL on GPU), one collective per bucket."""

    def build(self, codec: Codec, world_size: int) -> Exchange:
        """The exchange among the default group's ranks, which must have been joined."""
        return _Flat(codec, world_size)


class _Flat:
    def __init__(self, codec: Codec, world_size: int) -> None:
        self._codec = codec
        # a ring sends each of its two phases' slices once: Patarasuk & Yuan 2009
        self._share = 2 * (world_size - 1) / world_size
        self.sent_bytes = 0
        self.received_bytes = 0

    def push(self, bucket: Bucket) -> None:
        from torch import distributed

        with peers_needed():
            bucket.work = distributed.all_reduce(bucket.flat, async_op=True)
        frame_bytes = self._codec.frame_bytes(bucket.flat.numel(), bucket.flat.element_size())
        self.sent_bytes += int(self._share * frame_bytes)
        self.received_bytes += int(self._share * frame_bytes)

    def pull(self, bucket: Bucket) -> None:
        assert bucket.work is not None, "pulled before it was pushed"
        with peers_needed():
            bucket.work.wait()
        bucket.work = None


EXCHANGE = AllReduce
