"""The protocol of representations: which gradients travel together, how they are summed, what servers get."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from volary.comm.sums.route import BufferSums

if TYPE_CHECKING:
    from torch import Tensor

    from volary.codec._base import FrameCodec, Layer
    from volary.comm.groups.group import Group
    from volary.comm.sums.route import Memory
    from volary.comm.topology.topology import Topology
    from volary.exchange.choice.costs import LinkCosts, WorkTimes
    from volary.exchange.compression.error_feedback import ErrorFeedback
    from volary.exchange.compression.push_encoding import PushEncoding
    from volary.exchange.gradients.owned import OwnedValues
    from volary.exchange.gradients.plan import BucketPlan
    from volary.exchange.servers.pushed_factors import FactorRows
    from volary.run.database.traffic import Traffic
    from volary.server.client.values import PushedValues
    from volary.sharding.ranges import Range

VALUE_BYTES = 4


@dataclass(frozen=True)
class Site:
    """The place where workers sum. group: with a bulletin of one representation's sums alone.

    topology: ranks of its nodes add in shared memory first; None: all send for themselves. errors: the residuals of all
    buckets. left_out: called with a sentence about values that are not finite and cannot be encoded; None: NotFinite is
    raised. owned: who alone gets which sums; None: all get all.
    """

    group: Group
    topology: Topology | None
    errors: ErrorFeedback
    left_out: Callable[[str], None] | None
    owned: OwnedValues | None = None

    def within(self, part: str) -> Site:
        """The same, with a bulletin whose topics are its own."""
        return replace(self, group=self.group.within(part))


@dataclass(frozen=True)
class Piece:
    """One slice of a bucket, as a worker pushes it to servers.

    start: its first value in bucket number `bucket`, which is laid out as `plan`. parts: of its parameters. values:
    (size,) where backward leaves them. users: of each part, 0 where backward did not reach it. rows: the bucket's
    factors, if they travel instead.
    """

    bucket: int
    plan: BucketPlan
    start: int
    parts: Sequence[Range]
    values: Tensor
    users: Tensor
    rows: FactorRows | None


class CodedSums(BufferSums, Protocol):
    """Sums of gradients that do not travel as they are."""

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """Bytes that this process put on and took off the wire since it started, by codec."""
        ...


class Representation:
    """How the gradients of a bucket travel: a frozen dataclass, so that equal ones share buckets. Defaults: unchanged.

    name: short, for tables and checkpoints. by_layer: a layer's parameters have a bucket to themselves, whose gradients
    are formed block by block of what travelled; otherwise values travel chunk by chunk. whole_rows: servers keep whole
    rows of a parameter. frames: the codec whose frames travel, and whose residual is kept; None: nothing is encoded.
    travels: among all workers; else those that keep the same have the sums, or add them up. messages: of a chunk, that
    wait for each other on their way through the workers.
    """

    by_layer: ClassVar[bool] = False
    messages: ClassVar[int] = 2
    travels: ClassVar[bool] = True
    frames: FrameCodec | None = None

    @property
    def name(self) -> str:
        """The representation's name, that of its file."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def whole_rows(self) -> bool:
        """Whether buckets are cut at whole rows of matrices only."""
        return self.by_layer

    @classmethod
    def of(cls, codec: Any) -> Representation:
        """The representation that `codec` names. codec: one of those that do, with its settings."""
        return cls()

    def link_bytes(self, layer: Layer, links: LinkCosts) -> float:
        """Bytes that a node's link has to send in a step, so that all workers have the layer's gradient."""
        return links.summed_bytes(VALUE_BYTES * layer.values)

    def work_s(self, layer: Layer, links: LinkCosts, work: WorkTimes) -> float:
        """Seconds of work in a step, on each worker."""
        return 0.0

    def pushed_bytes(self, layer: Layer, servers: int) -> float:
        """Bytes that a worker sends of the layer in a step, to all of so many servers."""
        return VALUE_BYTES * layer.values

    def at(self, samples: int) -> Representation:
        """The representation once the run has seen so many samples: itself, unless a codec has a warm-up."""
        return self

    def wire_bytes(self, values: int, value_bytes: int) -> int:
        """Bytes that so many values of `value_bytes` each take while they travel; of one by layer the payload knows."""
        return values * value_bytes

    def sums(self, plans: Sequence[BucketPlan], site: Site) -> CodedSums:
        """Return what sums the buckets with these plans, all in representations of this class, over all workers.

        A collective call. Raises SettingError for values that cannot travel so, OSError without shared memory.
        """
        raise AssertionError(f"{self} takes the session's route, together with the votes")

    def memory(self, plan: BucketPlan) -> Memory | None:
        """Memory for a bucket whose slices are pushed to servers; None: any, from where they leave soonest.

        Raises SettingError for values that cannot travel so.
        """
        return None

    def pushed(self, piece: Piece, encoding: PushEncoding) -> PushedValues:
        """The values of a slice that travel to servers. encoding: of all buckets, with their residuals."""
        from volary.exchange.servers.pushed import PlainValues

        return PlainValues(piece.values, piece.users)

    def __str__(self) -> str:
        """Describe it in words, for whoever compares what ranks send."""
        return "as it is"
