"""Copies that workers update: no change is lost, counts twice, or is anywhere too early, in every schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from simulation._averaging import LAYERS, Part, Run, Seen
from simulation._seeds import every
from volary.consistency._base import Consistency
from volary.consistency.elastic import Elastic
from volary.consistency.gossip import Gossip
from volary.consistency.local import LocalSgd
from volary.exchange.gradients.contributions import PushedPulls
from volary.train.agreement import lent
from volary.train.strategies.averaging.eager_guess import EagerGuess
from volary.train.strategies.averaging.fragment import Fragment
from volary.train.strategies.averaging.fragmented_steps import FragmentedSteps
from volary.train.strategies.averaging.gossip_steps import GossipSteps
from volary.train.strategies.averaging.local_steps import LocalSteps
from volary.train.strategies.averaging.rank_parameters import RankParameters

SCHEDULES, MANY, WITHIN = 10, 300, 60
ROUNDING = 1e-12
# by name: the model that a seed chooses
MODELS: dict[str, Callable[[Random], Consistency]] = {
    "local": lambda random: LocalSgd(period=random.randint(1, 4)),
    "fragments": lambda random: LocalSgd(period=6 * random.randint(1, 2), fragments=random.choice((2, LAYERS))),
    "streaming": lambda random: LocalSgd(period=2 * random.randint(1, 3), fragments=2, alpha=random.choice((0.0, 0.5))),
    "eager": lambda random: LocalSgd(period=2 * random.randint(1, 3), fragments=2, eager=True),
    "gossip": lambda random: Gossip(
        graph=random.choice(("exponential", "ring", "random", "pairs")), period=random.randint(1, 3)
    ),
    "noloco": lambda random: Gossip(graph="pairs", period=random.randint(1, 3), momentum=0.5, lr=0.75, gamma=1.0),
    "elastic": lambda random: Elastic(period=random.randint(1, 3)),
}
BEHIND = {"local": (False, True), "gossip": (False, True), "streaming": (True,), "eager": (True,)}  # else not


@pytest.fixture(autouse=True)
def simulated_sums(monkeypatch):
    monkeypatch.setattr(lent, "add_up", lambda values, group: group.add_up(values))


def run_of(name: str, seed: int) -> Run:
    random = Random(seed)
    behind = random.choice(BEHIND.get(name, (False,)))
    return Run(MODELS[name](random), random, workers=random.randint(2, 4), behind=behind).play()


def done(run: Run, seen: Seen, of: Callable[[int, Part, int], float]) -> Tensor:
    """(workers, steps): `of` part number, part and rank, of each update until then; 0 of all else."""
    found = torch.zeros(run.workers, run.steps, dtype=torch.float64)
    for number, part in enumerate(run.parts[: seen.parts]):
        for rank in range(run.workers):
            found[rank, part.updates(rank)] = of(number, part, rank)
    return found


def is_each(value: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(value, expected, rtol=0, atol=ROUNDING)


def all_are_their_mean(run: Run, seen: Seen) -> None:
    """Each change counts by its share of a period's samples, but for those of a period that is left out."""
    shares = done(run, seen, lambda _, part, rank: 0.0 if part.bad is not None else part.weight(rank))
    for copy in (seen.model, *seen.own):
        for layer in copy:
            is_each(layer, shares)


def nothing_is_lost_between_neighbours(run: Run, seen: Seen) -> None:
    """All copies together have each update once, and so has their mean, the model."""
    once = done(run, seen, lambda *_: 1.0)
    for layer in range(LAYERS):
        is_each(torch.stack([copy[layer] for copy in seen.own]).sum(0), once)
        is_each(seen.model[layer], once / run.workers)


def the_mean_goes_as_diloco(run: Run, seen: Seen) -> None:
    """The mean of all copies steps by what they change on average; what is left out leaves with the next."""
    mean = torch.zeros(run.workers, run.steps, dtype=torch.float64)
    step, changed = torch.zeros_like(mean), torch.zeros_like(mean)
    for part in run.parts[: seen.parts]:
        for rank in range(run.workers):
            changed[rank, part.updates(rank)] = 1 / run.workers
        if part.bad is None:
            step = 0.5 * step + 0.75 * changed
            mean, changed = mean + step, torch.zeros_like(mean)
    for layer in seen.model:
        is_each(layer, mean + changed)


def what_pulls_the_centre_leaves_the_worker(run: Run, seen: Seen) -> None:
    """The centre and all copies together have each update once."""
    for layer in range(LAYERS):
        together = torch.stack([seen.model[layer], *(copy[layer] for copy in seen.own)]).sum(0)
        is_each(together, done(run, seen, lambda *_: 1.0))


def each_fragment_in_its_turn(run: Run, seen: Seen) -> None:
    """A change of a fragment counts by the share of the part with which it has left; those of others wait."""
    turns = run.model.fragments
    for layer, value in enumerate(seen.model):
        fragment = layer % turns
        leaves = [n for n in range(seen.parts) if n % turns == fragment and run.parts[n].bad is None]

        def share(number: int, part: Part, rank: int, leaves: list[int] = leaves) -> float:
            left = next((n for n in leaves if n >= number), None)
            return 0.0 if left is None else run.parts[left].weight(rank)

        is_each(value, done(run, seen, share))


def no_fragment_is_ahead_of_its_turn(run: Run, seen: Seen) -> None:
    """Under way or not, what all have of a fragment is of nothing that came after it left."""
    turns = run.model.fragments
    for layer, value in enumerate(seen.model):
        left = [n for n in range(seen.parts) if n % turns == layer % turns and run.parts[n].bad is None]
        since = done(run, seen, lambda number, *_, left=left: float(not left or number > left[-1]))
        assert not (value * since).any(), f"layer {layer} has changes that have not left"
        if left:
            # of the part with which it left nothing had moved on before it was taken over
            newest = done(run, seen, lambda n, part, rank, left=left: part.weight(rank) * (n == left[-1]))
            is_each(value * (newest > 0), newest)


def each_counts_its_own_at_once(run: Run, seen: Seen) -> None:
    """The mean of what workers take a fragment to be has what others have done of it once it has its next turn."""
    turns = run.model.fragments
    for layer, value in enumerate(seen.model):
        mine = [n for n in range(seen.parts) if n % turns == layer % turns]
        leaves = [n for n in mine if run.parts[n].bad is None]

        def share(number: int, part: Part, rank: int, leaves: list[int] = leaves) -> float:
            left = next((n for n in leaves if n >= number), None)
            if left is None:
                return 0.0
            return run.parts[left].weight(rank) * (1.0 if left != leaves[-1] else 1 / run.workers)

        is_each(value, done(run, seen, share))


PROMISES: dict[str, Callable[[Run, Seen], None]] = {
    "local": all_are_their_mean,
    "fragments": each_fragment_in_its_turn,
    "streaming": no_fragment_is_ahead_of_its_turn,
    "eager": each_counts_its_own_at_once,
    "gossip": nothing_is_lost_between_neighbours,
    "noloco": the_mean_goes_as_diloco,
    "elastic": what_pulls_the_centre_leaves_the_worker,
}


def holds(name: str, seed: int) -> None:
    run = run_of(name, seed)
    for seen in run.seen:
        PROMISES[name](run, seen)


@pytest.mark.parametrize("name", MODELS)
def test_what_workers_have_done_is_where_it_belongs_in_10_schedules(name):
    every(range(SCHEDULES), lambda seed: holds(name, seed))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_what_workers_have_done_is_where_it_belongs_in_300_schedules(name):
    every(range(SCHEDULES, SCHEDULES + MANY), lambda seed: holds(name, seed))


@dataclass(frozen=True)
class Mistake:
    """A method of `kind` that does something else. model: whose promise it breaks."""

    model: str
    kind: type
    method: str
    instead: Callable[..., Any]


@torch.no_grad()
def takes_what_travelled_alone(self: GossipSteps) -> None:
    if self._under_way:
        self.contribution.keeper.settle()
        for slot in self.contribution.slots:
            slot.parameter.copy_(slot.agreed)
        self._under_way = False


def draws_for_itself(self: Gossip, step: int, worker: int, workers: int) -> Sequence[int]:
    return [(worker + 1 + (step + worker) % (workers - 1)) % workers]


def passes_no_turn_that_is_left_out(self: FragmentedSteps) -> None:
    self._fragments[self._next].leave_out()
    self._given = None


def does_not_wait_for_sums(self: Fragment) -> None:
    if self._under_way is not None:
        for slot in self.contribution.slots:
            self._step(slot.name, replace(self._under_way, sums=[slot.agreed]))
        self._under_way = None


@torch.no_grad()
def forgets_what_came_since(self: LocalSteps) -> None:
    return None


def stays_where_it_was_pulled(self: PushedPulls) -> None:
    self._pull, self._followed = {}, True


def begins_anew(self: RankParameters, parameters: Mapping[str, Tensor]) -> None:
    self.values = {}


def guesses_its_own_alone(self: EagerGuess, name: str, agreed: Tensor, scale: float) -> None:
    return None


MISTAKES = {
    "what a step changes while parameters travel is lost": Mistake(
        "gossip", GossipSteps, "_take_mean", takes_what_travelled_alone
    ),
    "workers draw neighbours that do not draw them": Mistake("gossip", Gossip, "partners", draws_for_itself),
    "a turn that is left out is repeated": Mistake(
        "fragments", FragmentedSteps, "leave_out", passes_no_turn_that_is_left_out
    ),
    "a fragment is taken over before its sums have come": Mistake(
        "streaming", Fragment, "settle", does_not_wait_for_sums
    ),
    "what others did in the turn before is forgotten": Mistake("eager", EagerGuess, "arrive", guesses_its_own_alone),
    "what was computed while a sum travelled is lost": Mistake(
        "local", LocalSteps, "_changed", forgets_what_came_since
    ),
    "a worker follows a pull that the centre does not": Mistake(
        "elastic", PushedPulls, "forget", stays_where_it_was_pulled
    ),
    "a resumed worker begins with the mean": Mistake("elastic", RankParameters, "give_back", begins_anew),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name):
    mistake = MISTAKES[name]
    with patch.object(mistake.kind, mistake.method, mistake.instead):
        assert any(is_broken(mistake.model, seed) for seed in range(WITHIN)), f"not in {WITHIN} schedules"


def is_broken(model: str, seed: int) -> bool:
    try:
        holds(model, seed)
    except AssertionError:
        return True
    return False
