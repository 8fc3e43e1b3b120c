"""Batch norms of a session that go by the samples of all workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from volary.comm.groups.blocking import gather
from volary.data.batching.no_samples import NoSamples
from volary.network.operations.sync_norm import NormPeers, synchronise

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.train.model import Model
    from volary.train.recording.recorder import Recorder


def synchronised_norms(model: Model, group: Group, recorder: Recorder) -> Callable[[], Tensor]:
    """Make the model's batch norms go by the samples of all workers of `group`, the run's.

    A collective call, as they have connections of their own. Returns what a worker without a sample does in a step
    meanwhile; see `volary.network.flow.Flow`.
    """
    own = group.divided([list(range(group.size))])

    def gathered(values: Tensor) -> Tensor:
        with recorder.waiting():
            return gather(values, own)

    synchronise(model.module, NormPeers(gathered))
    inputs = model.some_inputs(parts=model.session.data.batch_size)[:0]

    def absent() -> Tensor:
        """Go through the network without a sample: a scalar 0, whose backward takes part in that of the others."""
        outputs = model.module(inputs.as_subclass(NoSamples))
        parts = [one.sum() for one in tree_leaves(outputs) if isinstance(one, Tensor) and one.requires_grad]
        return torch.stack(parts).sum().as_subclass(Tensor)

    return absent
