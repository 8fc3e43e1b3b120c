"""Leaves a worker of a user's own loop with its part of a model, if workers are to hold parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from volary.errors import BadInput
from volary.naming import is_compiled
from volary.session.fitting.needs import PARTITION
from volary.session.fitting.own_loop import fit_early
from volary.train.agreement.first_state import DeferredTensors, agree_on_network, share_now
from volary.train.own.parts.cut_model import CutModel
from volary.train.own.parts.whole_tensors import WholeParameters
from volary.train.state.seeds import kept_generators
from volary.train.worker.rank_part import RankPart

if TYPE_CHECKING:
    from torch import nn

    from volary.comm.groups.group import Group
    from volary.train.own.model.loop_run import LoopRun


def joined(
    model: nn.Module, run: LoopRun, group: Group, weight: Callable[[], float], *, early: bool
) -> tuple[RankPart, CutModel | None]:
    """This rank's part of the model, as it is on the first, and what is to be done because it is one.

    weight: the factor of this worker's gradients. early: updates may come after their step. A collective call. Raises
    RanksDiffer unless all ranks have a network of these shapes, BadInput and SettingError for one that cannot be cut.
    """
    settings = run.settings
    if early:
        fit_early(settings)
    part = settings.partition.part(model, group.rank, group.size)
    with kept_generators():
        agree_on_network(model, group)
        if part.join is None:
            return RankPart.of(part, group), None
        _refuse_compiled(model, PARTITION.name_of(type(settings.partition)))
        share_now(list(model.parameters()), DeferredTensors(), group)  # before they are cut
        network = WholeParameters.of(model)
        rank = RankPart.of(part, group)
    if rank.layers is None:
        return rank, None
    cut = CutModel(settings.partition, rank, network, run.share, weight, run.together)
    cut.draw_alike()
    return rank, cut


def _refuse_compiled(model: nn.Module, partition: str) -> None:
    """Raise BadInput for a model of which no layer can become a part."""
    if any(is_compiled(one) or isinstance(one, torch.jit.ScriptModule) for one in model.modules()):
        raise BadInput(
            f"worker.distribute was given a model that is compiled, and with partition={partition} workers hold parts "
            "of its layers; accepted: the model as it is written"
        )
