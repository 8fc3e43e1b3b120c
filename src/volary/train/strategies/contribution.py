"""A rank's contribution to a step, its gradients and its votes; and what all ranks agreed on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch

from volary.comm.sums.route import BufferShape
from volary.exchange._base import KeeperCallbacks
from volary.exchange.choice.bucketing import plan
from volary.exchange.gradients.buckets import Gradients, frozen_parameters
from volary.exchange.gradients.contributions import (
    Contributions,
    PushedDifferences,
    PushedGradients,
    PushedParameters,
    PushedPulls,
)
from volary.exchange.overlap.comm_thread import Parcel, ParcelTimes
from volary.exchange.overlap.delayed import DelayedKeeper
from volary.naming import is_compiled, named_modules, named_parameters, trained_parameters
from volary.run.database.traffic import totals
from volary.train.agreement import votes
from volary.train.agreement.agreed_plan import compare_plan, describe
from volary.train.agreement.votes import Agreed, Vote
from volary.train.strategies.profile import busy_s

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.comm.groups.group import Bulletin, Group
    from volary.comm.sums.partner_means import Partners
    from volary.comm.sums.route import Memory
    from volary.exchange._base import ReplicatedKeeper
    from volary.exchange.gradients.bucket import Chunk, ParameterSlot
    from volary.exchange.gradients.buckets import Buckets
    from volary.exchange.gradients.plan import BucketPlan
    from volary.exchange.overlap.comm_setup import CommSetup
    from volary.exchange.representations._base import Representation
    from volary.run.database.traffic import Traffic
    from volary.session.spec import Strategy
    from volary.sharding.ranges import Range
    from volary.train.recording.recorder import Recorder
    from volary.train.strategies.step_settings import StepSettings
    from volary.train.strategies.strategy_state import StrategyState


@dataclass(frozen=True)
class StrategySettings:
    """The parts that stay when representations change. private: agreed gradients may be changed in place, by clipping.

    kept_apart: as of `volary.sharding.holdings.Holdings`. at_once: as of
    `volary.partition._base.Part`.
    """

    strategy: Strategy
    module: nn.Module
    recorder: Recorder
    comm_setup: CommSetup
    state: StrategyState
    private: bool
    steps: StepSettings
    kept_apart: Collection[str] = ()
    at_once: str = ""

    def bucket_mb(self, representations: Mapping[str, Representation]) -> float:
        """MiB that travel at once."""
        return self.comm_setup.bucket_mb(self.strategy.bucket_mb, representations)


MOST_NAMES = 8  # that a warning lists

Kind = TypeVar("Kind", bound=Contributions, covariant=True)


class ContributionBuffers(Generic[Kind]):
    """Buckets of what travels of the network's parameters and a box for votes, in the memory of the session's keeper.

    alike: the parameters that all ranks have. representations: of each that does not travel as it is. group: with a
    bulletin of this contribution alone. Making one is a collective call. make: what is pushed, in given memory. over: a
    keeper that the session's is used through. partners: with whom alone it is shared; None: with everybody.
    links_per_s: how much of `Chunk.load` links carry in a second, if that was measured. Raises RanksDiffer if ranks
    plan differently. frees: as of `CommSetup`.
    """

    def __init__(
        self,
        settings: StrategySettings,
        representations: Mapping[str, Representation],
        group: Group,
        make: Callable[[Sequence[BucketPlan], Sequence[Memory], Callable[[Chunk], None]], Kind],
        over: Callable[[ReplicatedKeeper], ReplicatedKeeper] | None = None,
        partners: Partners | None = None,
    ) -> None:
        strategy, module = settings.strategy, settings.module
        self.group, self._recorder, self._owned = group, settings.recorder, settings.comm_setup.owned
        everyone = list(named_parameters(module))
        self.alike = [parameter for name, parameter in everyone if name not in settings.kept_apart]
        beside = self._owned is None and partners is None
        bucket_mb = settings.bucket_mb(representations)
        plans = plan(list(trained_parameters(module).items()), bucket_mb, representations, beside=beside)
        self._described = describe(plans, bucket_mb)
        self.frees = settings.comm_setup.frees(representations)
        self.compare(group.bulletin, "plan", range(len(self._described)))
        self._speeds = strategy.balance == "auto"
        box = BufferShape(votes.size(group.size, speeds=self._speeds), torch.float64, torch.device("cpu"))
        left_out = self._warn if settings.steps.on_nonfinite == "skip" else None
        keeper = settings.comm_setup.build(group, plans, box, left_out, partners)
        self.keeper = keeper if over is None else over(keeper)
        settings.state.follow(self.keeper)
        *memory, self._box = self.keeper.memory
        self.pushed = make(plans, memory, lambda chunk: self.keeper.push(chunk.index))
        self.buckets: Buckets = self.pushed.buckets
        self._warned = settings.state.warned
        bytes_per_s, ranks = settings.comm_setup.links.topology.within_bytes_per_s, group.size
        # of all that is sent to one rank after the other, each link carries its share; a chunk's load is of all
        self.links_per_s = bytes_per_s * ranks / (ranks - 1) if bytes_per_s else None
        place = {id(parameter): number for number, (_, parameter) in enumerate(everyone)}
        self.slots = sorted(self.buckets.slots, key=lambda slot: place[id(slot.parameter)])  # as forward uses them
        self._shared = [slot for slot in self.buckets.slots if slot.chunks[0].bucket.representation.travels]
        self._seen = deque[tuple[ParcelTimes, int]](maxlen=2 * len(self.buckets.chunks))
        parts = named_modules(module)
        self._compiled = any(map(is_compiled, module.modules()))
        self._scripted = [name or "the network" for name, part in parts if isinstance(part, torch.jit.ScriptModule)]

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        return self.keeper.traffic

    @property
    def why_at_once(self) -> str:
        """Empty where chunks can be applied as they arrive, else why not."""
        if not self.keeper.overlaps:
            return "all gradients are summed in one operation"
        if self._scripted:
            return f"{self._scripted[0]} is TorchScript, which reads its parameters where nobody can wait for them"
        if self.keeper.gathered is not None and self._compiled:
            return "compiled code reads parameters of all layers, which partition.level=3 frees layer by layer"
        odd = [slot.name for slot in self.buckets.slots if slot.parameter.stride() != slot.view.stride()]
        return f"{odd[0]} does not lie densely in memory" if odd else ""

    @property
    def owners(self) -> int:
        """How many workers, the first ones, update together all values, each some; 0: each worker updates all."""
        return 0 if self._owned is None else self._owned.ranks

    def kept(self, chunk: Chunk) -> Iterator[tuple[ParameterSlot, Range, Tensor]]:
        """Yield what this worker updates of a chunk: slot, part, and where the part's agreed gradient is, (size,)."""
        for slot, part, gradient in zip(chunk.slots, chunk.parts, chunk.gradients, strict=True):
            for own in [part] if self._owned is None else self._owned.holdings.kept(part):
                yield slot, own, gradient[own.start - part.start : own.end - part.start]

    def compare(self, bulletin: Bulletin, topic: str, order: Sequence[int]) -> None:
        """Raise RanksDiffer unless all ranks would send the same in this order. A collective call."""
        compare_plan(bulletin, topic, self._described, order)

    def start(self, travelled: Callable[[Chunk, ParcelTimes], None], **more: Any) -> None:
        """Start the keeper; more: see `volary.exchange._base.KeeperCallbacks`."""
        chunks = self.buckets.chunks
        votes_parcel = Parcel(len(self.keeper.memory) - 1, 0, self._box.contribution.numel())

        def seen(chunk: Chunk, how: ParcelTimes) -> None:
            self._seen.append((how, totals(self.keeper.traffic)[0]))
            travelled(chunk, how)

        self.keeper.start(KeeperCallbacks(chunks=chunks, slots=self.slots, votes=votes_parcel, travelled=seen, **more))

    def sent_bytes_per_s(self) -> float | None:
        """Bytes that this rank sent per second in which anything was on the wire, in about the last two steps."""
        seen = list(self._seen)
        if len(seen) < 2 or seen[0][1] == seen[-1][1]:
            return None
        return (seen[-1][1] - seen[0][1]) / max(1e-9, busy_s(how for how, _ in seen[1:]))

    def vote(self, vote: Vote) -> None:
        """Send this rank's vote to all others."""
        cast = votes.cast(vote, self.group.rank, self.group.size, speeds=self._speeds)
        self._box.contribution.copy_(torch.tensor(cast, dtype=torch.float64))
        self.keeper.vote()

    def read(self) -> Agreed:
        """Read the votes, once they are here."""
        return votes.read(self._box.agreed.tolist(), self.group.size)

    def record(self, update: str) -> None:
        """Record how contributions travel, and when parameters are updated."""
        if self.group.leads:
            route = self.keeper.route
            self._recorder.note(route=route, update=update)
            self._recorder.event("exchange", route=route, update=update)

    def _warn(self, text: str) -> None:
        self._recorder.event("warning", text=text)

    def let_go(self) -> None:
        """End what runs beside, and let go of the network."""
        self.keeper.close()
        self.pushed.close()

    def name_missing(self, busy: int) -> None:
        """Say once of parameters that some rank with samples had no gradient for them; rank 0 says it for all.

        They counted as zero there; those that no rank used were not updated, as on one device.
        """
        missing = [slot for slot in self._shared if slot.users < busy and slot.name not in self._warned]
        self._warned |= {slot.name for slot in missing}
        if self.group.leads:
            for users in sorted({slot.users for slot in missing}):
                names = [slot.name for slot in missing if slot.users == users]
                self._recorder.event("warning", text=missing_text(names, _where(busy - users, busy)))


def gradients(
    settings: StrategySettings, representations: Mapping[str, Representation], group: Group
) -> ContributionBuffers[PushedGradients]:
    """Gradients, which leave as backward makes them; for the rest see `ContributionBuffers`. A collective call."""
    weight = settings.steps.weight

    def made(plans: Sequence[BucketPlan], memory: Sequence[Memory], ready: Callable[[Chunk], None]) -> PushedGradients:
        buckets = Gradients(
            plans,
            memory,
            frozen_parameters(settings.module),
            chunk_mb=settings.bucket_mb(representations),
            private=settings.private,
            passes=settings.steps.passes,
            ready=ready,
            weight=weight or _whole,
        )
        return PushedGradients(settings.module, buckets, in_place=weight is None and not settings.at_once)

    return ContributionBuffers(
        settings, representations, group, made, DelayedKeeper if settings.comm_setup.behind else None
    )


def differences(
    settings: StrategySettings, representations: Mapping[str, Representation], group: Group
) -> ContributionBuffers[PushedDifferences]:
    """Make buffers of how this worker changes each parameter; see `ContributionBuffers`. A collective call."""
    return ContributionBuffers(
        settings,
        representations,
        group,
        partial(PushedDifferences, chunk_mb=settings.bucket_mb(representations)),
    )


def pulls(
    settings: StrategySettings,
    representations: Mapping[str, Representation],
    group: Group,
    own: Mapping[str, nn.Parameter],
    part: float,
) -> ContributionBuffers[PushedPulls]:
    """A part of the distance of this worker's `own` parameters to those of the module; see `ContributionBuffers`.

    A collective call.
    """
    make = partial(PushedPulls, chunk_mb=settings.bucket_mb(representations), own=own, part=part)
    return ContributionBuffers(settings, representations, group, make)


def parameters(settings: StrategySettings, group: Group, partners: Partners) -> ContributionBuffers[PushedParameters]:
    """This worker's parameters, for its `partners`; for the rest see `ContributionBuffers`. A collective call."""
    make = partial(PushedParameters, chunk_mb=settings.bucket_mb({}))
    return ContributionBuffers(settings, {}, group, make, partners=partners)


def _whole() -> float:
    return 1.0


def missing_text(names: Sequence[str], where: str) -> str:
    """The words about parameters that had no gradient `where`."""
    some = ", ".join(names[:MOST_NAMES])
    more = f" and {len(names) - MOST_NAMES} more parameters" if len(names) > MOST_NAMES else ""
    return f"{some}{more} had no gradient {where}"


def _where(without: int, ranks: int) -> str:
    if without == ranks:
        return "on any worker; not updated"
    return f"on {without} of {ranks} workers; counted as zero there"
