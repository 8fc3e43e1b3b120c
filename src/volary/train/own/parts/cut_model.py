"""A model of a user's own loop of which each worker holds a part: what the loop does with it, and its checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch

from volary.errors import BadInput, SettingError
from volary.naming import named_parameters, unwrapped
from volary.session.fitting.needs import PARTITION
from volary.sharding.ranges import Range
from volary.train.agreement.same_draws import same_draws
from volary.train.own.parts.covered_gradients import CoveredGradients
from volary.train.own.parts.cut_optimizer import CutOptimizer, take_up, whole_state
from volary.train.own.parts.weighed_layers import weigh_errors
from volary.train.own.parts.whole_tensors import WholeTensors, owners_of, part_of, refuse_other_shape
from volary.train.state.optimizer_state import OPTIMIZER, OUTER, OptimizerState, part_files
from volary.train.state.part_state import AVERAGE
from volary.train.state.rank_state import held
from volary.train.update.held_parameters import parameters_of
from volary.train.update.optimizer_rule import state_as
from volary.train.update.part_norm import PartNorm

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer
    from torch.utils.hooks import RemovableHandle

    from volary.comm.groups.group import Group
    from volary.partition._base import Partition
    from volary.train.own.model.model_average import ModelAverage
    from volary.train.own.model.share import Share
    from volary.train.own.parts.whole_tensors import Together, WholeParameters
    from volary.train.state.held import Savable
    from volary.train.worker.rank_part import RankPart


class CutModel:
    """Does with a model what has to be done because other workers hold it together with this one, which has part of it.

    rank: this part. network: the whole of it. share: of the newest batch. weight: the factor of this worker's
    gradients. together: see `WholeTensors`. Its `state_dict()`, and that of an optimiser that it holds, is whole, and a
    collective call.
    """

    def __init__(
        self,
        partition: Partition,
        rank: RankPart,
        network: WholeParameters,
        share: Share,
        weight: Callable[[], float],
        together: Together,
    ) -> None:
        part = rank.part
        assert rank.layers is not None, "this rank has all of the model"
        self.module, self.holdings, self._share = part.module, part.holdings, share
        self.partition = PARTITION.name_of(type(partition))
        self._network, self._together_by_all = network, together
        self._named = dict(named_parameters(part.module))
        self._names = {id(one): name for name, one in self._named.items()}
        self._norm, self._layers = PartNorm(part.holdings, rank.layers), rank.layers.group
        self._optimizers: list[CutOptimizer] = []
        self._average: ModelAverage | None = None
        self.in_stages = part.holdings.mesh.pipeline > 1
        cut = {id(one): name for name, one in self._named.items() if self.in_stages or name in part.holdings.blocks}
        trained = [one for one in self._named.values() if id(one) in cut and one.requires_grad]
        self._covered = CoveredGradients(trained, self._refuse_use)
        self._hooks = ExitStack()
        for hook in self._follow(cut, weight, WholeTensors(part.holdings.of_replica, self._together)):
            self._hooks.callback(hook.remove)

    def _follow(
        self, cut: Mapping[int, str], weight: Callable[[], float], tensors: WholeTensors
    ) -> Iterator[RemovableHandle]:
        if self.in_stages:
            yield self.module.register_forward_pre_hook(self._require_learn)
            yield from tensors.follow_stages(self.module)
            return
        for layer, names in owners_of(self.module, cut).items():
            yield from tensors.follow(layer, names)
            if self.holdings.mesh.hybrid > 1:
                yield from weigh_errors(layer, weight)
            yield layer.register_forward_pre_hook(self._require_fed)

    def hold(self, optimizers: Sequence[Optimizer]) -> None:
        """Optimisers that update the model do so in parts from now on. Raises SettingError as `CutOptimizer`."""
        for one in optimizers:
            if any(map(self._network.name_of, parameters_of(one))) and not self.holds(one):
                own = self.holdings.of_replica
                self._optimizers.append(CutOptimizer(one, self._network, self._named, own, self._together))

    def keep(self, average: ModelAverage) -> None:
        """The average of this worker's parts is saved with them from now on."""
        self._average = average

    def whole_averages(self, parts: OptimizerState) -> dict[str, Tensor]:
        """The averages of whole parameters (...) by name, of those of this worker's parts. A collective call."""
        whole = whole_state(parts, self._named, self.holdings.of_replica, self._together)
        likes = self._network.likes.items()
        found = {name: state_as(whole.of(Range(name, 0, like.numel())), like) for name, like in likes}
        return {name: one[AVERAGE] for name, one in found.items() if AVERAGE in one}

    def parts_of(self, whole: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """This worker's parts of tensors, by name. Raises BadInput if some are not the network's."""
        for name, one in whole.items():
            like = self._network.likes.get(name)
            refuse_other_shape(name, one.shape, None if like is None else like.shape)
        blocks = self.holdings.blocks
        own = {name: one for name, one in whole.items() if name in self._named}
        return {name: part_of(one, blocks[name]) if name in blocks else one for name, one in own.items()}

    def require_held(self, optimizer: Optimizer) -> None:
        """Raise BadInput if an optimiser of the model is none of those that it holds."""
        if not self.holds(optimizer):
            raise BadInput(
                f"{type(optimizer).__name__} updates a model that workers hold in parts (partition={self.partition}), "
                "and worker.distribute was not given it; accepted: worker.distribute(model, optimizer)"
            )

    def draw_alike(self) -> None:
        """Let workers that learn from the same samples draw the same random numbers. A collective call of these."""
        same_draws(self._layers, self.holdings)

    def cover(self) -> None:
        """Gradients are agreed on: from now on the user's code must not take those of parts for whole ones."""
        self._covered.cover()

    def uncover(self) -> None:
        """Let the gradients be seen again, with what a backward pass has added to them."""
        self._covered.uncover()

    def clip(self, parameters: Sequence[Tensor], max_norm: float, kind: float) -> Tensor:
        """See `volary.train.own.worker.Worker.clip_grad_norm_`; of gradients that are not covered."""
        own = {self._names[id(one)]: one for one in parameters if id(one) in self._names}
        norm = self._norm({name: one.grad for name, one in own.items() if one.grad is not None}, kind)
        torch.nn.utils.clip_grads_with_norm_(own.values(), max_norm, norm)
        return norm

    def holds(self, value: Any) -> bool:
        """Whether it is the model, or an optimiser or the average of it."""
        held = [self._average, *(one.optimizer for one in self._optimizers)]
        return unwrapped(value) is unwrapped(self.module) or any(value is one for one in held if one is not None)

    def files(self, named: Mapping[str, Any], rank: int, outer: Sequence[Any]) -> Iterator[tuple[str, Savable]]:
        """This worker's files of a checkpoint of the model, and of its optimisers, as far as they are named.

        outer: the plain state of the outer rule of local steps.
        """
        saved = [one for one in self._optimizers if any(value is one.optimizer for value in named.values())]
        if saved or any(self.holds(value) for value in named.values()):
            state = [part for one in saved for part in one.state().plain()]
            if self._average is not None and any(value is self._average for value in named.values()):
                state += self._average.parts().plain()
            yield from part_files(self.module, self.holdings, rank, [(OPTIMIZER, state), (OUTER, outer)])

    def settings_of(self, optimizer: Optimizer) -> dict[str, Any]:
        """The settings of an optimiser that it holds, as all workers know them."""
        return self._holder(optimizer).settings()

    def state_of(self, optimizer: Optimizer) -> list[Any]:
        """The state that an optimiser which it holds keeps of this worker's parts, in plain values."""
        return self._holder(optimizer).state().plain()

    def load_optimizer(self, optimizer: Optimizer, settings: Any, state: OptimizerState) -> None:
        """Take what an optimiser remembers of this worker's parts, as of tensors of their own. Raises RunError."""
        take_up(optimizer, settings, state, self._names)

    @property
    def held(self) -> list[Any]:
        """The parts of the network that this worker holds, as `volary.train.state.rank_state.held` describes them."""
        return held(self.module, self.holdings)

    @contextmanager
    def _together(self, call: str, size: int) -> Iterator[Group]:
        """All make this call; gives the group of those that hold this worker's replica with it."""
        with self._together_by_all(call, size):
            yield self._layers

    def _holder(self, optimizer: Optimizer) -> CutOptimizer:
        return next(one for one in self._optimizers if one.optimizer is optimizer)

    def close(self) -> None:
        """Let go of the model and its optimisers."""
        self._hooks.close()
        for one in self._optimizers:
            one.close()

    def _refuse_use(self) -> None:
        raise SettingError(
            "a gradient was used between backward() and optimizer.step(), and with "
            f"partition={self.partition} a worker has those of its part of a layer alone; accepted: "
            "worker.clip_grad_norm_(model, max_norm) to clip by the norm, or partition=data for anything else"
        )

    def _require_fed(self, layer: nn.Module, _inputs: Any) -> None:
        if layer.training and torch.is_grad_enabled():
            self.require_fed()

    def _require_learn(self, model: nn.Module, _inputs: Any) -> None:
        if model.training:
            raise SettingError(
                f"with partition={self.partition} a worker has some layers of the model, which gives no output in "
                "training; accepted: loss = worker.learn(inputs, targets, loss_function), or model.eval() on all "
                "workers"
            )

    def require_fed(self) -> None:
        """Raise SettingError if nobody cares that workers with the same samples are given the same."""
        if self.holdings.mesh.shares < self.holdings.mesh.size and not self._share.total:
            raise SettingError(
                f"with partition={self.partition} workers learn from the same samples, and the loop does not get its "
                "batches from worker.feed; accepted: worker.feed(loader)"
            )
