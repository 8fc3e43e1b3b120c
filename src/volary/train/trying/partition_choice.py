"""Chooses a partition by what each is predicted to take, and refuses what does not fit into the memory budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from volary.errors import SettingError
from volary.partition.auto import LINK_MBIT
from volary.train.trying import predictions

if TYPE_CHECKING:
    from volary.session.spec import Strategy
    from volary.session.values.size import Size
    from volary.train.model import Model
    from volary.train.trying.predictions import Prediction

WORTH = 1.05  # a simpler partition is taken unless another one is quicker by more than this
EVEN = 0.8  # a cut is even if no worker computes more than 1 / 0.8 of its share
_MIB = 1 << 20


@dataclass(frozen=True)
class Predicted:
    """own: of the partition that the session names, or of the one that is taken for it. legal: the simplest first."""

    own: Prediction
    legal: Sequence[Prediction]
    strategy: Strategy

    @property
    def why(self) -> str:
        """Why that partition is taken, in a sentence."""
        budget = self.strategy.memory
        fitting = _fitting(self.legal, budget)
        into = f" that fit into {budget} a worker, of {len(self.legal)}" if budget is not None else ""
        return (
            f"partition auto takes {self.own.named}: {self.own.step_s:.3g} s a step are predicted, about the least of "
            f"the {len(fitting)} partitions{into}"
        )

    def compared(self) -> Iterator[str]:
        """Yield what a step takes with each partition, and which one is taken, in sentences; none if there is one."""
        if len(self.legal) < 2 or self.strategy.consistency.pushes.value != "gradient":
            return
        yield from map(str, self.legal)
        if self.strategy.partition.chooses:
            yield self.why
        if text := uneven(self.legal):
            yield text


def predicted(model: Model, network: dict[str, Any] | None, activations_bytes: float | None) -> Predicted | None:
    """Predict what a step of the model's session takes; None: not known.

    network: as `layer_graph` has it. activations_bytes: that autograd keeps of a sample; None: not measured. Raises
    SettingError if a partition is to be chosen and cannot be, or if none fits into the budget of a worker.
    """
    strategy, partition = model.session.strategy, model.session.strategy.partition
    if activations_bytes is None or network is None or not network["layers"]:
        refuse_unknown(strategy, "the network's layers cannot be looked at one by one")
        return None
    rate = getattr(partition, "link_mbit", LINK_MBIT) * 1e6 / 8
    legal = list(predictions.legal(model, network, activations_bytes, rate))
    if partition.chooses:
        return Predicted(chosen(legal, strategy.memory), legal, strategy)
    own = predictions.predicted(model, partition, network, activations_bytes, rate)
    if strategy.memory is not None and own.memory.total > strategy.memory.count:
        raise _above(strategy.memory, f"partition={own.named}", [own, *legal])
    return Predicted(own, legal, strategy)


def refuse_unknown(strategy: Strategy, reason: str) -> None:
    """Raise SettingError if a partition is to be chosen, or to fit into a budget, and for that reason cannot be."""
    if strategy.partition.chooses:
        raise SettingError(f"strategy.partition is auto, and {reason}; accepted: a partition by name")
    if strategy.memory is not None:
        raise SettingError(f"strategy.memory is {strategy.memory}, and {reason}; accepted: null")


def chosen(found: Sequence[Prediction], budget: Size | None) -> Prediction:
    """The simplest of those that are about as quick as the quickest which fits.

    found: one at least, the simplest first. Raises SettingError if none fits into the budget of a worker.
    """
    fitting = _fitting(found, budget)
    if not fitting:
        raise _above(budget, "every partition that the network can be cut by", found)
    quickest = min(one.step_s for one in fitting)
    return next(one for one in fitting if one.step_s <= WORTH * quickest)


def uneven(found: Sequence[Prediction]) -> str:
    """Say which layer bounds workers if layers are cut, where no cut is even; empty if one is."""
    cuts = [one for one in found if one.session.strategy.shares < one.session.strategy.workers]
    if not cuts or any(one.even >= EVEN for one in cuts):
        return ""
    best = max(cuts, key=lambda one: one.even)
    layer, share = best.bound_by
    return (
        f"no cut of the layers is even: with the best, {best.named}, a worker computes {1 / best.even:.1f} times "
        f"its share, bound by {layer}, which is {share:.0%} of the network; what helps: fewer workers, a partition in "
        "which each has samples of its own (data, sharded, hybrid), or layers of more equal size"
    )


def _fitting(found: Sequence[Prediction], budget: Size | None) -> list[Prediction]:
    return [one for one in found if budget is None or one.memory.total <= budget.count]


def _above(budget: Size | None, with_what: str, found: Sequence[Prediction]) -> SettingError:
    least = min(found, key=lambda one: one.memory.total)
    needed = -(-least.memory.total // _MIB)
    return SettingError(
        f"strategy.memory is {budget}, and with {with_what} a worker takes more; the least is {needed:,} MiB, with "
        f"partition={least.named}; accepted: memory={needed}MiB or more with that, more workers, or a smaller "
        "data.batch_size"
    )
