"""The worker that `volary.launch` hands to a function with a training loop of its own."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from itertools import count
from math import isfinite, nan
from typing import TYPE_CHECKING, Any, Literal

import torch

from volary.comm.groups.tensor_messages import TensorMessages
from volary.data.sharing.among import Among
from volary.data.sharing.shared import shared
from volary.errors import BadInput
from volary.naming import unwrapped
from volary.network.operations.sync_norm import has_batch_norm
from volary.session.fitting.abilities import in_parts
from volary.sharding.groups import RankMesh, leads
from volary.train.averages.ema import Ema
from volary.train.own import measured, together
from volary.train.own.given import refuse_given
from volary.train.own.lockstep_position import of_first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor, nn

    from volary.comm.groups.group import Group
    from volary.data.datasets.stream_shards import ValueExchange
    from volary.session.script import Script
    from volary.train.coordinator import Outcome
    from volary.train.own.loop_backend import LoopBackend
    from volary.train.own.loop_feed import LoopFeed
    from volary.train.own.measured import Tensors
    from volary.train.own.model.model_average import WeightAverage
    from volary.train.recording.recorder import Recorder


class Worker:
    """One worker of a run of your own loop. local_rank: on its machine. device: that it computes on."""

    def __init__(
        self, loop: LoopBackend, script: Script, recorder: Recorder, device: torch.device, local_rank: int
    ) -> None:
        self.local_rank, self.device = local_rank, device
        self._loop, self._script, self._recorder = loop, script, recorder
        self._barriers: tuple[Group, Iterator[int]] | None = None  # those of one group, counted
        self._channel: TensorMessages | None = None
        self._evaluating = False
        self._weighed: float | None = None  # within an evaluation
        self._exchange: tuple[Group, ValueExchange] | None = None  # likewise, of the group that evaluates
        self._together = partial(together.sure_call, loop, recorder)

    @property
    def rank(self) -> int:
        """This worker's place, from 0; another one once a worker before it was lost in a run that goes on."""
        return self._loop.rank

    @property
    def world_size(self) -> int:
        """How many workers train now."""
        return self._loop.size

    def distribute(
        self,
        *parts: Any,
        passes: int = 1,
        loss: Literal["mean", "sum"] = "mean",
        early_update: bool | None = None,
    ) -> Any:
        """Make models the run's replicas; returns its arguments, one or a tuple, for use as before.

        parts: modules and torch optimisers, or lists of these, in any order; later calls may bring more. Parameters and
        buffers become rank 0's, buffers again with each step. From now on gradients leave as `loss.backward()` makes
        them, and when it returns they are the mean over all workers' samples: clip or log them as before. An optimiser
        of these parameters need not be named here. passes: calls of `backward` before each `optimizer.step()`, if you
        accumulate gradients; the last one waits for the others. loss: "sum" if it is a sum over the batch's samples, as
        gradients are then. early_update: nothing between `backward` and the next forward looks at gradients or
        parameters, so that updates may come under that forward; clip with `clip_grad_norm_`. None: as settings say. A
        model that is given again is distributed as it is now. If workers hold parts of a model, its optimisers are
        named here, too; its and their states are whole, and all workers ask for them together. Raises BadInput for what
        cannot be distributed, RanksDiffer if shapes differ, and Stopped out of `optimizer.step()` when the run is asked
        to end.
        """
        given = [one for part in parts for one in (part if isinstance(part, list | tuple) else [part])]
        for one in given:
            refuse_given(one)
        if loss not in ("mean", "sum"):
            raise BadInput(f"worker.distribute: loss is {loss!r}; accepted: 'mean', 'sum'")
        models = [one for one in given if isinstance(one, torch.nn.Module)]
        optimizers = [one for one in given if isinstance(one, torch.optim.Optimizer)]
        early = self._script.early_update if early_update is None else early_update
        self._loop.distribute(models, optimizers, passes, summed=loss == "sum", early=early)
        return parts[0] if len(parts) == 1 else parts

    def sync_batch_norm(self, model: nn.Module) -> nn.Module:
        """Let the batch norms in `model`, in place, go by the samples of all workers; call it before `distribute`.

        All workers call it alike, and go through the same layers in the same order, as they do anyway. Shares may be
        uneven or empty. Returns the model. Raises BadInput for a model without a batch norm in it, over servers, and
        where workers' models differ.
        """
        if not has_batch_norm(model):
            raise BadInput("worker.sync_batch_norm was given a model without a batch norm in it; accepted: one with it")
        with self._recorder.called("worker.sync_batch_norm"):
            self._loop.sync_batch_norm(model)
        return model

    def average(self, model: nn.Module, decay: float = 0.999) -> WeightAverage:
        """An exponential moving average (EMA) of a distributed model's weights, equal on all workers.

        Each `optimizer.step()` lets the weights enter it: nothing else is to be called. With `consistency: local` they
        do at each mean of all workers'. `with average.applied():` lends the model its average, to be evaluated, and
        `worker.save` and `worker.restore` take it as an optimiser. decay: of the average that stays, 0 to below 1.
        Training is the same with it and without. Raises BadInput for a model that is not distributed, and SettingError
        for another decay and where workers' weights always differ.
        """
        rule = Ema(decay=decay)
        if not any(unwrapped(one) is unwrapped(model) for one in self._loop.models):
            raise BadInput(
                "worker.average was given a model that is not distributed; accepted: one that worker.distribute was "
                "given before"
            )
        return self._loop.average(model, rule.decay)

    def clip_grad_norm_(
        self, parameters: nn.Module | Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0
    ) -> Tensor:
        """Clip gradients as torch.nn.utils.clip_grad_norm_ does, between `backward` and `optimizer.step`.

        parameters: those of one model, or the model; over servers those of all optimisers that step next. Returns the
        norm before, a scalar. With early_update and over servers it waits for all gradients, and parameters are updated
        after that. Raises BadInput where no step is of all workers, and SettingError for some of a model's parameters,
        a step behind, or over servers if the steps before were not clipped.
        """
        if isinstance(parameters, torch.nn.Module):
            parameters = parameters.parameters()
        given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        return self._loop.clip(given, max_norm, norm_type)

    def weigh(self, count: Any) -> None:
        """The loss that `backward` is called on next is a mean over `count` of this worker's batch, not its samples.

        Tokens that count, values under a mask, the sum of their weights: a number from 0. Gradients then are of the
        mean over what counts on all workers. Call it before each `backward`, best before the forward, beside which the
        workers' counts travel; it holds up to the next batch. All workers call it alike. In a function that `evaluate`
        calls it says the same of what the function returns. Raises BadInput for anything else, and over servers after
        `backward`.
        """
        value = _counted(count)
        if self._evaluating:
            self._weighed = value
        else:
            self._loop.weigh(value)

    def learn(self, inputs: Tensor, targets: Tensor, loss_function: Callable[[Any, Any], Tensor]) -> Tensor:
        """Forward and backward of a batch of `feed` through the one distributed model, whose gradients agree then.

        With `partition: pipeline` it passes the stages of all workers in micro-batches; else it is
        `loss_function(model(inputs), targets).backward()`. inputs, targets: (samples, ...). loss_function: gives the
        mean over the samples that it is given, a scalar, or with loss="sum" their sum. Returns the loss of all workers'
        samples, a scalar, the same on all. Raises BadInput for anything else, and over servers.
        """
        return self._loop.learn(inputs, targets, loss_function)

    def feed(self, data: Any, batch_size: int | None = None, shuffle: bool | None = None) -> LoopFeed:
        """This worker's share of `data`, batch by batch; each `for` over it is an epoch.

        data: a torch DataLoader, whose batch_size is that of all workers together; or a data set or any iterable of
        samples, with batch_size (and shuffle: a data set is, unless told otherwise); or an iterable of whole batches.
        Batches are what the loader's collate_fn makes of the share, on the worker's device. A loader with a
        DistributedSampler keeps its own sharding. The order is what the loader draws on rank 0. A batch may be too
        small to give every worker a sample: one without goes through the loop with a batch without rows, of which a
        mean is 0, and its gradients count nothing. Raises BadInput, DataError and SettingError for what cannot be
        shared out.
        """
        feed = self._loop.feed(data, batch_size, shuffle)
        self._loop.checkpoints.follow(feed)
        return feed

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes and prints what one worker is to."""
        return leads(self.rank)

    def mean(self, value: Any) -> Any:
        """The mean of a tensor or number over all samples of the newest batch; all workers call it alike.

        Each worker's `value` is a mean over its share of the batch, a loss say, and counts as much as that has samples,
        or as `weigh` was told.
        """

        def mean(group: Group) -> Any:
            return together.total(value, group, self._loop.weight(group))

        return self._together("mean", mean, _size(value))

    def sum(self, value: Any) -> Any:
        """The sum of a tensor or number over all workers; all call it alike."""
        return self._together("sum", partial(together.total, value), _size(value))

    def gather(self, value: Any) -> list[Any]:
        """Return all workers' values, by rank: tensors of one type and any shape, or numbers, text, lists and dicts."""
        return self._together("gather", partial(together.gathered, value))

    def metric(self, name: str, outputs: Tensors, targets: Tensors, **settings: Any) -> float | dict[str, float]:
        """The figure of a metric over all workers' outputs and targets, exact however they are divided; all call it.

        name, settings: a metric of docs/networks.md, as "f1", average="micro". outputs, targets: tensors or lists of
        some, an empty list too: scores (n, classes) and classes (n,), of sequences (n, time, classes) and (n, time), or
        values of one shape. NaN if nothing counts; of a metric of several figures these by name. Raises BadInput,
        SettingError, and RanksDiffer if workers ask for different metrics.
        """
        metric = measured.metric_of(name, settings)
        found = self._together("metric", partial(measured.measured, metric, outputs, targets))
        return found if metric.higher_is_better is None else found.get(metric.name, nan)

    def channel(self) -> TensorMessages:
        """Connections of this worker to all others, for layers that communicate; all workers call it alike.

        It is handed to the layers of `volary.network.blocks.communication`; one serves them all. Raises BadInput where
        workers come and go.
        """
        with self._recorder.called("worker.channel"):
            if self._channel is None:
                self._channel = TensorMessages(self._loop.peers("channel"), self.device)
            return self._channel

    def barrier(self) -> None:
        """Wait until all workers are here, and all updates are done; with `consistency: local` a period ends."""
        with self._recorder.called("worker.barrier"):
            self._loop.make(self._meet_at_barrier)
            self._loop.meet()

    def _meet_at_barrier(self) -> None:
        group = self._loop.peers("barrier")
        if self._barriers is None or self._barriers[0] is not group:
            self._barriers = group, count()
        group.bulletin.share(f"barrier-{next(self._barriers[1])}", None)

    def evaluate(self, function: Callable[[Any], Any], data: Any, batch_size: int | None = None) -> Any:
        """The mean over all samples of `data` of what `function(batch)` gives; all workers call it, and find the same.

        data, batch_size: as of `feed`, each worker has its share, without shuffling. function: gives the mean over the
        batch that it is given, a number or a dictionary of some; it may call `weigh`. Distributed models are in
        evaluation mode meanwhile.
        Over servers with workers that may come and go, whoever calls it measures all samples, and waits for nobody.
        Raises as `feed`.
        """
        return self._loop.make(lambda: self._evaluate(function, data, batch_size))

    def _evaluate(self, function: Callable[[Any], Any], data: Any, batch_size: int | None) -> Any:
        call = partial(together.call, self._loop, self._recorder)
        with self._recorder.called("worker.evaluate"):
            group = self._loop.peers("evaluate")
        share = RankMesh(data=group.size).samples(group.rank)
        if self._exchange is None or self._exchange[0] is not group:
            self._exchange = group, together.exchange(group, "evaluate")
        alike = partial(of_first, together=call)
        among = Among(share, alike if group.size > 1 else None, exchange=self._exchange[1])
        held_out = shared(data, batch_size, None if batch_size is None else False, among)
        models, recorder = self._loop.models, self._recorder
        with self._loop.consensus("evaluate"), self._in_evaluation():
            return together.evaluated(
                function,
                held_out,
                models,
                self.device,
                recorder,
                partial(call, "evaluate"),
                self._take_weighed,
                all_of_them=in_parts(self._script.strategy),
            )

    @contextmanager
    def _in_evaluation(self) -> Iterator[None]:
        self._evaluating = True
        try:
            yield
        finally:
            self._evaluating = False

    def _take_weighed(self) -> float | None:
        weighed, self._weighed = self._weighed, None
        return weighed

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs 0 to count - 1; in a resumed run, those that are left, beginning with the one it was in.

        A worker that joins begins with 0, whichever epoch the run is in, and then follows the run's.
        """
        return self._loop.checkpoints.epochs(count)

    def restore(self, **state: Any) -> dict[str, Any]:
        """Restore `state` in a resumed run; call it once, right before the loop. Returns it by name.

        Objects with load_state_dict() (models, optimisers, schedules, scalers, averages) load their state; other values
        are only returned: `best = worker.restore(model=model, best=0.0)["best"]`. In a run that begins nothing
        changes. Random generators are restored, too. Raises BadInput unless the names are those that
        `worker.save` was given.
        """
        return self._loop.restore(state)

    def save(self, **state: Any) -> None:
        """Write a checkpoint, from which `volary resume` continues. All ranks call it after the same step.

        Called among the batches of an epoch, the run resumes at the next batch, else with the next epoch.

        state: what has state_dict(), tensors, numbers, text, and lists, tuples and dicts of these, under the names of
        `worker.restore`; of those, what rank 0 has is kept. Beside it, each rank keeps its random generators, where
        its feeds are, with `consistency: local` and `gossip` what its optimisers, schedules and gradient scalers
        remember, and with `gossip` its own parameters: those in `state` are the mean of all workers'. A full disk is a
        warning of the run, and older checkpoints stay. Raises BadInput for what cannot be kept, and SettingError within
        a period of `local`.
        """
        self._loop.save(state)

    @property
    def outcome(self) -> Outcome:
        """How the run ended for this worker, once its loop was asked to end."""
        return self._loop.outcome

    def finish(self) -> None:
        """Volary calls this when your loop is over."""
        self._loop.finish()

    def close(self) -> None:
        """Remove the hooks from all models."""
        self._loop.close()

    def record(self, **metrics: float) -> None:
        """Write metrics of this moment into the run; those of rank 0 are kept."""
        if self.is_first:
            self._recorder.metrics({name: float(value) for name, value in metrics.items()})


def _counted(value: Any) -> float:
    """`value`, a number or a tensor of one. Raises BadInput unless it is finite and from 0."""
    try:
        count = float(value)
    except (TypeError, ValueError, RuntimeError):
        raise BadInput(f"worker.weigh was given a {type(value).__name__}; accepted: a number from 0") from None
    if not isfinite(count) or count < 0:
        raise BadInput(f"worker.weigh was given {count:g}; accepted: a number from 0")
    return count


def _size(value: Any) -> int:
    return value.numel() if isinstance(value, torch.Tensor) else 1
