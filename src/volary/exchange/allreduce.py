"""All-reduce: every worker keeps all parameters, and contributions are summed among all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from volary.errors import SettingError
from volary.exchange._peers import peers_needed

if TYPE_CHECKING:
    from volary.codec._base import Codec
    from volary.exchange._base import Bulletin, Exchange, Shape
    from volary.exchange._buckets import Bucket

Route = Literal["auto", "shared", "torch"]
MEETING_TIMEOUT_S = 600.0  # the watch beside the data path finds a lost rank within seconds; this is the last resort


@dataclass(frozen=True, kw_only=True)
class AllReduce:
    """Sums in shared memory where all workers are on one machine, else by `torch.distributed` (gloo, NCCL)."""

    route: Route = "auto"  # shared: through this machine's memory; torch: torch.distributed; auto: shared if it can be

    def __post_init__(self) -> None:
        if self.route not in ("auto", "shared", "torch"):
            raise SettingError(f"route is {self.route!r}; accepted: auto, shared, torch")

    def build(self, codec: Codec, bulletin: Bulletin, shapes: Sequence[Shape]) -> Exchange:
        """The exchange of buckets of `shapes` among the ranks of the default group, which must have been joined.

        A collective call. Raises SettingError if the route is `shared` and cannot be taken.
        """
        reason = "it is the route that was chosen"
        if self.route != "torch" and bulletin.world_size > 1:
            try:
                return _InMemory(bulletin, shapes)
            except OSError as error:
                reason = f"shared memory cannot be used: {error}"
                if self.route == "shared":
                    raise SettingError(f"exchange.route is 'shared', but {reason}; accepted: auto, torch") from None
        return _ByTorch(codec, bulletin.world_size, shapes, f"torch.distributed, since {reason}")


class _InMemory:
    """All at once, when the first bucket is wanted: a meeting costs more than adding a small bucket."""

    def __init__(self, bulletin: Bulletin, shapes: Sequence[Shape]) -> None:
        from volary.exchange._base import Memory
        from volary.exchange._shared import SharedSum, why_not

        if reason := why_not(bulletin, shapes):
            raise OSError(reason)
        self._sum = SharedSum(bulletin, shapes, MEETING_TIMEOUT_S)
        self.memory = [Memory(self._sum.mine(index), board.agreed) for index, board in enumerate(self._sum.boards)]
        self.route = f"shared memory, since all {bulletin.world_size} workers are on this machine"
        self.sent_bytes = self.received_bytes = 0
        self._waiting = 0

    def push(self, bucket: Bucket) -> None:
        self._waiting += 1

    def pull(self, bucket: Bucket) -> None:
        if self._waiting:
            assert self._waiting == len(self.memory), "pulled before all were pushed"
            self._sum.sum_up()
            self._waiting = 0


class _ByTorch:
    """One collective a bucket, under the rest of backward."""

    def __init__(self, codec: Codec, world_size: int, shapes: Sequence[Shape], route: str) -> None:
        import torch

        from volary.exchange._base import Memory

        flat = [torch.zeros(shape.numel, dtype=shape.dtype, device=shape.device) for shape in shapes]
        self.memory = [Memory(one, one) for one in flat]
        self.route = route
        self._codec = codec
        # a ring sends each of its two phases' slices once: Patarasuk & Yuan 2009
        self._share = 2 * (world_size - 1) / world_size
        self.sent_bytes = self.received_bytes = 0
        self._work: dict[int, torch.distributed.Work] = {}

    def push(self, bucket: Bucket) -> None:
        from torch import distributed

        with peers_needed():
            self._work[bucket.index] = distributed.all_reduce(bucket.contribution, async_op=True)
        frame_bytes = self._codec.frame_bytes(bucket.contribution.numel(), bucket.contribution.element_size())
        self.sent_bytes += int(self._share * frame_bytes)
        self.received_bytes += int(self._share * frame_bytes)

    def pull(self, bucket: Bucket) -> None:
        with peers_needed():
            self._work.pop(bucket.index).wait()


EXCHANGE = AllReduce
