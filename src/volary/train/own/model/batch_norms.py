"""Batch norms of a model in a user's own loop that go by the samples of all workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from volary.comm.groups.blocking import gather
from volary.consistency._base import Push
from volary.errors import BadInput
from volary.network.operations.sync_norm import NormPeers, synchronise
from volary.session.fitting.abilities import in_parts
from volary.session.fitting.needs import PARTITION

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.comm.groups.group import Group
    from volary.session.spec import Strategy
    from volary.train.own.model.share import Share
    from volary.train.recording.recorder import Recorder


def synchronise_norms(
    model: nn.Module, strategy: Strategy, share: Share, recorder: Recorder, apart: Callable[[], Group]
) -> None:
    """Make the model's batch norms go by the samples of all workers, in place; see `Worker.sync_batch_norm`.

    apart: makes a group of all workers, over connections that nothing else uses. Raises BadInput where models differ.
    """
    if strategy.consistency.pushes is not Push.GRADIENT:
        raise BadInput(
            "worker.sync_batch_norm: with this consistency workers' models differ, so that their batches are not one; "
            "accepted: consistency=bsp, or no such call"
        )
    if in_parts(strategy):
        raise BadInput(
            f"worker.sync_batch_norm: with partition={PARTITION.name_of(type(strategy.partition))} workers hold parts "
            "of one model; accepted: partition=data or sharded, or no such call"
        )
    if strategy.workers == 1:
        return
    group = apart()

    def gathered(values: Tensor) -> Tensor:
        with recorder.waiting():
            return gather(values, group)

    synchronise(model, NormPeers(gathered, lambda: share.rests, lambda: share.weight))
