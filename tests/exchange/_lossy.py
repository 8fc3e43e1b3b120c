"""Lossy sums of a few parameters' made-up gradients, over the group that a test's workers have joined."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from _workers import joined
from volary.codec import ROOM
from volary.codec._base import FrameCodec
from volary.comm.groups.blocking import add_up
from volary.comm.sums.route import Arrival
from volary.comm.topology.topology import Topology
from volary.exchange.choice.bucketing import plan
from volary.exchange.compression.encoded_sums import EncodedSums
from volary.exchange.compression.error_feedback import ErrorFeedback
from volary.exchange.compression.residual import ResidualState
from volary.exchange.gradients.plan import BucketPlan
from volary.exchange.representations.frames import Frames

SHAPES = {"narrow": (700, 3), "kernel": (40, 30, 3, 3), "square": (130, 130), "wide": (300, 1200)}


def codec(name: str) -> FrameCodec:
    """Past every warm-up, with a residual that loses nothing."""
    found: FrameCodec = ROOM.load(name)()
    return (replace(found, decay=1.0) if found.decay < 1 else found).at(10**9)


def plans_of(codec: FrameCodec, bucket_mb: float) -> list[BucketPlan]:
    named = [(name, nn.Parameter(torch.empty(shape))) for name, shape in SHAPES.items()]
    return plan(named, bucket_mb, {name: Frames(codec) for name in SHAPES})


def gradient(rank: int, step: int, name: str) -> Tensor:
    """Flat."""
    seed = 1000 * step + 10 * rank + list(SHAPES).index(name)
    return torch.randn(SHAPES[name], generator=torch.Generator().manual_seed(seed)).view(-1)


def contributed(ranks: Sequence[int], steps: Sequence[int]) -> dict[str, Tensor]:
    """By all of them in all steps."""
    return {
        name: torch.stack([gradient(rank, step, name).double() for rank in ranks for step in steps]).sum(0)
        for name in SHAPES
    }


class Lossy:
    """One rank's side. agreed: by parameter, the sum of what was agreed in all steps so far."""

    def __init__(
        self,
        rank: int,
        world_size: int,
        codec: FrameCodec,
        attempt_id: int,
        *,
        bucket_mb: float = 0.7,
        topology: Topology | None = None,
        states: Sequence[ResidualState] = (),
        left_out: Callable[[str], None] | None = None,
    ) -> None:
        self.rank, self.plans, self._bucket_mb = rank, plans_of(codec, bucket_mb), bucket_mb
        self.errors = ErrorFeedback(self.plans)
        self.errors.restore(states)
        self.sums = EncodedSums(joined(attempt_id), self.plans, topology, self.errors, left_out)
        self.agreed = {name: torch.zeros(gradient(0, 0, name).numel(), dtype=torch.float64) for name in SHAPES}
        self._digest = hashlib.sha256()

    def step(self, number: int, spoilt: str = "") -> None:
        """Sum all buckets, as many at once as may be. spoilt: the parameter whose gradient is not finite."""
        under_way: deque[Arrival] = deque()
        for buffer, one in enumerate(self.plans):
            head, own = one.pieces(self.sums.memory[buffer].contribution)
            head.fill_(1)
            for (name, _), piece in zip(one.parameters, own, strict=True):
                piece.copy_(gradient(self.rank, number, name))
                if name == spoilt:
                    piece.fill_(torch.inf)
        for buffer, one in enumerate(self.plans):
            for cut in one.cuts(self._bucket_mb):
                if len(under_way) == self.sums.in_flight:
                    under_way.popleft().wait()
                under_way.append(self.sums.sum_up(buffer, cut.start, cut.end))
        while under_way:
            under_way.popleft().wait()
        for buffer, one in enumerate(self.plans):
            head, own = one.pieces(self.sums.memory[buffer].agreed)
            assert head.tolist() == [joined().size] * len(one.parameters), "who used what travels exactly"
            self._digest.update(self.sums.memory[buffer].agreed.numpy().tobytes())
            for (name, _), piece in zip(one.parameters, own, strict=True):
                self.agreed[name] += piece

    def follow(self, other: Lossy) -> None:
        """Go on from what the other has seen."""
        self.agreed = {name: values.clone() for name, values in other.agreed.items()}
        self._digest = other._digest.copy()

    @property
    def digest(self) -> str:
        """A digest of all that was agreed, bit for bit."""
        return self._digest.hexdigest()

    def accounted(self) -> dict[str, Tensor]:
        """The agreed values, and the residuals of all ranks. A collective call."""
        residuals = self.errors.state()
        found = {}
        for name, agreed in self.agreed.items():
            residual = residuals.get(name, {}).get("residual", torch.zeros(agreed.numel())).double()
            add_up(residual, joined())
            found[name] = agreed + residual
        return found


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor], atol: float = 2e-4) -> None:
    wrong = {name: float((found[name] - expected[name]).abs().max()) for name in SHAPES}
    assert all(off <= atol for off in wrong.values()), wrong


@dataclass
class Seen:
    """A codec's results on a rank. state: residuals after the last step. counted: bytes sent and received in a step.

    plain_bytes: what the values of that step would have taken, both ways.
    """

    digest: str
    agreed: dict[str, Tensor]
    state: ResidualState
    counted: tuple[int, int]
    plain_bytes: int
