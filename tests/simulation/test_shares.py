"""Copies of shares, in simulated groups: whoever is lost at any point, those that are left have all of one step."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from volary.errors import PeerLost, WorkerLost
from volary.run.launch.members import GroupMembers
from volary.train.recovery.kept_state import KeptState
from volary.train.recovery.packed import unpacked
from volary.train.recovery.posted_shares import PostedShares, distance, holder
from volary.train.recovery.recovery_point import common_point

SEEDS = 60
EVENTS = 60  # of a group, at most, before somebody is lost
TOLD = ("post", "vote", "update")  # the events of a step


class Network:
    """Messages between places, in order. lost: of places that are gone, how many of their last messages never come."""

    def __init__(self) -> None:
        self.sent: dict[tuple[int, int], deque[torch.Tensor]] = {}
        self.cut = False

    def between(self, source: int, to: int) -> deque[torch.Tensor]:
        return self.sent.setdefault((source, to), deque())

    def of(self, place: int) -> Any:
        def send(values: torch.Tensor, to: int, tag: int) -> Any:
            self.between(place, to).append(values.clone())
            return SimpleNamespace(wait=lambda: None)

        def receive(values: torch.Tensor, source: int, tag: int) -> Any:
            def wait() -> None:
                queue = self.between(source, place)
                if not queue:
                    assert self.cut, "whoever waits has been sent it"
                    raise PeerLost("cut")
                values.copy_(queue.popleft())

            return SimpleNamespace(wait=wait)

        return SimpleNamespace(send=send, receive=receive)


@dataclass
class Rank:
    """A worker: `value` is its share, which each update changes. done: its updates."""

    rank: int
    done: int = 0
    kept: KeptState | None = None
    posted: Any = None
    events: int = 0  # in this group

    def state(self) -> dict[str, Any]:
        size = 40 if self.done < 2 else 90 + self.done  # optimisers remember more after their first steps
        return {"rank": self.rank, "done": self.done, "values": torch.full((size,), float(self.done))}


@dataclass
class Played:
    """A run of several groups, one after the other. forgets, hurries: mistakes: only the newest point is kept; nobody
    waits for copies before it votes.
    """

    draw: Random
    machines: int = 1
    forgets: bool = False
    hurries: bool = False
    repeated: list[int] = field(default_factory=list)
    refused: int = 0

    def run(self, ranks: int) -> None:
        workers = [Rank(rank) for rank in range(ranks)]
        members = GroupMembers(tuple(range(ranks)))
        while len(workers) > 1:
            gone = self.group(workers, members)
            left = [one for one in workers if one.rank not in gone]
            if not left:
                return
            furthest = max(one.done for one in workers)
            offers = {one.rank: one.kept.offers() if one.kept else [] for one in left}
            try:
                point = common_point(offers)
            except WorkerLost as problem:
                assert self.neighbours(members, gone), f"{gone} of {members} are no neighbours: {problem}"
                self.refused += 1
                return
            if point is None:
                assert furthest == 0 or self.neighbours(members, gone), "a step was finished"
                return
            self.repeated.append(furthest - point.step)
            assert self.repeated[-1] <= 1, "more than one finished step is made again"
            shares = {}
            for one in left:
                one.kept = one.kept.at(point) if one.kept else KeptState.nothing()
                shares |= {rank: unpacked(values) for rank, values in one.kept.shares.items()}
                members_then = one.kept.members.ranks or members.ranks
            assert set(shares) == set(members_then)
            for rank, share in shares.items():
                assert (share["rank"], share["done"]) == (rank, point.step), "a share of another step"
                assert (share["values"] == point.step).all()
            for one in left:
                one.done = point.step
            workers, members = left, GroupMembers(tuple(one.rank for one in left), members.number + 1)

    def neighbours(self, members: GroupMembers, gone: set[int]) -> bool:
        """Whether a rank is gone with whoever had its copy, in this group or the one before."""
        ranks = members.ranks
        after = [holder(place, len(ranks), self.distance, ()) for place in range(len(ranks))]
        return members.number > 0 or any(
            ranks[place] in gone and ranks[to] in gone for place, to in enumerate(after) if to is not None
        )

    def group(self, workers: list[Rank], members: GroupMembers) -> set[int]:
        """Play one group until somebody is lost; who it is."""
        network, size = Network(), len(workers)
        machines = [f"machine {place * self.machines // size}" for place in range(size)]
        self.distance = distance(machines)
        for place, one in enumerate(workers):
            bulletin = SimpleNamespace(share=lambda _, __: machines)
            group: Any = SimpleNamespace(rank=place, size=size, bulletin=bulletin)
            one.posted, one.events = PostedShares(group, network.of(place), one), 0  # type: ignore[arg-type]
            one.posted._newest = one.kept
        for _ in range(self.draw.randrange(EVENTS)):
            able = [one for one in workers if self.can(one, workers)]
            self.play(self.draw.choice(able), members)
        gone = set(self.draw.sample(members.ranks, self.draw.choice([1, 1, 1, 2])))
        network.cut = True
        for (source, _), queue in network.sent.items():
            if members.ranks[source] in gone:
                for _ in range(self.draw.randrange(len(queue) + 1)):
                    queue.pop()
        for one in workers:
            one.kept = None if one.rank in gone else one.posted.kept()
        return gone

    def can(self, one: Rank, workers: list[Rank]) -> bool:
        """Whether its next event can happen: it votes once its copies have come, and updates when all have voted."""
        what, step = TOLD[one.events % 3], one.events // 3
        if what == "vote" and not self.hurries:
            return all(other.events > 3 * step for other in workers)
        return what != "update" or all(other.events > 3 * step + 1 for other in workers)

    def play(self, one: Rank, members: GroupMembers) -> None:
        what = TOLD[one.events % 3]
        one.events += 1
        if what == "post":
            kept = replace(KeptState.nothing(), step=one.done, members=members)
            one.posted.post(kept)
            if self.forgets:
                one.posted._newest = replace(one.posted._newest, former=None)
        elif what == "vote" and not self.hurries:
            one.posted.await_all()
        elif what == "update":
            one.done += 1


@pytest.mark.parametrize("machines", [1, 2])
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_whoever_is_lost_at_any_point_the_others_have_all_shares_of_the_newest_step_or_the_one_before(ranks, machines):
    played = []
    for seed in range(SEEDS):
        one = Played(Random(seed), machines)
        one.run(ranks)
        played.append(one)
    assert {step for one in played for step in one.repeated} == {0, 1}, "both are come to"
    assert ranks == 2 or any(one.refused for one in played), "neighbours are lost as well"


@pytest.mark.parametrize("mistake", ["forgets", "hurries"])
def test_mistakes_are_found(mistake):
    with pytest.raises(AssertionError, match=r"made again|are no neighbours|was finished|another step"):
        for seed in range(SEEDS):
            Played(Random(seed), **{mistake: True}).run(4)


def test_copies_are_on_other_machines_where_that_can_be():
    assert distance(["a"]) == distance(["a", "a", "a"]) == 1
    assert distance(["a", "a", "b", "b"]) == 2
    assert distance(["a", "b", "a", "b"]) == 1
    assert holder(3, 4, 1, ()) == 0
    assert holder(1, 4, 1, [2, 3]) == 0
    assert holder(0, 2, 1, [1]) is None
