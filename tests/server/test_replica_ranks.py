"""Workers that hold a replica together, before the roster: one of them asks, all are told, and all have to be done."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from server._play import Play
from volary.comm.control.errors import BadMessage
from volary.comm.control.service import CLOSE
from volary.server.protocol.from_members import Ask, Computed, Done, Evaluated, Leave, Saved
from volary.server.protocol.hello import WorkerHello
from volary.server.protocol.to_members import Close, End, EvaluatePiece, Learn, Save, Welcome
from volary.server.roster.replica_ranks import ReplicaRanks

HERE = 100  # connections of workers are numbered from here on, as ranks are


class Ranks:
    """A roster of `replicas`, each of two ranks. told: what each rank, and each server, heard."""

    def __init__(self, name: str = "bsp", replicas: int = 2, **more: Any) -> None:
        self.play = Play(name, workers=replicas, here=False, each=2, **more)
        self.members = ReplicaRanks(self.play.roster, 2)
        self.told: dict[int, list[Any]] = {}
        self.residuals, self.validation = bool(more.get("residuals")), 4 * ("evaluate_every" in more)
        self.hear(self.members.opened(1000, {"is": "server", "number": 0, "host": "here", "port": 1, "pid": 1}, 0.0))

    def hear(self, replies: Any) -> None:
        for peer, message in replies:
            self.told.setdefault(peer - HERE if peer < 1000 else peer, []).append(message)

    def come(self, *ranks: int) -> Ranks:
        for rank in ranks:
            hello = WorkerHello(rank, {}, 32, self.validation, "accuracy", True, self.residuals and rank == 1)
            self.hear(self.members.opened(HERE + rank, msgspec.to_builtins(hello), 0.0))
        return self

    def say(self, rank: int, message: Any) -> None:
        self.hear(self.members.received(HERE + rank, msgspec.to_builtins(message), 0.0))

    def heard(self, rank: int, kind: type) -> list[Any]:
        return [one for one in self.told.get(rank, []) if isinstance(one, kind)]


def test_a_replica_is_here_once_all_its_ranks_are_and_all_of_them_hear_what_is_next():
    ranks = Ranks().come(0, 2, 3)
    assert not ranks.heard(0, Welcome) and ranks.heard(2, Welcome) == ranks.heard(3, Welcome)
    assert ranks.play.roster.awaited == ["replica 1"]
    ranks.come(1)
    ranks.say(0, Ask())
    assert ranks.heard(0, Learn) == ranks.heard(1, Learn) != [] == ranks.heard(2, Learn)
    ranks.come(1)
    assert ranks.told[1][-2:] == [End("rank 1 was here before"), CLOSE]


def test_a_contribution_is_done_once_all_ranks_of_its_replica_have_said_so():
    ranks = Ranks(replicas=1).come(0, 1)
    ranks.say(0, Ask())
    ranks.say(0, Computed(0, 1.0, finite=True, waits=True))
    ranks.say(1, Done(0, 7))
    assert not ranks.heard(1000, Close)
    ranks.say(0, Done(0, 3))
    assert [one.closing.contributions[0].worker for one in ranks.heard(1000, Close)] == [0]


def test_only_the_first_rank_of_a_replica_asks_and_reports():
    ranks = Ranks().come(0, 1, 2, 3)
    with pytest.raises(BadMessage, match="replica 2 says ask, which its first one does for all"):
        ranks.say(3, Ask())


def test_the_loss_of_a_rank_is_the_loss_of_its_replica_and_others_go_on():
    ranks = Ranks("async").come(0, 1, 2, 3)
    ranks.hear(ranks.members.lost(3, "died", 0.0))
    sentence = "replica 2 was given up: it has lost rank 3, which died"
    assert [one.outcome for one in ranks.heard(2, End)] == [sentence]
    ranks.say(2, Ask())
    ranks.say(0, Ask())
    assert ranks.heard(1, Learn) and not ranks.heard(2, Learn) and not ranks.play.roster.failure


def test_without_a_replica_that_is_needed_the_run_ends_and_says_which():
    ranks = Ranks("bsp").come(0, 1, 2, 3)
    ranks.hear(ranks.members.closed(HERE + 1, 0.0))
    assert ranks.play.roster.failure.startswith("replica 1 has closed its connection, and this consistency model")
    assert [one.outcome for one in ranks.heard(0, End)] == ["a worker that holds the same replica has gone"]


def test_a_replica_leaves_with_its_rank_that_is_asked_to_once_all_have_done_what_they_were_given():
    ranks = Ranks("async").come(0, 1, 2, 3)
    ranks.say(2, Ask())
    ranks.say(2, Ask())  # ahead
    ranks.say(3, Leave())
    given = ranks.heard(2, Learn)
    assert given and given == ranks.heard(3, Learn) and not ranks.heard(2, End)
    for task in given:
        ranks.say(2, Computed(task.clock, 1.0, finite=True))
        ranks.say(2, Done(task.clock))
        assert not ranks.heard(2, End), "the other rank is not done"
        ranks.say(3, Done(task.clock))
    for rank in (2, 3):
        assert [one.outcome for one in ranks.heard(rank, End)] == ["left"] and ranks.told[rank][-1] == CLOSE
        assert ranks.heard(rank, Learn) == given, "nothing new is given"
        ranks.hear(ranks.members.closed(HERE + rank, 0.0))
    ranks.say(0, Ask())
    assert ranks.heard(0, Learn) and not ranks.heard(0, End) and not ranks.play.roster.failure


def test_a_replica_that_is_to_measure_something_does_so_before_it_leaves():
    ranks = Ranks("async", evaluate_every=lambda _: 1).come(0, 1, 2, 3)
    for first in (0, 2):
        ranks.say(first, Ask())
        (task,) = ranks.heard(first, Learn)
        ranks.say(first, Computed(task.clock, 1.0, finite=True))
        for rank in (first, first + 1):
            ranks.say(rank, Done(task.clock))
    (kept,) = (one for one in ranks.told[1000] if type(one).__name__ == "Keep")
    ranks.hear(ranks.members.received(1000, {"kind": "kept", "snapshot": kept.snapshot}, 0.0))
    ranks.say(2, Ask())
    (piece,) = ranks.heard(3, EvaluatePiece)
    ranks.say(3, Leave())
    assert not ranks.heard(2, End)
    ranks.say(2, Evaluated(piece.snapshot, piece.piece, [1.0], 0))
    assert [one.outcome for one in ranks.heard(3, End)] == ["left"]


def test_where_every_replica_is_needed_a_rank_that_is_asked_to_go_means_the_run():
    ranks = Ranks("bsp").come(0, 1, 2, 3)
    ranks.say(1, Leave())
    ranks.say(0, Ask())
    assert not ranks.heard(0, Learn) and not ranks.heard(1, Learn)


def test_parts_of_a_checkpoint_are_those_of_all_ranks():
    ranks = Ranks(replicas=1, residuals=True, checkpoint_every=lambda _: 1).come(0, 1)
    ranks.say(0, Ask())
    ranks.say(0, Computed(0, 1.0, finite=True))
    for rank in (0, 1):
        ranks.say(rank, Done(0))
    (kept,) = (one for one in ranks.told[1000] if type(one).__name__ == "Keep")
    ranks.hear(ranks.members.received(1000, {"kind": "kept", "snapshot": kept.snapshot}, 0.0))
    for rank in (0, 1):
        assert ranks.heard(rank, Save)
        ranks.say(rank, Saved(kept.snapshot, {f"worker-{rank}": "sum"}))
    written = {"kind": "saved", "snapshot": kept.snapshot, "files": {"server": "sum"}}
    ranks.hear(ranks.members.received(1000, json.loads(json.dumps(written)), 0.0))
    assert sorted(ranks.play.shelf.committed[0][1]) == ["server", "worker-0", "worker-1"]
