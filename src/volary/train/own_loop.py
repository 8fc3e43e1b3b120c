"""For people with a training loop of their own: what `volary.launch` hands to their function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from volary.data.feed import Feed
from volary.data.own import samples_of
from volary.data.stream import Stream
from volary.errors import BadInput, SettingError, Stopped
from volary.train.compare import compare, shape_facts
from volary.train.run_session import share_from_first
from volary.train.seeds import seed_all
from volary.train.strategy import Strategy

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from volary.session.script import Script
    from volary.train.bulletin import Bulletin
    from volary.train.pulse import Pulse
    from volary.train.recorder import Recorder


class Worker:
    """One worker of a run of your own loop. rank of world_size, local_rank on its machine, and its device."""

    def __init__(
        self,
        script: Script,
        bulletin: Bulletin,
        recorder: Recorder,
        pulse: Pulse,
        device: torch.device,
        local_rank: int,
    ) -> None:
        self.rank, self.world_size, self.local_rank = bulletin.rank, bulletin.world_size, local_rank
        self.device = device
        self._script, self._bulletin, self._recorder, self._pulse = script, bulletin, recorder, pulse
        self._share = _Share(1 / self.world_size)
        self._distributed = False

    def distribute(self, model: nn.Module, optimizer: Optimizer, passes: int = 1) -> tuple[nn.Module, Optimizer]:
        """Make `model` one of the run's replicas; returns both arguments, for use as before.

        Parameters and buffers become rank 0's. From now on `loss.backward()` lets gradients leave as they become ready
        and `optimizer.step()` first waits until they are the mean over all workers' samples. passes: calls of
        `backward` before each `optimizer.step()`, if you accumulate gradients. Raises RanksDiffer if shapes differ, and
        Stopped out of `optimizer.step()` when the run is asked to end.
        """
        if self._distributed:
            raise BadInput("worker.distribute was called twice; a run has one model and one optimiser")
        self._distributed = True
        model.to(self.device)
        compare(self._bulletin, "shapes", shape_facts(model))
        share_from_first(model, self.world_size)
        if self.world_size > 1:
            seed_all(self._script.seed + 1 + self.rank)
        strategy = Strategy(
            self._script.strategy,
            model.named_parameters(),
            self._recorder,
            rank=self.rank,
            world_size=self.world_size,
            passes=passes,
        )
        _Steps(strategy, self._share, self._recorder, self._pulse).attach(optimizer)
        self._recorder.enter("forward")
        return model, optimizer

    def feed(self, dataset: Any, batch_size: int, shuffle: bool = True) -> OwnFeed:
        """This worker's share of `dataset`, batch by batch; each `for` over it is an epoch.

        dataset: a torch data set, map style or iterable. batch_size: samples per step over all workers.
        Raises DataError for an empty data set.
        """
        samples = samples_of(dataset, type(dataset).__name__)
        feed = Feed(
            samples,
            batch_size,
            rank=self.rank,
            world_size=self.world_size,
            seed=self._script.seed,
            shuffle=shuffle and not isinstance(samples, Stream),
        )
        return OwnFeed(feed, self._share, self._recorder, self.device)

    def record(self, **metrics: float) -> None:
        """Write metrics of this moment into the run; those of rank 0 are kept."""
        if self.rank == 0:
            self._recorder.metrics({name: float(value) for name, value in metrics.items()})


class OwnFeed:
    """Batches of (inputs, targets) on the worker's device; `len` is the number of steps of an epoch."""

    def __init__(self, feed: Feed, share: _Share, recorder: Recorder, device: torch.device) -> None:
        self._feed, self._share, self._recorder, self._device = feed, share, recorder, device

    def __len__(self) -> int:
        if self._feed.steps_per_epoch is None:
            raise SettingError("the data is a stream without a length")
        return self._feed.steps_per_epoch

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            self._recorder.enter("data")
            batch = next(self._feed).to(self._device)
            self._share.weight, self._share.samples = batch.weight, batch.count
            self._share.epoch = batch.epoch + (batch.step_in_epoch + 1) / (self._feed.steps_per_epoch or 1)
            self._recorder.enter("forward")
            yield batch.inputs, batch.targets
            if batch.ends_epoch:
                return


class _Share:
    """This worker's part of the step's samples: the weight of its gradients."""

    def __init__(self, weight: float) -> None:
        self.weight, self.samples, self.epoch = weight, 0, 0.0


class _Steps:
    """Turns `optimizer.step()` into a step of the run."""

    def __init__(self, strategy: Strategy, share: _Share, recorder: Recorder, pulse: Pulse) -> None:
        self._strategy, self._share, self._recorder, self._pulse = strategy, share, recorder, pulse
        self._ending = False

    def attach(self, optimizer: Optimizer) -> None:
        """Have it called around every step."""
        optimizer.register_step_pre_hook(self._before)
        optimizer.register_step_post_hook(self._after)
        if self._strategy.buckets is not None:
            self._strategy.buckets.weight_of = lambda: self._share.weight

    def _before(self, _optimizer: Optimizer, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if len(arguments) > 1 or named:  # torch gives the optimiser itself as the first
            raise SettingError("optimizer.step(closure) cannot be distributed; call backward(), then step()")
        self._ending = self._strategy.agree(0.0, ending=self._pulse.asked_to_end).ending
        self._recorder.enter("optimizer")

    def _after(self, optimizer: Optimizer, _arguments: tuple[Any, ...], _named: dict[str, Any]) -> None:
        self._recorder.end_step(
            epoch=self._share.epoch,
            samples=self._share.samples,
            loss=float("nan"),
            lr=float(optimizer.param_groups[0]["lr"]),
            sent_bytes=self._strategy.sent_bytes,
            received_bytes=self._strategy.received_bytes,
        )
        self._recorder.enter("forward")
        if self._ending:
            raise Stopped("the run was asked to end after this step")
