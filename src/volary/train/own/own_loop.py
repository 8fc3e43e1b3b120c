"""For people with a training loop of their own: what `volary.launch` hands to their function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from volary.data.feed import Feed
from volary.data.own import samples_of
from volary.data.stream import Stream
from volary.errors import BadInput, DataError, SettingError
from volary.train.member.compare import compare, shape_facts
from volary.train.own.own_feed import OwnFeed
from volary.train.own.own_step import OwnStep, Share
from volary.train.run_session import share_buffers
from volary.train.state.seeds import seed_all
from volary.train.strategies.carried import StrategyState
from volary.train.strategies.first_state import DeferredTensors
from volary.train.strategies.strategy import build_strategy

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from volary.comm.groups.group import Group
    from volary.session.script import Script
    from volary.train.member.pulse import Pulse
    from volary.train.recording.recorder import Recorder
    from volary.train.replica import Voting


class Worker:
    """One worker of a run of your own loop. rank of world_size, local_rank on its machine, and its device."""

    def __init__(
        self,
        script: Script,
        group: Group,
        recorder: Recorder,
        pulse: Pulse,
        device: torch.device,
        local_rank: int,
    ) -> None:
        self.rank, self.world_size, self.local_rank = group.rank, group.size, local_rank
        self.device = device
        self._script, self._group, self._recorder, self._pulse = script, group, recorder, pulse
        self._share = Share(1 / self.world_size)
        self._strategy: Voting | None = None

    def distribute(self, model: nn.Module, optimizer: Optimizer, passes: int = 1) -> tuple[nn.Module, Optimizer]:
        """Make `model` one of the run's replicas; returns both arguments, for use as before.

        Parameters and buffers become rank 0's, buffers again with each step. From now on gradients leave as
        `loss.backward()` makes them, and when it returns they are the mean over all workers' samples: clip or log them
        as before. passes: calls of `backward` before each `optimizer.step()`, if you accumulate gradients; the last one
        waits for the others. Raises BadInput for what cannot be distributed, RanksDiffer if shapes differ, and Stopped
        out of `optimizer.step()` when the run is asked to end.
        """
        if self._strategy is not None:
            raise BadInput("worker.distribute was called twice; a run has one model and one optimiser")
        _refuse(model, optimizer)
        model = self._script.strategy.partition.part(model).to(self.device)
        self._recorder.enter("exchange")
        compare(self._group.bulletin, "shapes", shape_facts(model))
        share_buffers(model, self._group)
        if self.world_size > 1:
            seed_all(self._script.seed + 1 + self.rank)
        strategy = build_strategy(
            self._script.strategy,
            model,
            self._recorder,
            self._group,
            None,
            carried=StrategyState(),
            passes=passes,
            weight=lambda: self._share.weight,
        )
        strategy.start(DeferredTensors())
        self._strategy = strategy
        consistency = self._script.strategy.consistency
        step = OwnStep(strategy, consistency, self._share, self._recorder, self._pulse, passes, self._group)
        step.attach(model, optimizer)
        self._recorder.enter("between steps")
        return model, optimizer

    def feed(self, dataset: Any, batch_size: int, shuffle: bool = True) -> OwnFeed:
        """This worker's share of `dataset`, batch by batch; each `for` over it is an epoch.

        dataset: a torch data set, map style or iterable. batch_size: samples per step over all workers. The last batch
        of an epoch may be too small to give every worker a sample: one without goes through the loop with a sample that
        it had before, and its gradients count nothing. Raises DataError and SettingError if there is less than a sample
        a worker at all.
        """
        name = type(dataset).__name__
        samples = samples_of(dataset, name)
        if batch_size < self.world_size:
            raise SettingError(f"batch_size is {batch_size}; accepted: {self.world_size} or more, a sample a worker")
        feed = Feed(
            samples,
            batch_size,
            rank=self.rank,
            world_size=self.world_size,
            seed=self._script.seed,
            shuffle=shuffle and not isinstance(samples, Stream),
        )
        if feed.samples is not None and feed.samples < self.world_size:
            raise DataError(f"{name}: has {feed.samples} samples; accepted: at least one for each of the workers")
        return OwnFeed(feed, self._share, self._recorder, self.device)

    def close(self) -> None:
        """Let go of the model."""
        if self._strategy is not None:
            self._strategy.close()

    def record(self, **metrics: float) -> None:
        """Write metrics of this moment into the run; those of rank 0 are kept."""
        if self.rank == 0:
            self._recorder.metrics({name: float(value) for name, value in metrics.items()})


def _refuse(model: Any, optimizer: Any) -> None:
    """Raise BadInput for what cannot be distributed, and say what can."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise BadInput(
            f"worker.distribute was given a {type(optimizer).__name__} as the optimiser; accepted: one torch optimiser "
            "(a second one may step without it: gradients agree in backward)"
        )
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise BadInput("SparseAdam takes sparse gradients, and those that workers agree on are dense; accepted: Adam")
    if lazy := [name for name, one in model.named_parameters() if torch.nn.parameter.is_lazy(one)]:
        raise BadInput(
            f"worker.distribute: {lazy[0]} has no shape yet; accepted: a model that was called once on a batch, which "
            "gives lazy layers their shapes, before its optimiser is made"
        )
