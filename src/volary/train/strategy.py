"""Puts the four axes together: how replicas stay one model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch

from volary.exchange._buckets import Bucket, Buckets, Slot, plan
from volary.exchange._collectives import add_up
from volary.train import votes
from volary.train.votes import Agreed

if TYPE_CHECKING:
    from torch.nn import Parameter

    from volary.exchange._base import Bulletin
    from volary.session.spec import Strategy as Settings
    from volary.train.recorder import Recorder


class Strategy:
    """Lets gradients leave as they become ready, and says at the end of a step what all ranks agree on.

    named: the network's parameters, in its order. private: agreed gradients may be changed in place, by clipping say.
    passes: backward passes a step (gradient accumulation). weight: the factor of this rank's gradients, if its loss is
    not yet its share of the global batch's mean. Making one is a collective call.
    A world of one worker exchanges nothing.
    """

    def __init__(
        self,
        settings: Settings,
        named: Iterable[tuple[str, Parameter]],
        recorder: Recorder,
        bulletin: Bulletin,
        *,
        private: bool,
        passes: int = 1,
        weight: Callable[[], float] = lambda: 1.0,
    ) -> None:
        self._rank, self._world_size, self._recorder = bulletin.rank, bulletin.world_size, recorder
        everyone = list(named)
        trained = [(name, parameter) for name, parameter in everyone if parameter.requires_grad]
        frozen = [(name, parameter) for name, parameter in everyone if not parameter.requires_grad]
        plans = plan(trained, settings.bucket_mb, votes.size(self._world_size)) if self._world_size > 1 else []
        self._exchange = settings.exchange.build(settings.codec, bulletin, [one.shape for one in plans])
        self._consistency = settings.consistency.build(self._exchange)
        self._named_missing: set[str] = set()
        self.buckets = None
        if plans:
            pairs = zip(plans, self._exchange.memory, strict=True)
            self.buckets = Buckets(
                [Bucket(index, one, memory, private) for index, (one, memory) in enumerate(pairs)],
                frozen,
                passes=passes,
                ready=self._consistency.gradient_ready,
                weight=weight,
            )
            if self._rank == 0:
                recorder.note(route=self._exchange.route)

    @property
    def sent_bytes(self) -> int:
        """Bytes that this worker put on the wire since it started."""
        return int(self._exchange.sent_bytes)

    @property
    def received_bytes(self) -> int:
        """Bytes that this worker took off the wire since it started."""
        return int(self._exchange.received_bytes)

    def agree(self, loss: float, *, ending: bool) -> Agreed:
        """Wait until every parameter's gradient is the sum over all ranks. Raises PeerLost.

        loss: this rank's share of the global batch's mean loss. ending: this rank was asked to end after this step.
        """
        buckets = self.buckets
        if buckets is None:
            return votes.read(votes.cast(loss, ending=ending, missing=0, rank=0, world_size=1))
        missing = buckets.close()
        cast = votes.cast(loss, ending=ending, missing=len(missing), rank=self._rank, world_size=self._world_size)
        buckets.extra.copy_(torch.tensor(cast))
        buckets.depart()
        self._recorder.enter("exchange")
        self._consistency.before_update(buckets.all)
        agreed = votes.read(buckets.deliver().tolist())
        if agreed.missing:
            self._settle_missing(missing, buckets)
        buckets.open()
        self._consistency.step()
        return agreed

    def close(self) -> None:
        """Let go of the parameters."""
        if self.buckets is not None:
            self.buckets.remove()

    def _settle_missing(self, missing: list[Slot], buckets: Buckets) -> None:
        """A parameter that no rank used keeps no gradient, as on one device; one that some rank used has a sum.

        A rank that used none at all had no sample in this step: that is no reason for a warning.
        """
        absent = {id(slot) for slot in missing}
        busy = len(missing) < len(buckets.slots)
        used = torch.tensor([id(slot) not in absent for slot in buckets.slots] + [busy], dtype=torch.int32)
        used = used.to(buckets.extra.device)
        add_up(used)
        *uses, ranks = used.tolist()
        for slot, count in zip(buckets.slots, uses, strict=True):
            if not count:
                slot.parameter.grad = None
            if count < ranks and slot.name not in self._named_missing:
                self._named_missing.add(slot.name)
                if self._rank == 0:  # it is the same on all
                    self._recorder.event("warning", text=_missing_text(slot.name, ranks - count, ranks))


def _missing_text(name: str, without: int, ranks: int) -> str:
    if without == ranks:
        return f"{name} had no gradient on any worker; it was not updated"
    return f"{name} had no gradient on {without} of {ranks} workers; it counted as zero there"
