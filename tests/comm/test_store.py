"""The torch store over a real server: what it promises to torch, from many threads, and when the server goes."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist

from volary.comm.control.board import Board
from volary.comm.control.errors import ConnectionLost, KeyRefused
from volary.comm.control.server import KeyedServer
from volary.comm.control.store import KeyedStore, KeyMissing, StoreRefused, set_then_get
from volary.comm.groups.readdressed import GlooStore

from .conftest import KEY

WITHIN_S = 60.0  # on a busy machine, too


@pytest.fixture
def server() -> Iterator[KeyedServer]:
    with KeyedServer(KEY, {"board": Board(limit_bytes=2**20)}) as running:
        yield running


@pytest.fixture
def store(server: KeyedServer) -> Iterator[KeyedStore]:
    made = KeyedStore.at(*server.address, KEY, timeout_s=WITHIN_S)
    yield made
    made.close()


class Later:
    """A call in a thread of its own, and what came of it."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, args=(call,))
        self.thread.start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self.result = call()
        except BaseException as problem:
            self.error = problem

    def get(self) -> Any:
        self.thread.join(WITHIN_S)
        assert not self.thread.is_alive()
        if self.error:
            raise self.error
        return self.result


@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: dist.PrefixStore("group", s)], ids=["itself", "in a prefix"])
def test_it_is_a_torch_store(store: KeyedStore, wrap: Callable[[Any], Any]) -> None:
    torch_store = wrap(store)
    torch_store.set("text", "hello")
    torch_store.set("bytes", b"\x00\xff")
    assert torch_store.get("text") == b"hello"
    assert torch_store.get("bytes") == b"\x00\xff"
    assert [torch_store.add("n", 2), torch_store.add("n", -3)] == [2, -1]
    assert torch_store.check(["text", "n"])
    assert not torch_store.check(["text", "none"])
    torch_store.wait(["text"])
    torch_store.wait(["n"], timedelta(seconds=1))
    assert torch_store.compare_set("text", "other", "x") == b"hello"
    assert torch_store.compare_set("text", "hello", "bye") == b"bye"
    torch_store.append("text", "!")
    assert torch_store.multi_get(["text", "n"]) == [b"bye!", b"-1"]
    torch_store.multi_set(["x", "y"], ["1", "2"])
    assert torch_store.has_extended_api()
    assert torch_store.num_keys() == 5
    assert torch_store.delete_key("x")
    assert not torch_store.delete_key("x")
    torch_store.set_timeout(timedelta(seconds=7))
    assert store.timeout == timedelta(seconds=7)


def test_a_waiting_get_blocks_no_other_call(store: KeyedStore) -> None:
    waiting = [Later(lambda n=n: store.get(f"late/{n}")) for n in range(4)]
    for n in range(4):
        assert store.add("calls", 1) == n + 1
        store.set(f"late/{n}", str(n))
    assert [later.get() for later in waiting] == [b"0", b"1", b"2", b"3"]


def test_a_key_that_nobody_writes_is_named_in_its_time(store: KeyedStore) -> None:
    store.set("there", "")
    started = time.monotonic()
    with pytest.raises(KeyMissing, match=r"nobody wrote 'gone' within 0\.3 s"):
        store.wait(["there", "gone"], timedelta(seconds=0.3))
    assert 0.25 < time.monotonic() - started < WITHIN_S
    store.set_timeout(timedelta(seconds=0.1))
    with pytest.raises(dist.DistStoreError, match="nobody wrote 'p/none'"):
        dist.PrefixStore("p", store).get("none")
    assert store.get("there") == b""


def test_a_lost_server_ends_every_call_and_is_named(store: KeyedStore, server: KeyedServer) -> None:
    waiting = Later(lambda: store.get("never"))
    while not server._services["board"]._waiters:  # type: ignore[attr-defined]
        time.sleep(0.01)
    server.stop()
    with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:\d+ closed the connection"):
        waiting.get()
    with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:\d+"):
        store.set("a", "b")


def test_closing_the_store_wakes_who_waits(store: KeyedStore, server: KeyedServer) -> None:
    waiting = Later(lambda: store.get("never"))
    while not server._services["board"]._waiters:  # type: ignore[attr-defined]
        time.sleep(0.01)
    store.close()
    with pytest.raises(ConnectionLost):
        waiting.get()
    with pytest.raises(ConnectionLost, match="closed on this side"):
        store.set("a", "b")


def test_what_the_board_refuses_is_said_and_the_store_goes_on(store: KeyedStore) -> None:
    with pytest.raises(StoreRefused, match="the board is full"):
        store.set("big", b"x" * 2**20)
    store.set("small", b"x")
    with pytest.raises(StoreRefused, match="no integer"):
        store.add("small", 1)
    assert store.get("small") == b"x"


def test_to_write_and_to_read_what_all_write_takes_one_call(store: KeyedStore) -> None:
    first = Later(lambda: store.set_then_get("a", "1", ["a", "b"]))
    assert store.set_then_get("b", "2", ["b", "a"]) == [b"2", b"1"]
    assert first.get() == [b"1", b"2"]
    assert set_then_get(dist.HashStore(), "a", "1", ["a"]) == [b"1"]
    with pytest.raises(StoreRefused, match="the board is full"):  # and nobody waits for what others write
        store.set_then_get("big", b"x" * 2**20, ["never"])
    assert store.get("a") == b"1"


def test_what_is_written_later_goes_with_the_next_request_or_at_the_end(store: KeyedStore, server: KeyedServer) -> None:
    other = KeyedStore.at(*server.address, KEY)
    in_a_group = dist.PrefixStore("group", store)
    with store.writing_later():
        in_a_group.set("a", "1")
        assert not other.check(["group/a"])
        assert in_a_group.get("a") == b"1"
        store.multi_set(["b", "c"], ["2", "3"])
        assert Later(lambda: store.check(["b", "c"])).get(), "whoever asks"
        store.set("d", "4")
        assert not other.check(["d"])
    assert other.multi_get(["group/a", "b", "c", "d"]) == [b"1", b"2", b"3", b"4"]
    with pytest.raises(ZeroDivisionError), store.writing_later():
        store.set("e", str(1 / 0))
    store.set("f", "6")
    assert other.get("f") == b"6"
    other.close()


def test_what_gloo_waits_for_and_then_reads_takes_one_round_trip_for_all_ranks(store: KeyedStore) -> None:
    for rank in range(3):
        store.set(f"at/{rank}", f"where {rank} listens")
    seen, before = GlooStore(store, {}, 1, 3), next(store._requests)
    seen.set("at/1", "where 1 listens")
    for rank in (0, 2):
        seen.wait([f"at/{rank}"], timedelta(seconds=WITHIN_S))
        assert seen.get(f"at/{rank}") == f"where {rank} listens".encode()
    assert next(store._requests) == before + 3, "one to write, one to read"
    assert seen.get("at/0") == b"where 0 listens"


def test_of_keys_that_not_each_rank_writes_gloo_reads_what_it_waits_for(store: KeyedStore) -> None:
    seen = GlooStore(store, {}, 1, 3)
    for other in (0, 2):  # of each pair
        seen.set(f"1/{other}", "x")
    store.set("2/1", "there")
    seen.wait(["1/0", "2/1"], timedelta(seconds=WITHIN_S))
    assert [seen.get("1/0"), seen.get("2/1")] == [b"x", b"there"]


def test_a_store_without_the_key_is_none(server: KeyedServer) -> None:
    with pytest.raises(KeyRefused):
        KeyedStore.at(*server.address, secrets.token_bytes(32))


def test_counting_from_many_threads_loses_nothing(store: KeyedStore) -> None:
    counting = [Later(lambda: [store.add("n", 1) for _ in range(50)]) for _ in range(8)]
    numbers = [number for later in counting for number in later.get()]
    assert sorted(numbers) == [*range(1, 401)]
