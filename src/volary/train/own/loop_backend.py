"""A training loop of the user's own: what the calls of its `Worker` come down to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from volary.comm.groups.group import Group
    from volary.train.coordinator import Outcome
    from volary.train.own.loop_checkpoints import LoopCheckpoints
    from volary.train.own.loop_feed import LoopFeed
    from volary.train.own.model.model_average import WeightAverage

Found = TypeVar("Found")


class LoopBackend(Protocol):
    """Does what a `Worker` is asked for: `ReplicatedLoop` if workers have all parameters, `ServedLoop` if servers do.

    checkpoints: of this loop.
    """

    checkpoints: LoopCheckpoints

    @property
    def rank(self) -> int:
        """The place of this worker, from 0."""
        ...

    @property
    def size(self) -> int:
        """How many workers train now; with servers, how many the run began with."""
        ...

    @property
    def models(self) -> Sequence[nn.Module]:
        """The models that are distributed."""
        ...

    def make(self, act: Callable[[], Found]) -> Found:
        """Do what all do together, again if a worker is lost meanwhile and the others go on."""
        ...

    def weight(self, group: Group) -> float:
        """This worker's part of what counts of the newest batch, over all workers, who make this call in `group`."""
        ...

    @property
    def outcome(self) -> Outcome:
        """How the run has ended for this worker, once it has."""
        ...

    def distribute(
        self, models: Sequence[nn.Module], optimizers: Sequence[Optimizer], passes: int, *, summed: bool, early: bool
    ) -> None:
        """See `Worker.distribute`. summed: the loss is a sum. early: updates may come under the next forward.

        Raises BadInput for what cannot be distributed so, RanksDiffer if shapes differ.
        """
        ...

    def sync_batch_norm(self, model: nn.Module) -> None:
        """See `Worker.sync_batch_norm`. Raises BadInput."""
        ...

    def average(self, model: nn.Module, decay: float) -> WeightAverage:
        """See `Worker.average`. Of a distributed model. Raises BadInput, SettingError if none can be kept of it."""
        ...

    def weigh(self, count: float) -> None:
        """See `Worker.weigh`. Raises BadInput."""
        ...

    def clip(self, parameters: Sequence[Tensor], max_norm: float, kind: float) -> Tensor:
        """See `Worker.clip_grad_norm_`: the norm before, a scalar. Raises BadInput, SettingError."""
        ...

    def learn(self, inputs: Any, targets: Any, loss_function: Callable[[Any, Any], Tensor]) -> Tensor:
        """See `Worker.learn`. inputs, targets: (samples, ...). Raises BadInput, SettingError."""
        ...

    def feed(self, data: Any, batch_size: int | None, shuffle: bool | None) -> LoopFeed:
        """See `Worker.feed`. Raises BadInput, DataError, SettingError."""
        ...

    def peers(self, called: str) -> Group:
        """The group that makes this call together, over connections that no step uses. Raises BadInput if none can."""
        ...

    def consensus(self, called: str) -> AbstractContextManager[None]:
        """Lend each model what all its replicas are together, with all updates. A collective call."""
        ...

    def meet(self) -> None:
        """All workers are here: what each has updated by itself becomes their mean, and all updates are done.

        A collective call. Over servers they are done as the model wants.
        """
        ...

    def restore(self, state: dict[str, Any]) -> dict[str, Any]:
        """See `Worker.restore`. Raises BadInput."""
        ...

    def save(self, state: dict[str, Any]) -> None:
        """See `Worker.save`. Raises BadInput, SettingError."""
        ...

    def finish(self) -> None:
        """The user's loop is over: see the run out. Raises BadInput if that loop did nothing where it had to."""
        ...

    def close(self) -> None:
        """Let go of the models, and of whom they were trained with."""
        ...
