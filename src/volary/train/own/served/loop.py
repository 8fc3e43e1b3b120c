"""A loop of a user's own over servers: the roster says what is learnt from, and servers update the parameters."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import torch
from torch.distributed import HashStore  # type: ignore[attr-defined]  # torch exports it untyped

from volary.comm.groups.group import Group
from volary.consistency._base import Push
from volary.errors import BadInput
from volary.server.protocol.norms import ClipNorm
from volary.train.member.bulletin import BoardBulletin
from volary.train.own.gradients.losses import LossWatch
from volary.train.own.hooks import OptimizerHooks, PassHooks
from volary.train.own.loop_checkpoints import LoopCheckpoints
from volary.train.own.loop_feed import LoopFeed
from volary.train.own.model.share import Share, Weighing
from volary.train.own.rank_copy import RankCopy
from volary.train.own.served.average import ServedAverage
from volary.train.own.served.joining import join
from volary.train.own.served.model import ServedModel
from volary.train.own.served.position import RosterPosition, portions_of
from volary.train.own.served.steps import NEEDED
from volary.train.own.served.turns import Distributing
from volary.train.own.together import total
from volary.train.served.saver import RosterSaver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from volary.train.coordinator import Outcome
    from volary.train.own.served.loop_start import LoopStart
    from volary.train.own.served.steps import ServedSteps

Found = TypeVar("Found")


class ServedLoop:
    """See `LoopBackend`. meet: the group of all, at times.

    The worker comes to the roster with its first batch: only then it is known how many samples there are.
    """

    def __init__(self, start: LoopStart, meet: Callable[[], AbstractContextManager[Group]]) -> None:
        recorder, self._strategy = start.recorder, start.script.strategy
        self.rank, self.size = start.member.place.rank, self._strategy.workers
        self._start, self._recorder, self._device, self._meet = start, recorder, start.device, meet
        self._alone = Group(BoardBulletin(HashStore(), 0, 1, 0))
        self._together: Group | None = None  # of all workers, from their first call on that needs it
        self._weighing = Weighing(recorder, lambda: self.peers("weigh"))
        self._held, self._watching = ExitStack(), ExitStack()
        self._held.callback(self._watching.close)
        self._given: tuple[list[nn.Module], list[Optimizer]] = [], []  # to `distribute`
        self._model: ServedModel | None = None
        self._how = Distributing(1, (), summed=False)
        self._decay: float | None = None  # of the average that servers keep
        self._fed: tuple[tuple[Any, int | None, bool | None], LoopFeed] | None = None
        self._position: RosterPosition | None = None  # in what is fed
        self._steps: ServedSteps | None = None
        self._saves = False  # whether the loop is made to be saved
        self._saver = RosterSaver(start.member, self.size, self._ask_save)
        self.checkpoints = LoopCheckpoints(self._saver, recorder, Share(1 / self.size), lambda: self.models)

    @property
    def models(self) -> list[nn.Module]:
        return self._given[0]

    def make(self, act: Callable[[], Found]) -> Found:
        return act()

    def weight(self, group: Group) -> float:
        if self._steps is None:
            return 1 / self.size
        counted = self._steps.weighed
        if counted is None:
            return self._steps.part_of_batch
        of_all = total(counted, group)
        return counted / of_all if of_all else 0.0

    @property
    def outcome(self) -> Outcome:
        return "stopped" if self._steps is None else self._steps.outcome

    @property
    def steps(self) -> ServedSteps:
        """The optimisers of the loop. Raises BadInput before the first batch."""
        if self._steps is None:
            raise BadInput(f"a step was taken before the first batch; {NEEDED}")
        return self._steps

    def distribute(
        self, models: Sequence[nn.Module], optimizers: Sequence[Optimizer], passes: int, *, summed: bool, early: bool
    ) -> None:
        if self._steps is not None:
            raise BadInput("worker.distribute was called after the first batch; accepted with exchange=server: before")
        known, all_optimizers = self._given
        again = [*models, *optimizers]
        if any(one is other for one in again for other in (*known, *all_optimizers)):
            raise BadInput("worker.distribute was given something again; accepted with exchange=server: each once")
        if passes > 1 and self._strategy.consistency.elastic:
            raise BadInput(
                f"worker.distribute: passes is {passes}, and workers may leave or be late between two passes, whose "
                "samples others would learn from again; accepted: consistency=bsp or local (push_every of async adds "
                "up), or passes=1"
            )
        how = Distributing(passes, (*all_optimizers, *optimizers), summed=summed)
        if known and (how.passes, how.summed) != (self._how.passes, self._how.summed):
            raise BadInput(
                "worker.distribute was given other passes or another loss than before, and servers make one update of "
                "all models; accepted with exchange=server: the same for all"
            )
        known += [one.to(self._device) for one in models]
        all_optimizers += optimizers
        self._how = how
        if known and all_optimizers:
            self._watch(ServedModel(known, all_optimizers))

    def _watch(self, model: ServedModel) -> None:
        """See what the loop does with all that `distribute` has brought so far."""
        self._watching.close()
        self._model = model
        hooks = OptimizerHooks([model], lambda: self.steps, self._recorder, strict=True)
        self._watching.callback(hooks.close)
        passes = PassHooks(
            model.models,
            model.contents.trained,
            self._recorder,
            lambda: None if self._steps is None else self._steps.entering(),
            lambda number: self.steps.in_backward(number),
        )
        self._watching.callback(passes.close)
        own = RankCopy(model.module, lambda: "" if self._steps is None else self._steps.own_copy, self._recorder)
        self._watching.callback(own.close)
        if not self._how.summed:
            self._watching.callback(LossWatch(self._recorder, self._samples).close)

    def average(self, model: nn.Module, decay: float) -> ServedAverage:
        if self._steps is not None:
            raise BadInput("worker.average was called after the first batch; accepted with exchange=server: before")
        if self._decay not in (None, decay):
            raise BadInput(
                f"worker.average: decay is {decay}, and was {self._decay} before, and servers keep one average of all "
                "models; accepted with exchange=server: the same for all"
            )
        self._decay = decay
        return ServedAverage(model, lambda: self.steps)

    def weigh(self, count: float) -> None:
        self.steps.weigh(count, self._weighing)

    def clip(self, parameters: Sequence[Tensor], max_norm: float, kind: float) -> Tensor:
        consistency, parameters = self._strategy.consistency, list(parameters)
        if consistency.pushes is Push.DIFFERENCE:  # each worker updates itself, with its own gradients
            return torch.nn.utils.clip_grad_norm_(parameters, max_norm, kind)
        if not consistency.has_common_step:
            raise BadInput(
                "worker.clip_grad_norm_: each gradient is an update of its own, and no step of all workers has one "
                "whose norm could be found; accepted: consistency=bsp or local, or exchange=allreduce"
            )
        if not (max_norm > 0 and kind > 0):
            raise BadInput(f"worker.clip_grad_norm_ was given {max_norm}, norm {kind}; accepted: above 0")
        optimizers = [] if self._model is None else self._model.clipped(parameters)
        norm = self.steps.clip(ClipNorm(max_norm, kind), optimizers)
        return torch.tensor(norm, dtype=parameters[0].dtype, device=parameters[0].device)

    def learn(self, inputs: Any, targets: Any, loss_function: Any) -> NoReturn:
        raise BadInput(
            "worker.learn: servers have the parameters, and each worker learns from batches of its own; accepted: "
            "loss.backward()"
        )

    def feed(self, data: Any, batch_size: int | None, shuffle: bool | None) -> LoopFeed:
        if self._fed is not None:
            (known, *how), feed = self._fed
            if known is data and how == [batch_size, shuffle]:
                return feed
            raise BadInput("worker.feed was given other data than before; accepted with exchange=server: the same")
        portions = portions_of(data, batch_size, shuffle, rank=self.rank, workers=self.size, device=self._device)
        self._held.callback(portions.close)
        self._position = RosterPosition(portions, self._epoch)
        self._fed = (data, batch_size, shuffle), LoopFeed(self._position)
        return self._fed[1]

    def sync_batch_norm(self, model: nn.Module) -> None:
        raise BadInput(
            "worker.sync_batch_norm: over servers portions of a batch are handed out, and workers go each at its own "
            "pace; accepted: exchange=allreduce, or no such call"
        )

    def peers(self, called: str) -> Group:
        """All workers, who meet with the first call; each alone where they come and go."""
        if not self._strategy.consistency.elastic:
            if self._together is None:
                self._together = self._held.enter_context(self._meet())
            return self._together
        if called in ("evaluate", "feed"):  # the samples of an evaluation
            return self._alone
        raise BadInput(
            f"worker.{called} is of all workers, who here go each at its own pace, and may come and go; accepted: "
            "consistency=bsp or local, or exchange=allreduce"
        )

    def consensus(self, called: str) -> AbstractContextManager[None]:
        """Servers have one model, and workers copies of it, or their own around it."""
        return nullcontext() if self._steps is None else self._steps.consensus()

    def meet(self) -> None:
        """Servers keep what all agree on, and a period of `local` ends there with its last batch."""

    def restore(self, state: dict[str, Any]) -> dict[str, Any]:
        self._saves = True
        return self.checkpoints.restore(state)

    def save(self, state: dict[str, Any]) -> None:
        self.checkpoints.save(state, updates_locally=self._strategy.consistency.pushes is Push.DIFFERENCE)

    def finish(self) -> None:
        if self._steps is None:
            raise BadInput(f"the loop ended without a batch; {NEEDED}")
        self._steps.finish()

    def close(self) -> None:
        if self._steps is not None:
            self._steps.close()
        self._held.close()

    def _ask_save(self) -> None:
        if self._steps is None:
            raise BadInput("worker.save was called before the first batch; accepted with exchange=server: after a step")
        self._steps.save()

    def _samples(self) -> int | None:
        """The samples of the batch at hand; None if the loop has said what of it counts."""
        if self._steps is None:
            return 0
        return self._steps.samples if self._steps.weighed is None else None

    def _epoch(self, first: int) -> Iterator[Any]:
        if self._model is None or self._position is None:
            raise BadInput(f"a batch was asked for before worker.distribute; {NEEDED}")
        if self._steps is None:
            portions, saver = self._position.portions, self._saver
            how, decay = self._how, self._decay
            self._steps = join(self._start, self._model, how, portions, saver, saves=self._saves, decay=decay)
        self.checkpoints.begin_batch()
        return self._steps.epoch(first)
