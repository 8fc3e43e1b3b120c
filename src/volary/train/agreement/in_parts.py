"""A replica that several workers hold together, each its part: to all other replicas they are one."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from volary.comm.groups.blocking import gather
from volary.errors import RanksDiffer
from volary.train.agreement.votes import Vote
from volary.train.replica import Voting

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.comm.groups.group import Group
    from volary.comm.groups.layer_group import PartGroup
    from volary.run.database.traffic import Traffic
    from volary.train.agreement.first_state import DeferredTensors
    from volary.train.agreement.votes import Agreed
    from volary.train.coordinator import LearnTask
    from volary.train.state.stateful import RankState


APART = 1e-3  # of a loss: more than rounding on processors that differ


class InParts(Voting):
    """See `volary.train.replica.Voting`. `parts` are the workers that hold the network together.

    whole: what exchanges with the workers that have the same part as this one. as_one: makes the vote of those of
    `parts` who are one to all other replicas; None: they are not, and each votes.
    """

    def __init__(self, whole: Voting, parts: PartGroup, as_one: Callable[[Vote, Group], Vote] | None = None) -> None:
        self._whole, self._parts, self._as_one = whole, parts, as_one
        self._apart = False  # those of `parts` are at different places of their loops

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        return (*self._whole.traffic, *self._parts.traffic)

    @property
    def own(self) -> Mapping[str, RankState]:
        return self._whole.own

    def begin(self, task: LearnTask) -> None:
        self._whole.begin(task)

    def update(self) -> None:
        self._whole.update()

    def vote_own(self, vote: Vote, divisor: float) -> None:
        self._whole.vote_own(vote, divisor)

    def update_own(self, gradients: Mapping[nn.Parameter, Tensor], scale: float) -> None:
        self._whole.update_own(gradients, scale)

    def vote(self, vote: Vote) -> None:
        """Vote as the replica does."""
        if self._as_one is not None:
            own, vote = vote.place, self._as_one(vote, self._parts.group)
            self._apart = vote.place != own * self._parts.group.size
        self._whole.vote(vote)

    def agree(self) -> Agreed:
        agreed = self._whole.agree()
        return replace(agreed, apart=agreed.apart or self._apart)

    def apply(self, scale: float = 1.0) -> None:
        self._whole.apply(scale)

    def gradient_norm(self, kind: float) -> Tensor:
        return self._whole.gradient_norm(kind)

    def leave_out(self) -> None:
        self._whole.leave_out()

    def drop(self, cleared: Container[int]) -> None:
        self._whole.drop(cleared)

    def start(self, late: DeferredTensors) -> None:
        """Give all that have the same part what the first of them has."""
        self._whole.start(late)

    @contextmanager
    def consensus(self) -> Iterator[None]:
        with self._whole.consensus():
            yield

    def take_own(self) -> None:
        self._whole.take_own()

    def finish(self) -> None:
        self._whole.finish()

    def await_all(self) -> None:
        self._whole.await_all()

    def settle(self) -> None:
        self._whole.settle()

    def close(self) -> None:
        self._whole.close()


def one_vote(vote: Vote, parts: Group) -> Vote:
    """The vote of the workers of a replica who learn from the same samples: of the first, but ending if any of them is
    to end. A collective call.

    Its place is the sum of theirs. Raises RanksDiffer if they are at the same place, and their losses differ: then
    something is computed of a part as if it were the whole.
    """
    fields = [vote.loss, vote.ending, vote.step_s, vote.requests, vote.place]
    everybody = gather(torch.tensor([float(one) for one in fields], dtype=torch.float64), parts)
    losses, ending, seconds, requests, places = everybody.unbind(1)
    finite = bool(torch.isfinite(losses).all())
    if (places == places[0]).all():
        require_equal(losses)
    agreed = {
        "loss": float(losses[0]) if finite else math.nan,
        "ending": bool(ending.any()),
        "step_s": float(seconds.mean()),
        "place": int(places.sum()),
    }
    return Vote(**{**vars(vote), **agreed, "requests": int(requests.max())})


def vote_of_group(vote: Vote, parts: Group) -> Vote:
    """The vote of the workers of a replica that have samples of their own. A collective call.

    Its place is the sum of theirs.
    """
    own = [
        vote.loss,
        vote.busy,
        vote.ending,
        vote.lost,
        vote.step_s,
        vote.weight,
        vote.counted,
        vote.place,
        vote.requests,
    ]
    everybody = gather(torch.tensor([float(one) for one in own], dtype=torch.float64), parts)
    loss, busy, ending, lost, seconds, weight, counted, place, _ = everybody.sum(0).tolist()
    return replace(
        vote,
        loss=loss if math.isfinite(loss) else math.nan,
        busy=busy > 0,
        ending=ending > 0,
        lost=round(lost),
        step_s=seconds / parts.size,
        weight=weight,
        counted=counted,
        place=round(place),
        requests=int(everybody[:, -1].max()),
    )


def require_equal(losses: Tensor) -> None:
    """Raise RanksDiffer if the losses (workers,) of those that hold one replica differ, and all are numbers."""
    if torch.isfinite(losses).all() and float(losses.max() - losses.min()) > APART * float(losses.abs().max()):
        raise RanksDiffer(
            f"the workers that hold parts of one network have the losses {', '.join(f'{one:g}' for one in losses)}; "
            "they should be equal: some code reads the weight of a layer that is cut, which is to be left out of "
            "strategy.partition.plan, or draws random numbers that differ between workers"
        )
