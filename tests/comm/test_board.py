"""The board as a plain state machine: each request by itself, then seeded schedules against a model."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from volary.comm.control.board import Add, Append, Board, Check, CompareSet, Count, Delete, Get, Reply, Set, Wait
from volary.comm.control.errors import BadMessage

TICK_S = 0.1


def ask(board: Board, request: Any, peer: int = 1, now: float = 0.0) -> list[tuple[int, Reply]]:
    """As it comes over the wire: plain values."""
    return list(board.received(peer, msgspec.msgpack.decode(msgspec.msgpack.encode(request)), now))


def value(board: Board, request: Any) -> Any:
    [(peer, reply)] = ask(board, request)
    assert (peer, reply.state) == (1, "ok")
    return reply.value


def test_what_is_set_is_got_checked_counted_and_deleted() -> None:
    board = Board()
    assert value(board, Set(1, {"a": b"1", "b": b"\xff"})) is None
    assert value(board, Get(2, ["b", "a"], 1.0)) == [b"\xff", b"1"]
    assert value(board, Check(3, ["a", "b"])) is True
    assert value(board, Check(4, ["a", "c"])) is False
    assert value(board, Count(5)) == 2
    assert value(board, Delete(6, "a")) is True
    assert value(board, Delete(7, "a")) is False
    assert value(board, Count(8)) == 1


def test_add_counts_and_leaves_decimal_text() -> None:
    board = Board()
    assert value(board, Add(1, "n", 5)) == 5
    assert value(board, Add(2, "n", -7)) == -2
    assert value(board, Get(3, ["n"], 0.0)) == [b"-2"]


def test_append_goes_on_where_the_value_ends() -> None:
    board = Board()
    value(board, Append(1, "log", b"one"))
    value(board, Append(2, "log", b" two"))
    assert value(board, Get(3, ["log"], 0.0)) == [b"one two"]


def test_compare_set_writes_only_what_was_expected() -> None:
    board = Board()
    assert value(board, CompareSet(1, "k", b"old", b"new")) == b"old"  # none there: nothing written
    assert value(board, Count(2)) == 0
    assert value(board, CompareSet(3, "k", b"", b"first")) == b"first"
    assert value(board, CompareSet(4, "k", b"", b"second")) == b"first"
    assert value(board, CompareSet(5, "k", b"first", b"second")) == b"second"


def test_a_get_waits_for_the_last_of_its_keys() -> None:
    board = Board()
    assert ask(board, Get(7, ["a", "b"], 9.0), peer=2) == []
    assert ask(board, Set(1, {"a": b"A"})) == [(1, Reply(1, "ok", None))]
    assert ask(board, Add(2, "b", 3)) == [(1, Reply(2, "ok", 3)), (2, Reply(7, "ok", [b"A", b"3"]))]


def test_a_key_that_went_again_before_the_others_came_is_waited_for_anew() -> None:
    board = Board()
    ask(board, Wait(7, ["a", "b"], 9.0), peer=2)
    value(board, Set(1, {"a": b""}))
    value(board, Delete(2, "a"))
    assert len(ask(board, Set(3, {"b": b""}))) == 1
    assert ask(board, Set(4, {"a": b""}))[1:] == [(2, Reply(7, "ok", None))]


def test_a_wait_that_is_over_names_the_missing_keys() -> None:
    board = Board()
    ask(board, Set(1, {"a": b""}))
    ask(board, Get(2, ["c", "a", "b"], 2.0), peer=3, now=10.0)
    assert list(board.tick(11.9)) == []
    assert list(board.tick(12.0)) == [(3, Reply(2, "timeout", ["b", "c"]))]
    assert list(board.tick(99.0)) == []


def test_nobody_answers_a_peer_that_has_gone() -> None:
    board = Board()
    ask(board, Wait(1, ["a"], 1.0), peer=5)
    board.closed(5, 0.5)
    assert len(ask(board, Set(2, {"a": b""}))) == 1
    assert list(board.tick(99.0)) == []


def test_a_full_board_refuses_and_keeps_what_it_has() -> None:
    board = Board(limit_bytes=1000)
    value(board, Set(1, {"a": b"x" * 500}))
    before = board.total_bytes
    for request in (Set(2, {"b": b"", "c": b"x" * 500}), Append(2, "a", b"x" * 500), Set(2, {"k" * 900: b""})):
        [(_, reply)] = ask(board, request)
        assert reply.state == "refused"
        assert "full" in reply.value
    assert board.total_bytes == before
    value(board, Set(3, {"a": b"y" * 400}))
    value(board, Delete(4, "a"))
    assert board.total_bytes == 0


def test_adding_to_what_is_no_integer_or_beyond_64_bits_is_refused() -> None:
    board = Board()
    value(board, Set(1, {"text": b"abc", "edge": b"%d" % (2**63 - 1)}))
    for key in ("text", "edge"):
        [(_, reply)] = ask(board, Add(2, key, 1))
        assert reply.state == "refused"


@pytest.mark.parametrize(
    "message",
    [
        None,
        [],
        "get",
        {},
        {"op": "pickle", "request": 1},
        {"op": "get", "request": 1, "keys": "a", "wait_s": 1.0},
        {"op": "get", "request": 1, "keys": ["a"], "wait_s": float("nan")},
        {"op": "get", "request": 1, "keys": ["a"], "wait_s": 1e9},
        {"op": "get", "request": 1, "keys": ["a"], "wait_s": -1.0},
        {"op": "set", "request": 1, "values": {"a": 1}},
        {"op": "add", "request": 1, "key": "a", "amount": 1.5},
        {"op": "count", "request": 1, "more": 2},
    ],
)
def test_a_message_that_is_no_request_is_refused_by_name(message: Any) -> None:
    board = Board()
    with pytest.raises(BadMessage):
        list(board.received(1, message, 0.0))


class Schedule:
    """One seed: peers ask, wait, leave and time passes at random; a model says what must be answered, and when."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.board, self.model = Board(), dict[str, bytes]()
        self.now, self.request, self.next_peer = 0.0, 0, 4
        self.peers = {1, 2, 3}
        self.open: dict[tuple[int, int], tuple[Any, float]] = {}  # waiting requests and their deadlines

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.random.choices([self.asks, self.passes, self.leaves], [12, 4, 1])[0]()
            self.check_nobody_waits_in_vain()
        self.now += 1000
        self.ticks()
        assert not self.open

    def key(self) -> str:
        return self.random.choice("abcdef")

    def asks(self) -> None:
        peer, self.request = self.random.choice(sorted(self.peers)), self.request + 1
        n, pick = self.request, self.random.randrange(8)
        keys = [self.key() for _ in range(self.random.randint(1, 3))]
        wait_s, data = self.random.uniform(0, 2), bytes([self.random.randrange(48, 58)])
        request: Any = [
            Get(n, keys, wait_s),
            Wait(n, keys, wait_s),
            Set(n, dict.fromkeys(keys, data)),
            Add(n, "n" + self.key(), 2),
            Append(n, self.key(), data),
            CompareSet(n, self.key(), self.random.choice([b"", data]), b"7"),
            Check(n, keys),
            Delete(n, self.key()),
        ][pick]
        if isinstance(request, Get | Wait):
            self.open[peer, n] = request, self.now + wait_s
            self.take(ask(self.board, request, peer, self.now))
            return
        expected = self.apply(request)
        [(to, reply), *woken] = ask(self.board, request, peer, self.now)
        assert (to, reply) == (peer, Reply(n, "ok", expected))
        self.take(woken)

    def apply(self, request: Any) -> Any:
        model = self.model
        match request:
            case Set(values=values):
                model.update(values)
            case Add(key=key, amount=amount):
                model[key] = str(int(model.get(key, b"0")) + amount).encode()
                return int(model[key])
            case Append(key=key, value=data):
                model[key] = model.get(key, b"") + data
            case CompareSet(key=key, expected=expected, desired=desired):
                if (key in model and model[key] == expected) or (key not in model and not expected):
                    model[key] = desired
                return model.get(key, expected)
            case Check(keys=keys):
                return set(keys) <= model.keys()
            case Delete(key=key):
                return model.pop(key, None) is not None
        return None

    def take(self, replies: list[tuple[int, Reply]]) -> None:
        for peer, reply in replies:
            request, deadline = self.open.pop((peer, reply.request))  # asked, and not answered before
            if reply.state == "timeout":
                assert self.now >= deadline
                assert reply.value == sorted(set(request.keys) - self.model.keys())
            else:
                assert reply.value == ([self.model[key] for key in request.keys] if isinstance(request, Get) else None)

    def passes(self) -> None:
        self.now += self.random.choice([TICK_S, 3 * TICK_S])
        self.ticks()

    def ticks(self) -> None:
        self.take(list(self.board.tick(self.now)))
        assert all(deadline > self.now for _, deadline in self.open.values())

    def leaves(self) -> None:
        gone = self.random.choice(sorted(self.peers))
        self.peers = (self.peers - {gone}) | {self.next_peer}
        self.next_peer += 1
        self.board.closed(gone, self.now)
        self.open = {who: what for who, what in self.open.items() if who[0] != gone}

    def check_nobody_waits_in_vain(self) -> None:
        assert not [r for r, _ in self.open.values() if set(r.keys) <= self.model.keys()]
        assert len(self.model) == len(self.board._values)


@pytest.mark.parametrize("first_seed", range(0, 200, 50))
def test_every_request_is_answered_once_truly_and_in_time(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 50):
        try:
            Schedule(seed).run(150)
        except BaseException as problem:
            problem.add_note(f"seed {seed}")
            raise
