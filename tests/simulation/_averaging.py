"""Workers that update their own copies, simulated: what is in a copy says of which updates it is made.

An update of a worker in a step adds 1 to a value that is its own, in each layer. So a mean, a sum or a pull of copies
has at that value how much of the update is in it, and what is lost, doubled or too old can be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from math import nan
from random import Random
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from simulation._sums import Rank, Turns
from volary.consistency._base import Consistency, Push
from volary.exchange.allreduce import AllReduce
from volary.session.spec import Strategy
from volary.train.agreement.first_state import DeferredTensors
from volary.train.agreement.votes import Vote
from volary.train.coordinator import LearnTask
from volary.train.strategies.averaging import build
from volary.train.strategies.contribution import StrategySettings
from volary.train.strategies.step_settings import StepSettings
from volary.train.strategies.strategy_state import StrategyState

LAYERS = 3


@dataclass(frozen=True)
class Part:
    """The steps before one exchange. first: of them. samples: of each step, by rank. bad: the rank whose last loss
    is no number, if any. resumed: after it the run is saved, ends, and is resumed.
    """

    first: int
    samples: Sequence[Sequence[int]]
    bad: int | None
    resumed: bool

    @property
    def steps(self) -> range:
        return range(self.first, self.first + len(self.samples))

    def updates(self, rank: int) -> list[int]:
        """The steps in which a worker updates its copy."""
        last = self.steps[-1]
        return [
            step
            for step, each in zip(self.steps, self.samples, strict=True)
            if each[rank] and not (step == last and rank == self.bad)
        ]

    def weight(self, rank: int) -> float:
        """The share of all samples that a worker has learnt from."""
        mine = sum(each[rank] for each in self.samples)
        return mine / sum(map(sum, self.samples))


@dataclass(frozen=True)
class Seen:
    """After `parts` parts, when all that was under way has come. model: as it is evaluated and saved. own: by rank.

    Each by layer, (workers, steps): how much is in it of what each worker did in each step.
    """

    parts: int
    model: Sequence[Tensor]
    own: Sequence[Sequence[Tensor]]


class Network(nn.Module):
    """Layers of a parameter each, which is (workers * steps,)."""

    def __init__(self, workers: int, steps: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Module() for _ in range(LAYERS))
        for layer in self.layers:
            layer.values = nn.Parameter(torch.zeros(workers * steps, dtype=torch.float64))

    def copied(self, workers: int) -> list[Tensor]:
        return [layer.values.detach().clone().view(workers, -1) for layer in self.layers]


class Recorder:
    """See `volary.train.recording.recorder.Recorder`: keeps nothing."""

    step = 0
    spans = SimpleNamespace(recording=False)

    def waiting(self) -> Any:
        return nullcontext()

    def enter(self, phase: str) -> None:
        return

    def moved(self) -> None:
        return

    def note(self, **facts: Any) -> None:
        return

    def event(self, kind: str, **facts: Any) -> None:
        return


@dataclass
class Update:
    """See `volary.train.update.whole.WholeUpdate`. at: the value that is of this worker's step."""

    module: Network
    at: int = 0

    def apply(self, step: int) -> None:
        with torch.no_grad():
            for layer in self.module.layers:
                layer.values[self.at] += 1

    def forget(self) -> None:
        return


class Run:
    """A run of `workers` with a model, by which the seed decides all else."""

    def __init__(self, model: Consistency, random: Random, *, workers: int, behind: bool) -> None:
        self.model, self.workers, self._random, self._behind = model, workers, random, behind
        self.parts = self._drawn()
        self.seen: list[Seen] = []
        self._states: dict[int, tuple[dict[str, Tensor], Any]] = {}

    def play(self) -> Run:
        """Raises AssertionError if it does not come to its end."""
        first = 0
        for number, part in enumerate(self.parts):
            if part.resumed or part is self.parts[-1]:
                self._train(self.parts[first : number + 1])
                first = number + 1
        return self

    @property
    def steps(self) -> int:
        return self.parts[-1].steps.stop

    def _drawn(self) -> list[Part]:
        parts, step, random = [], 0, self._random
        for _ in range(random.randint(3, 8)):
            count = 1  # an epoch may end a part early
            while self.model.at(count - 1, 0.0, step).push is Push.NOTHING and random.random() < 0.9:
                count += 1
            samples = [self._shares() for _ in range(count)]
            bad = random.randrange(self.workers) if random.random() < 0.2 else None
            if bad is not None:
                samples[-1][bad] = max(1, samples[-1][bad])
            parts.append(Part(step, samples, bad, random.random() < 0.2))
            step += count
        return parts

    def _shares(self) -> list[int]:
        shares = [self._random.choice((0, 1, 2, 2)) for _ in range(self.workers)]
        return shares if any(shares) else [1] * self.workers

    def _train(self, parts: Sequence[Part]) -> None:
        turns, board = Turns(self._random), {}
        ranks = [Rank(turns, rank, self.workers, board, self._behind) for rank in range(self.workers)]
        turns.play([partial(self._work, one, parts) for one in ranks])

    def _work(self, group: Rank, parts: Sequence[Part]) -> None:
        """The life of a worker, as of `volary.train.loop` and `volary.train.lockstep.learning`."""
        rank, module = group.rank, Network(self.workers, self.steps)
        update, recorder = Update(module), Recorder()
        saved, own = self._states.get(rank, ({}, None))
        if saved:
            module.load_state_dict(saved)
        strategy = self._strategy(group, module, recorder, update)
        if own is not None:
            for name, state in strategy.own.items():
                state.restore_rank([own[name]])
        strategy.start(DeferredTensors())
        for number, part in enumerate(parts):
            strategy.begin(LearnTask(iter(()), part.first, 0, 0))
            for step in part.steps:
                if step in part.updates(rank):
                    update.at = rank * self.steps + step
                    strategy.update()
            lost = nan if rank == part.bad else 0.0
            strategy.vote(Vote(lost, busy=True, ending=False, weight=part.weight(rank)))
            agreed = strategy.agree()
            strategy.leave_out() if agreed.not_finite else strategy.apply()
            recorder.step = part.steps.stop
            if part.resumed or group.share("looks", self._random.random() < 0.3)[0] or number + 1 == len(parts):
                self._look(group, strategy, module, part)
        strategy.close()

    def _look(self, group: Rank, strategy: Any, module: Network, part: Part) -> None:
        """Let all see what all have, and keep what a checkpoint would have."""
        strategy.settle()
        own = module.copied(self.workers)
        with strategy.consensus():
            model = module.copied(self.workers)
            states = {name: _kept(state.rank_state()) for name, state in strategy.own.items()}
            if group.share("states", None):
                self._states[group.rank] = _kept(module.state_dict()), states
        everybody = group.share("own", own)
        if group.leads:
            self.seen.append(Seen(self.parts.index(part) + 1, model, everybody))
        group.share("seen", None)

    def _strategy(self, group: Rank, module: Network, recorder: Recorder, update: Update) -> Any:
        strategy = Strategy(
            workers=self.workers,
            consistency=self.model,
            exchange=AllReduce(behind=self._behind),
            bucket_mb=1e-3,
        )
        settings = StrategySettings(strategy, module, recorder, group, StrategyState(), False, StepSettings())
        if self.model.pushes is Push.PARAMETERS:
            return build.gossip(settings, group, update)
        if (pull := self.model.pull(self.workers)) is not None:
            return build.elastic(settings, {}, group, update, pull)
        if self.model.fragments > 1:
            return build.fragmented(settings, {}, group, update)
        return build.local(settings, {}, group, update)


def _kept(state: Any) -> Any:
    if isinstance(state, Mapping):
        return {name: _kept(one) for name, one in state.items()}
    return state.clone() if isinstance(state, Tensor) else state
