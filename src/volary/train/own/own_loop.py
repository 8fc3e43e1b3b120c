"""For people with a training loop of their own: what `volary.launch` hands to their function."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from volary.data.sharing.among import Among
from volary.data.sharing.shared import shared
from volary.errors import BadInput
from volary.train.member.compare import compare, shape_facts
from volary.train.own.keeping import Keeping
from volary.train.own.own_feed import OwnFeed, of_first
from volary.train.own.own_step import OwnStep, Share
from volary.train.own.served_loop import ServedLoop
from volary.train.run_session import share_buffers
from volary.train.state.seeds import seed_all
from volary.train.strategies.first_state import DeferredTensors
from volary.train.strategies.strategy import build_strategy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn
    from torch.optim import Optimizer

    from volary.comm.groups.group import Group
    from volary.run.checkpoints import Checkpoints
    from volary.session.script import Script
    from volary.train.coordinator import Outcome
    from volary.train.member.pulse import EndWatch
    from volary.train.own.served_feed import ServedFeed
    from volary.train.recording.recorder import Recorder
    from volary.train.replica import Voting


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
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self.rank, self.world_size, self.local_rank = group.rank, group.size, local_rank
        self.device = device
        self._script, self._group, self._recorder, self._pulse = script, group, recorder, pulse
        self._share = Share(1 / self.world_size)
        self._distributed = False
        self._strategy: Voting | None = None
        self._keeping = Keeping(group.alone if isinstance(group, ServedLoop) else group, recorder, checkpoints)
        self._fed: list[tuple[tuple[Any, int | None, bool | None], OwnFeed]] = []

    def distribute(self, model: nn.Module, optimizer: Optimizer, passes: int = 1) -> tuple[nn.Module, Optimizer]:
        """Make `model` one of the run's replicas; returns both arguments, for use as before.

        Parameters and buffers become rank 0's, buffers again with each step. From now on gradients leave as
        `loss.backward()` makes them, and when it returns they are the mean over all workers' samples: clip or log them
        as before. passes: calls of `backward` before each `optimizer.step()`, if you accumulate gradients; the last one
        waits for the others. Raises BadInput for what cannot be distributed, RanksDiffer if shapes differ, and Stopped
        out of `optimizer.step()` when the run is asked to end.
        """
        if self._distributed:
            raise BadInput("worker.distribute was called twice; a run has one model and one optimiser")
        _refuse(model, optimizer)
        self._distributed = True
        model = self._script.strategy.partition.part(model).to(self.device)
        if isinstance(self._group, ServedLoop):
            self._group.distribute(model, optimizer, passes)
            return model, optimizer
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
            carried=self._keeping.strategy_state(),
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
            return self._group.feed(data, batch_size, shuffle)
        for (known, *how), feed in self._fed:  # one that is fed in each epoch goes on where it was
            if known is data and how == [batch_size, shuffle]:
                return feed
        among = Among(self.rank, self.world_size, self._script.seed, partial(of_first, group=self._group))
        feed = OwnFeed(shared(data, batch_size, shuffle, among), self._share, self._recorder, self.device)
        self._fed.append(((data, batch_size, shuffle), feed))
        self._keeping.follow(feed)
        return feed

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
        self._refuse_servers("restore")
        return self._keeping.restore(state)

    def save(self, **state: Any) -> None:
        """Write a checkpoint, from which `volary resume` goes on. All ranks call it after the same step.

        Called among the batches of an epoch, the run resumes at the next batch, else with the next epoch.

        state: what has state_dict(), tensors, numbers, text, and lists, tuples and dicts of these, under the names of
        `worker.restore`; of those, what rank 0 has is kept. Beside it, each rank keeps its random generators, and
        where its feeds are. A full disk is a warning of the run, and older checkpoints stay. Raises BadInput for what
        cannot be kept.
        """
        self._refuse_servers("save")
        self._keeping.save(state)

    def _refuse_servers(self, called: str) -> None:
        if isinstance(self._group, ServedLoop):
            raise BadInput(
                f"worker.{called} was called, and a loop over servers cannot be resumed; accepted: exchange=allreduce, "
                "or no call of it: servers write the network into the run's last checkpoint"
            )

    @property
    def outcome(self) -> Outcome:
        """How the run ended for this worker, once its loop was asked to end."""
        return self._group.outcome if isinstance(self._group, ServedLoop) else "stopped"

    def finish(self) -> None:
        """Volary calls this when your loop is over."""
        if isinstance(self._group, ServedLoop):
            self._group.finish()

    def close(self) -> None:
        """Let go of the model."""
        if isinstance(self._group, ServedLoop):
            self._group.close()
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
