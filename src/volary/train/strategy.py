"""Puts the four axes together: how replicas stay one model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from volary.errors import PeerLost
from volary.exchange._buckets import Buckets, Slot
from volary.train import votes
from volary.train.votes import Agreed

if TYPE_CHECKING:
    from torch.nn import Parameter

    from volary.session.spec import Strategy as Settings
    from volary.train.recorder import Recorder


class Strategy:
    """Lets gradients leave as they become ready, and says at the end of a step what all ranks agree on.

    named: trainable parameters in the network's order. passes: backward passes a step (gradient accumulation).
    A world of one worker exchanges nothing.
    """

    def __init__(
        self,
        settings: Settings,
        named: Iterable[tuple[str, Parameter]],
        recorder: Recorder,
        *,
        rank: int,
        world_size: int,
        passes: int = 1,
    ) -> None:
        self._rank, self._world_size, self._recorder = rank, world_size, recorder
        self._exchange = settings.exchange.build(settings.codec, world_size)
        self._consistency = settings.consistency.build(self._exchange)
        self._named_missing: set[str] = set()
        self.buckets = None
        if world_size > 1:
            self.buckets = Buckets(
                named,
                bucket_mb=settings.bucket_mb,
                extra=votes.size(world_size),
                passes=passes,
                ready=self._consistency.gradient_ready,
            )

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
        buckets.extra.copy_(
            votes.cast(loss, ending=ending, missing=len(missing), rank=self._rank, world_size=self._world_size)
        )
        buckets.depart()
        self._recorder.enter("exchange")
        self._consistency.before_update(buckets.all)
        agreed = votes.read(buckets.extra)
        for slot in missing:
            slot.parameter.grad = slot.view
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
        """A parameter that no rank used keeps no gradient, as on one device; one that some rank used has a sum."""
        used = torch.ones(len(buckets.slots), dtype=torch.int32, device=buckets.extra.device)
        absent = {id(slot) for slot in missing}
        for index, slot in enumerate(buckets.slots):
            if id(slot) in absent:
                used[index] = 0
        try:
            torch.distributed.all_reduce(used)
        except RuntimeError as error:
            raise PeerLost(f"the exchange broke: {str(error).splitlines()[0]}") from error
        for slot, uses in zip(buckets.slots, used.tolist(), strict=True):
            if not uses:
                slot.parameter.grad = None
            if uses < self._world_size and slot.name not in self._named_missing:
                self._named_missing.add(slot.name)
                self._recorder.event("warning", text=_missing_text(slot.name, uses, self._world_size))


def _missing_text(name: str, uses: int, world_size: int) -> str:
    return f"{name} had no gradient on {world_size - uses} of {world_size} workers; it counted as zero there"
