"""For people with a training loop of their own: what `volary.launch` hands to their function."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.utils.data import DataLoader

from volary.data.sharing.among import Among
from volary.data.sharing.shared import shared
from volary.errors import BadInput
from volary.train.own import together
from volary.train.own.keeping import Keeping
from volary.train.own.model.own_model import OwnModel, OwnRun
from volary.train.own.model.own_steps import OwnSteps
from volary.train.own.model.share import Share
from volary.train.own.own_feed import OwnFeed, of_first
from volary.train.own.rank_checkpoints import RankCheckpoints
from volary.train.own.served_loop import ServedLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from volary.comm.groups.group import Group
    from volary.session.script import Script
    from volary.train.coordinator import Outcome
    from volary.train.member.pulse import EndWatch
    from volary.train.own.keeping import LoopCheckpoints
    from volary.train.own.served_feed import ServedFeed
    from volary.train.recording.recorder import Recorder
    from volary.train.state.drafts import Drafts


class Worker:
    """One worker of a run of your own loop. rank of world_size, local_rank on its machine, and its device.

    group: whom it trains with: workers that sum gradients, or servers.
    """

    def __init__(
        self,
        script: Script,
        group: Group | ServedLoop,
        recorder: Recorder,
        pulse: EndWatch,
        device: torch.device,
        local_rank: int,
        drafts: Drafts | None = None,
    ) -> None:
        self.rank, self.world_size, self.local_rank = group.rank, group.size, local_rank
        self.device = device
        self._script, self._group, self._recorder, self._pulse = script, group, recorder, pulse
        self._share = Share(1 / self.world_size)
        self._distributed = False  # over servers
        self._keeping = Keeping(_checkpoints_of(group, recorder, drafts), recorder, self._share)
        self._fed: list[tuple[tuple[Any, int | None, bool | None], OwnFeed]] = []
        self._models: list[OwnModel] = []
        self._barriers = count()
        self._apart: Group | None = None  # for calls that all workers make between steps, from the first one on
        self._steps: OwnSteps | None = None

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
        model that is given again is distributed as it is now. Raises BadInput for what cannot be distributed,
        RanksDiffer if shapes differ, and Stopped out of `optimizer.step()` when the run is asked to end.
        """
        given = [one for part in parts for one in (part if isinstance(part, list | tuple) else [part])]
        for one in given:
            _refuse(one)
        if loss not in ("mean", "sum"):
            raise BadInput(f"worker.distribute: loss is {loss!r}; accepted: 'mean', 'sum'")
        models = [one for one in given if isinstance(one, torch.nn.Module)]
        optimizers = [one for one in given if isinstance(one, torch.optim.Optimizer)]
        if isinstance(self._group, ServedLoop):
            if loss == "sum":
                raise BadInput("worker.distribute: loss is 'sum'; accepted with exchange=server: a mean over the batch")
            if self._distributed or (len(models), len(optimizers)) != (1, 1):
                raise BadInput("worker.distribute with exchange=server takes one model with its optimiser, once")
            self._distributed = True
            model = self._script.strategy.partition.part(models[0]).to(self.device)
            self._group.distribute(model, optimizers[0], passes)
        else:
            early = self._script.early_update if early_update is None else early_update
            for model in models:
                one = _optimizer_of(model, optimizers) if early else None
                self._distribute(model, self._group, passes, summed=loss == "sum", early=one)
        return parts[0] if len(parts) == 1 else parts

    def _distribute(
        self, model: nn.Module, whole: Group, passes: int, *, summed: bool, early: Optimizer | None
    ) -> None:
        if self._models and self._replicas_differ:
            raise BadInput(
                "worker.distribute was given a second model, or one again, and workers' parameters differ; accepted: "
                "one model, once, as torch.nn.ModuleList([first, second])"
            )
        known = next((one for one in self._models if one.model is model), None)
        if known is not None:
            known.again(early)
            return
        for name, parameter in model.named_parameters():
            if any(parameter in one for one in self._models):
                raise BadInput(
                    f"worker.distribute: {name} is a parameter of a model that is distributed already; accepted: both "
                    "models in one module, as torch.nn.ModuleList([first, second])"
                )
        self._script.strategy.partition.part(model).to(self.device)
        # what models send goes beside each other and beside your own calls, and ranks must not mix it up
        apart = (self._models or early is not None) and whole.size > 1
        group = whole.divided([list(range(whole.size))]) if apart else whole
        beside = whole.divided([list(range(whole.size))]) if apart and early is not None else group
        run = OwnRun(self._script.strategy, self._share, self._recorder, self._pulse)
        state = self._keeping.strategy_state()
        one = OwnModel(model, run, group, passes, state, summed=summed, early=early, beside=beside)
        one.restore_rank(self._keeping.replica(len(self._models)))
        self._models.append(one)
        if self._steps is None:
            periods = {"compare": self._script.compare_replicas, "look": self._script.histograms}
            self._steps = OwnSteps(self._models, whole, self._share, self._recorder, **periods)

    def clip_grad_norm_(
        self, parameters: nn.Module | Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0
    ) -> Tensor:
        """Between `backward` and `optimizer.step`: as torch.nn.utils.clip_grad_norm_, also with early_update.

        parameters: those of one model, or the model. Returns the norm before, a scalar. With early_update it waits for
        all gradients, and parameters are updated after that. Raises BadInput over servers, and SettingError for some
        of a model's parameters, or a step behind.
        """
        if isinstance(self._group, ServedLoop):
            raise BadInput("worker.clip_grad_norm_: servers update, and no gradients are here; accepted: allreduce")
        if isinstance(parameters, torch.nn.Module):
            parameters = parameters.parameters()
        given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        found = [model for model in self._models if any(one in model for one in given)]
        if len(found) != 1:
            raise BadInput(
                f"worker.clip_grad_norm_ was given parameters of {len(found)} distributed models; accepted: of one"
            )
        return found[0].clip(given, max_norm, norm_type)

    def _settle(self) -> None:
        for model in self._models:
            model.settle()

    def _follow(self) -> None:
        for model in self._models:
            model.follow()

    def feed(self, data: Any, batch_size: int | None = None, shuffle: bool | None = None) -> OwnFeed | ServedFeed:
        """This worker's share of `data`, batch by batch; each `for` over it is an epoch.

        data: a torch DataLoader, whose batch_size is that of all workers together; or a data set or any iterable of
        samples, with batch_size (and shuffle: a data set is, unless told otherwise); or an iterable of whole batches.
        Batches are what the loader's collate_fn makes of the share, on the worker's device. A loader with a
        DistributedSampler keeps its own sharding. The last batch of an epoch may be too small to give every worker a
        sample: one without goes through the loop with samples of another's, and its gradients count nothing. Raises
        BadInput, DataError and SettingError for what cannot be shared out.
        """
        if isinstance(self._group, ServedLoop):
            served = self._group.feed(data, batch_size, shuffle)
            self._keeping.follow(served)
            return served
        for (known, *how), feed in self._fed:  # one that is fed in each epoch goes on where it was
            if known is data and how == [batch_size, shuffle]:
                return feed
        among = Among(self.rank, self.world_size, self._script.seed, partial(of_first, together=self._together))
        feed = OwnFeed(shared(data, batch_size, shuffle, among), self._share, self._recorder, self.device, self._follow)
        self._fed.append(((data, batch_size, shuffle), feed))
        self._keeping.follow(feed)
        return feed

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes and prints what one worker is to."""
        return self.rank == 0

    def mean(self, value: Any) -> Any:
        """The mean of a tensor or number over all samples of the newest batch; all workers call it alike.

        Each worker's `value` is a mean over its share of the batch, a loss say, and counts as much as that has samples.
        """
        weight = self._group.weight if isinstance(self._group, ServedLoop) else self._share.weight
        with self._together("mean", _size(value)) as group:
            return together.total(value, group, weight)

    def sum(self, value: Any) -> Any:
        """The sum of a tensor or number over all workers; all call it alike."""
        with self._together("sum", _size(value)) as group:
            return together.total(value, group)

    def gather(self, value: Any) -> list[Any]:
        """What all workers give, by rank: tensors of one type and any shape, or numbers, text, lists and dicts."""
        with self._together("gather") as group:
            return together.gathered(value, group)

    def barrier(self) -> None:
        """Wait until all workers are here."""
        with self._recorder.called("worker.barrier"):
            self._peers("barrier").bulletin.share(f"barrier-{next(self._barriers)}", None)

    def evaluate(self, function: Callable[[Any], Any], data: Any, batch_size: int | None = None) -> Any:
        """The mean over all samples of `data` of what `function(batch)` gives; all workers call it, and find the same.

        data, batch_size: as of `feed`, each worker has its share, without shuffling. function: gives the mean over the
        batch that it is given, a number or a dictionary of some. Distributed models are in evaluation mode meanwhile.
        Over servers with workers that may come and go, whoever calls it measures all samples, and waits for nobody.
        Raises as `feed`.
        """
        agreeing = partial(self._together, "evaluate")
        with self._recorder.called("worker.evaluate"):
            group = self._peers("evaluate")
        among = Among(group.rank, group.size, self._script.seed, partial(of_first, together=self._together))
        held_out = shared(data, batch_size, None if batch_size is None else False, among)
        served = self._group.models if isinstance(self._group, ServedLoop) else []
        models = [*served, *(one.model for one in self._models)]
        with self._consensus("evaluate"):
            return together.evaluated(function, held_out, models, self.device, self._recorder, agreeing)

    @contextmanager
    def _consensus(self, called: str) -> Iterator[None]:
        """Lend each model what all its replicas are together, with all updates."""
        with ExitStack() as stack:
            if self._replicas_differ:
                with self._together(called):  # all are here: a sum of parameters must not meet another's step
                    pass
            for model in self._models:
                stack.enter_context(model.consensus())
            yield

    @property
    def _replicas_differ(self) -> bool:
        return self.world_size > 1 and not self._script.strategy.consistency.equal

    @contextmanager
    def _together(self, called: str, size: int = 0) -> Iterator[Group]:
        """Around what all workers do in this call: in a group of its own, so that it never mixes with a step's.

        size: of how many values, if these must be as many. Raises RanksDiffer if another worker makes another call.
        """
        with self._recorder.called(f"worker.{called}"):
            group = self._peers(called)
            together.require_same(called, size, group)
            yield group

    def _peers(self, called: str) -> Group:
        """Who makes this call, over connections that no step uses. Raises BadInput if nobody can."""
        whole = self._group
        if isinstance(whole, ServedLoop):
            return whole.peers(called)
        if self._apart is None:
            self._apart = whole.divided([list(range(whole.size))]) if whole.size > 1 else whole
        return self._apart

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs 0 to count - 1; in a resumed run, those that are left, beginning with the one it was in."""
        return self._keeping.epochs(count)

    def restore(self, **state: Any) -> dict[str, Any]:
        """In a resumed run, let `state` be as it was saved; call it once, right before the loop. Returns it by name.

        What has load_state_dict() (models, optimisers, schedules, scalers, averages) takes its state up; other values
        are only what is returned: `best = worker.restore(model=model, best=0.0)["best"]`. In a run that begins nothing
        changes. Random generators become as they were saved, too. Raises BadInput unless the names are those that
        `worker.save` was given.
        """
        found = self._keeping.restore(state)
        if isinstance(self._group, ServedLoop):
            self._group.saves = True
        for number, model in enumerate(self._models):
            model.restore_rank(self._keeping.replica(number))
        return found

    def save(self, **state: Any) -> None:
        """Write a checkpoint, from which `volary resume` goes on. All ranks call it after the same step.

        Called among the batches of an epoch, the run resumes at the next batch, else with the next epoch.

        state: what has state_dict(), tensors, numbers, text, and lists, tuples and dicts of these, under the names of
        `worker.restore`; of those, what rank 0 has is kept. Beside it, each rank keeps its random generators, where
        its feeds are, with `consistency: local` and `gossip` what its optimisers remember, and with `gossip` its own
        parameters: those in `state` are the mean of all workers'. A full disk is a warning of the run,
        and older checkpoints stay. Raises BadInput for what cannot be kept, and SettingError within a period of
        `local`.
        """
        if isinstance(self._group, ServedLoop):
            self._keeping.save(state, own_optimizers=self._group.updates_locally)
            return
        for model in self._models:
            model.period.refuse_save()
        with self._consensus("save"):
            replicas = [model.rank_state() for model in self._models]
            own_optimizers = any(model.period.updates for model in self._models)
            self._keeping.save(state, own_optimizers=own_optimizers, replicas=replicas)

    @property
    def outcome(self) -> Outcome:
        """How the run ended for this worker, once its loop was asked to end."""
        return self._group.outcome if isinstance(self._group, ServedLoop) else "stopped"

    def finish(self) -> None:
        """Volary calls this when your loop is over."""
        if isinstance(self._group, ServedLoop):
            self._group.finish()
        self._settle()

    def close(self) -> None:
        """Remove the hooks from all models."""
        if isinstance(self._group, ServedLoop):
            self._group.close()
        if self._steps is not None:
            self._steps.close()
        for model in self._models:
            model.close()

    def record(self, **metrics: float) -> None:
        """Write metrics of this moment into the run; those of rank 0 are kept."""
        if self.rank == 0:
            self._recorder.metrics({name: float(value) for name, value in metrics.items()})


def _checkpoints_of(group: Group | ServedLoop, recorder: Recorder, drafts: Drafts | None) -> LoopCheckpoints | None:
    if isinstance(group, ServedLoop):
        return group.checkpoints
    return None if drafts is None else RankCheckpoints(group, recorder, drafts)


def _size(value: Any) -> int:
    return value.numel() if isinstance(value, torch.Tensor) else 1


def _optimizer_of(model: nn.Module, optimizers: list[Optimizer]) -> Optimizer:
    """The one that updates it. Raises BadInput if there is none, or are several."""
    own = {id(one) for one in model.parameters()}
    found = [
        one for one in optimizers if any(id(part) in own for group in one.param_groups for part in group["params"])
    ]
    if len(found) != 1:
        raise BadInput(
            f"worker.distribute: early_update is true, and {len(found)} of the given optimisers update the model; "
            "accepted: one that does, in the same call"
        )
    return found[0]


def _refuse(given: Any) -> None:
    """Raise BadInput for what cannot be distributed, and say what can."""
    if isinstance(given, torch.optim.Optimizer):
        return
    if not isinstance(given, torch.nn.Module):
        more = "; worker.feed takes data" if isinstance(given, DataLoader) else ""
        raise BadInput(
            f"worker.distribute was given a {type(given).__name__}; accepted: torch modules and optimisers, and lists "
            f"of these{more}"
        )
    if lazy := [name for name, one in given.named_parameters() if torch.nn.parameter.is_lazy(one)]:
        raise BadInput(
            f"worker.distribute: {lazy[0]} has no shape yet; accepted: a model that was called once on a batch, which "
            "gives lazy layers their shapes, before its optimiser is made"
        )
