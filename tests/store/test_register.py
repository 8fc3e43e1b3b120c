"""The register of a store, without any process: who is admitted, where keys lie, and what becomes of those who go."""

from __future__ import annotations

import msgspec
import pytest

from volary.comm.control.errors import BadMessage
from volary.comm.control.service import CLOSE
from volary.store.kinds import TensorKind
from volary.store.messages import (
    Added,
    AddSlices,
    Declare,
    Drop,
    Failed,
    Filled,
    Find,
    Goodbye,
    Known,
    Left,
    Lost,
    Ready,
    Refused,
    StoreServerHello,
    StoreWelcome,
    StoreWorkerHello,
)
from volary.store.register import CUT_BYTES, Register
from volary.store.settings import Settings

LARGE = TensorKind("float32", [CUT_BYTES])
SMALL = TensorKind("float32", [3])


class World:
    """A register, servers that agree to everything, and what each peer was told."""

    def __init__(self, mode: str = "async", workers: int = 3, servers: int = 2, *, agree: bool = True) -> None:
        settings = Settings.checked(workers, servers, mode, None, False, "encrypted")
        self.register = Register(settings, lambda: None)
        self.told: dict[int, list] = {}
        self._agree = agree
        for number in range(servers):
            self.enter(-1 - number, StoreServerHello(number))
            self.say(-1 - number, Ready(1000 + number))

    def enter(self, peer: int, hello: object) -> list:
        """The answers to a newcomer."""
        return self._deliver(peer, self.register.opened(peer, msgspec.to_builtins(hello), 0.0))

    def say(self, peer: int, message: object) -> list:
        """The answers to a message."""
        return self._deliver(peer, self.register.received(peer, msgspec.to_builtins(message), 0.0))

    def leave(self, peer: int) -> None:
        """A connection ends."""
        self._deliver(peer, self.register.closed(peer, 0.0))

    def _deliver(self, peer: int, replies) -> list:
        before = len(self.told.setdefault(peer, []))
        for to, message in replies:
            self.told.setdefault(to, []).append(message)
            if self._agree and isinstance(message, AddSlices):
                self.say(to, Added(message.serial, ""))
        return self.told[peer][before:]


def test_a_large_tensor_is_cut_evenly_over_all_servers_and_small_ones_are_spread():
    world = World()
    world.enter(1, StoreWorkerHello(0))
    (known,) = world.say(1, Declare("large", LARGE))
    sizes = {cut.server: cut.end - cut.start for cut in known.cuts}
    assert sizes == {0: CUT_BYTES // 2, 1: CUT_BYTES // 2}
    homes = [world.say(1, Declare(key, SMALL))[0].cuts[0].server for key in range(10)]
    assert homes.count(0) == homes.count(1) == 5


def test_slices_of_all_keys_have_numbers_of_their_own():
    world = World()
    world.enter(1, StoreWorkerHello(0))
    numbers = [cut.number for key in range(9) for cut in world.say(1, Declare(key, LARGE))[0].cuts]
    assert len(set(numbers)) == len(numbers) == 18


def test_the_first_fills_a_key_and_others_hear_of_it_afterwards():
    world = World()
    for worker in range(3):
        world.enter(worker, StoreWorkerHello(worker))
    (known,) = world.say(0, Declare("w", SMALL))
    assert known.fill
    assert world.say(1, Declare("w", SMALL)) == world.say(2, Find("w")) == []
    world.say(0, Filled("w"))
    for worker in (1, 2):
        assert world.told[worker][-1] == Known("w", SMALL, known.cuts, fill=False)


def test_a_key_whose_filler_dies_is_placed_anew_for_the_next():
    world = World()
    for worker in range(3):
        world.enter(worker, StoreWorkerHello(worker))
    (first,) = world.say(0, Declare("w", LARGE))
    world.say(1, Declare("w", LARGE))
    world.say(2, Find("w"))
    world.leave(0)
    second = world.told[1][-1]
    assert second.fill
    assert not {cut.number for cut in second.cuts} & {cut.number for cut in first.cuts}
    dropped = [
        number for server in (-1, -2) for one in world.told[server] if isinstance(one, Drop) for number in one.numbers
    ]
    assert sorted(dropped) == [cut.number for cut in first.cuts]
    world.leave(1)
    assert "there is none" in world.told[2][-1].why


def test_a_key_that_a_server_cannot_keep_is_refused_and_forgotten():
    world = World(agree=False)
    world.enter(1, StoreWorkerHello(0))
    world.say(1, Declare("w", LARGE))
    world.say(-1, Added(0, "it is full"))
    assert world.told[1][-1] == Refused("w", "it is full")
    assert any(isinstance(one, Drop) for one in world.told[-2])
    world.say(-2, Added(0, ""))
    assert "there is none" in world.say(1, Find("w"))[0].why


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (TensorKind("float32", [4]), "accepted: the same"),
        (TensorKind("float64", [3]), "accepted: the same"),
    ],
)
def test_another_kind_for_the_same_key_is_refused(kind, sentence):
    world = World()
    world.enter(1, StoreWorkerHello(0))
    world.say(1, Declare("w", SMALL))
    (refused,) = world.say(1, Declare("w", kind))
    assert sentence in refused.why


@pytest.mark.parametrize("kind", [TensorKind("bool", [3]), TensorKind("float32", [0]), TensorKind("pickle", [1])])
def test_what_no_store_keeps_is_refused(kind):
    world = World()
    world.enter(1, StoreWorkerHello(0))
    assert isinstance(world.say(1, Declare("w", kind))[0], Refused)


@pytest.mark.parametrize(
    ("worker", "sentence"),
    [(3, "accepted: 0 to 2"), (-1, "accepted: 0 to 2"), (0, "worker 0 is here already")],
)
def test_a_number_that_is_taken_or_is_none_is_refused(worker, sentence):
    world = World()
    world.enter(1, StoreWorkerHello(0))
    refused, end = world.enter(2, StoreWorkerHello(worker))
    assert sentence in refused.why
    assert end is CLOSE


def test_a_worker_of_an_asynchronous_store_may_come_back_under_another_name():
    world = World("async")
    (first,) = world.enter(1, StoreWorkerHello(2))
    world.leave(1)
    (second,) = world.enter(2, StoreWorkerHello(2))
    assert isinstance(second, StoreWelcome)
    assert second.number == first.number + 3


def test_a_worker_of_a_synchronous_store_does_not_come_back():
    world = World("sync")
    world.enter(1, StoreWorkerHello(2))
    world.leave(1)
    assert "worker 2 has left" in world.enter(2, StoreWorkerHello(2))[0].why


def test_workers_hear_who_has_left_and_after_how_many_pushes():
    world = World("sync")
    world.enter(1, StoreWorkerHello(0))
    world.enter(2, StoreWorkerHello(1))
    assert world.say(1, Goodbye({0: 7})) == [CLOSE]
    world.leave(1)
    assert world.told[2][-1] == Left(0, {0: 7})
    world.leave(2)
    assert world.enter(3, StoreWorkerHello(2))[1:] == [Left(0, {0: 7}), Left(1, None)]


@pytest.mark.parametrize("how", ["killed", "failed"])
def test_a_lost_server_is_told_to_all_and_to_those_who_come(how):
    world = World()
    world.enter(1, StoreWorkerHello(0))
    if how == "failed":
        world.say(-2, Failed("no luck", bad_input=False))
    world.leave(-2)
    ended = "server 1 of the store has ended, and what it kept is gone" + (": no luck" if how == "failed" else "")
    assert world.told[1][1:] == [Lost(ended)]
    assert world.enter(2, StoreWorkerHello(1))[0] == Refused(None, ended)
    world.say(1, Declare("w", LARGE))  # and nothing breaks by it


@pytest.mark.parametrize(
    "message",
    [
        {"message": "declare", "key": True, "kind": ["float32", [1]]},
        {"message": "declare", "key": "k" * 513, "kind": ["float32", [1]]},
        {"message": "declare", "key": "w", "kind": ["float32", [-1]]},
        {"message": "declare", "key": "w", "kind": ["float32", [1] * 65]},
        {"message": "ready", "port": 1},
        {"message": "filled", "key": "w"},
        {"message": "goodbye", "pushes": {0: -1}},
        [1, 2],
        None,
    ],
)
def test_a_worker_that_says_what_makes_no_sense_is_dropped(message):
    world = World()
    world.enter(1, StoreWorkerHello(0))
    with pytest.raises(BadMessage):
        world.register.received(1, message, 0.0)


@pytest.mark.parametrize("hello", [{}, {"is": "worker"}, {"is": "server", "number": 0}, {"is": "server", "number": 9}])
def test_strangers_to_the_store_are_dropped(hello):
    with pytest.raises(BadMessage):
        World().register.opened(9, hello, 0.0)
