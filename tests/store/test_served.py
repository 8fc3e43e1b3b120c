"""A served store, its servers and its workers real processes."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
import torch

import volary.store
from volary.comm.control.errors import ConnectionLost, KeyRefused
from volary.errors import PeerLost, ServerLost, SettingError

UPDATERS = Path(__file__).parent / "_updaters.py"
LARGE = (300, 1001)  # is cut over both servers, and not evenly by rows
ROUNDS = 12


@pytest.fixture(scope="module")
def asynchronous():
    """A store of three workers and two servers, which adds; workers may come and go."""
    with volary.store.serve(workers=3, servers=2, mode="async") as served:
        yield served.address, served.key_file


def push_and_pull_in_rounds(rank: int, world_size: int, address: str, key_file: Path) -> None:
    with volary.store.connect(address, key_file, worker=rank) as store:
        store.init("large", torch.full(LARGE, -1.0))
        store.init(7, torch.zeros(5, dtype=torch.int64))
        assert torch.equal(store.pull("large"), torch.full(LARGE, -1.0))
        out = torch.empty(LARGE)
        for turn in range(ROUNDS):
            store.push("large", torch.full(LARGE, float(turn * 10 + rank)))
            store.push(7, torch.full((5,), turn * 10 + rank))
            expected = sum(turn * 10 + other for other in range(world_size))
            assert store.pull("large", out=out) is out
            assert bool((out == expected).all()), (turn, out)
            assert store.pull(7).tolist() == [expected] * 5
        for turn in range(30):  # more than may be under way
            store.push(7, torch.full((5,), turn))
        assert store.pull(7).tolist() == [29 * world_size] * 5
        if rank == 2:
            return
        store.push("large", torch.ones(LARGE))
        why = f"update {ROUNDS + 1} is a push of each of the store's 3 workers, and worker 2 left after {ROUNDS}"
        with pytest.raises(PeerLost, match=f"key 'large': {why}"):
            store.pull("large")


@pytest.mark.slow  # servers of its own
def test_a_synchronous_pull_is_each_workers_push_of_that_round_exactly_once_or_says_who_has_left(workers):
    with volary.store.serve(workers=3, servers=2, mode="sync") as served:
        workers(3, push_and_pull_in_rounds, served.address, served.key_file)
        with pytest.raises(SettingError, match="worker 0 has left"):
            volary.store.connect(served.address, served.key_file, worker=0)


def push_ones(rank: int, world_size: int, address: str, key_file: Path) -> float:
    with volary.store.connect(address, key_file, worker=rank) as store:
        store.init("sum", torch.zeros(LARGE))
        store.init("mine", torch.zeros(world_size, dtype=torch.float64))
        mine = torch.zeros(world_size, dtype=torch.float64)
        mine[rank] = 1
        for turn in range(1, 20):
            store.push("sum", torch.ones(LARGE))
            store.push("mine", mine)
            assert store.pull("mine")[rank] == turn, "a pull sees what its own worker has pushed"
    return 19.0


@pytest.mark.slow  # tests/server/test_host.py counts pushes
def test_asynchronous_pushes_are_all_applied_once(workers, asynchronous):
    pushed = sum(workers(3, push_ones, *asynchronous))
    with volary.store.connect(*asynchronous, worker=1) as store:
        assert bool((store.pull("sum") == pushed).all())


def test_what_is_pushed_may_change_at_once_and_be_of_any_layout(asynchronous):
    with volary.store.connect(*asynchronous, worker=0) as store:
        store.init("layout", torch.zeros(700, 300))
        pushed = torch.ones(300, 700).t().requires_grad_()
        for _ in range(10):
            with torch.no_grad():
                pushed.fill_(1)
            store.push("layout", pushed)
            with torch.no_grad():
                pushed.fill_(1000)
        out = torch.zeros(300, 700, requires_grad=True)
        store.pull("layout", out=out.t())
        assert bool((out == 10).all())


def test_several_threads_use_one_store(asynchronous):
    with volary.store.connect(*asynchronous, worker=0) as store:

        def work(number: int) -> None:
            store.init(f"thread-{number % 2}", torch.zeros(1000))
            for _ in range(20):
                store.push(f"thread-{number % 2}", torch.ones(1000))
                store.pull(f"thread-{number % 2}")

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.pull("thread-0").tolist() == store.pull("thread-1").tolist() == [40] * 1000


def test_misuse_is_told_in_a_sentence_and_the_store_goes_on(asynchronous):
    address, key_file = asynchronous
    with volary.store.connect(address, key_file, worker=0) as store:
        with pytest.raises(SettingError, match="key 'nothing': there is none; call init"):
            store.pull("nothing")
        store.init("misuse", torch.zeros(4))
        with pytest.raises(SettingError, match=r"key 'misuse': is float32 of shape \(4,\)"):
            store.push("misuse", torch.zeros(5))
        with pytest.raises(SettingError, match="worker 0 is here already"):
            volary.store.connect(address, key_file, worker=0)
        with volary.store.connect(address, key_file, worker=1) as other:
            with pytest.raises(SettingError, match="accepted: the same, not float64"):
                other.init("misuse", torch.zeros(4).double())
            other.push("misuse", torch.ones(4))  # a key that somebody else made
        store.push("misuse", torch.ones(4))
        assert store.pull("misuse").tolist() == [2] * 4


def test_who_has_no_key_or_another_is_not_admitted(asynchronous, tmp_path):
    address, _ = asynchronous
    with pytest.raises(SettingError, match="cannot be read"):
        volary.store.connect(address, tmp_path / "none", worker=0)
    (tmp_path / "wrong").write_text(secrets.token_bytes(32).hex())
    with pytest.raises(KeyRefused):
        volary.store.connect(address, tmp_path / "wrong", worker=0)
    with pytest.raises(SettingError, match="accepted: host:port"):
        volary.store.connect("here", tmp_path / "wrong", worker=0)


def die_in_the_middle(rank: int, world_size: int, address: str, key_file: Path) -> None:
    store = volary.store.connect(address, key_file, worker=rank)
    store.init("dying", torch.zeros(LARGE))
    store.push("dying", torch.ones(LARGE))
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow  # tests/faults has killed workers over servers
def test_a_killed_worker_of_an_asynchronous_store_harms_nobody_and_may_come_again(workers, asynchronous):
    with volary.store.connect(*asynchronous, worker=1) as store:
        with pytest.raises(Exception, match="rank 0 of 1 ended with -9"):
            workers(1, die_in_the_middle, *asynchronous)
        store.init("dying", torch.zeros(LARGE))
        before = store.pull("dying")
        with volary.store.connect(*asynchronous, worker=0) as again:
            again.push("dying", torch.ones(LARGE))
        assert torch.equal(store.pull("dying"), before + 1)


@pytest.mark.slow  # servers of its own
def test_a_users_updater_runs_on_the_server_and_what_it_raises_is_told_to_all():
    with volary.store.local(f"{UPDATERS}:decay") as alone:
        results = use_updater(alone)
    with pytest.raises(ServerLost, match=r"updater .*_updaters.py:decay' failed for key 'broken': ValueError"):
        serve_broken_updater(results)


def train(store, rank: int) -> torch.Tensor:
    """A few steps of a made-up loss, whose gradient depends on the weights."""
    weight = torch.linspace(-1, 1, LARGE[0] * LARGE[1]).view(LARGE)
    store.init("weight", weight)
    for _ in range(8):
        store.push("weight", weight * (rank + 1) + rank)
        weight = store.pull("weight")
    return weight


def train_remotely(rank: int, world_size: int, address: str, key_file: Path) -> torch.Tensor:
    with volary.store.connect(address, key_file, worker=rank) as store:
        return train(store, rank)


@pytest.mark.slow  # two more servers, and torch imports much for an optimiser
@pytest.mark.parametrize("whole", [False, True])
def test_an_optimiser_on_the_servers_equals_the_same_in_one_process(workers, whole):
    settings = {"name": "AdamW", "lr": 0.01, "weight_decay": 0.1}
    with volary.store.serve(workers=2, servers=2, updater=settings, whole=whole) as served:
        first, second = workers(2, train_remotely, served.address, served.key_file)
    assert torch.equal(first, second)
    weight = torch.linspace(-1, 1, LARGE[0] * LARGE[1]).view(LARGE).requires_grad_()
    optimizer = torch.optim.AdamW([weight], lr=0.01, weight_decay=0.1)
    for _ in range(8):
        weight.grad = weight.detach() + (weight.detach() * 2 + 1)
        optimizer.step()
    torch.testing.assert_close(first, weight.detach(), rtol=0, atol=1e-6)


@pytest.mark.slow  # servers of its own
def test_a_killed_server_is_told_to_its_workers_and_to_who_serves():
    with (
        pytest.raises(ServerLost, match="server 1 of the store has ended, and what it kept is gone; signal 9"),
        volary.store.serve(workers=1, servers=2) as served,
    ):
        store = volary.store.connect(served.address, served.key_file, worker=0)
        store.init("w", torch.zeros(LARGE))
        store.push("w", torch.ones(LARGE))
        store.pull("w")  # all that was pushed has arrived
        os.kill(served.pids[1], signal.SIGKILL)
        with pytest.raises(ServerLost, match="server 1 of the store has ended, and what it kept is gone"):
            while True:
                store.pull("w")
        with pytest.raises(ServerLost, match="server 1 of the store has ended"):
            store.close()


SERVES_FOR_EVER = """
import sys, volary.store
with volary.store.serve(workers=1, servers=2) as served:
    print(served.address, served.key_file, *served.pids, flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow  # servers of its own
def test_servers_end_with_who_serves_even_if_that_is_killed(tmp_path):
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    serving = subprocess.Popen(
        [sys.executable, "-c", SERVES_FOR_EVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    with serving:
        address, key_file, *pids = serving.stdout.readline().split()
        store = volary.store.connect(address, key_file, worker=0)
        store.init("w", torch.zeros(3))
        serving.kill()
        with pytest.raises((ServerLost, ConnectionLost)):
            while True:
                store.push("w", torch.ones(3))
                store.pull("w")
        with pytest.raises(ServerLost):
            store.close()
    _, left = psutil.wait_procs([psutil.Process(int(pid)) for pid in pids if psutil.pid_exists(int(pid))], 10)
    assert not left


@pytest.mark.slow  # a server that does not start takes as long as one that does
def test_an_updater_that_cannot_be_is_told_by_who_serves():
    with pytest.raises(SettingError, match=r"updater 'SGD' with \{'lr': -1\}"):
        volary.store.serve(workers=1, updater={"name": "SGD", "lr": -1}).__enter__()


def use_updater(store) -> list[torch.Tensor]:
    seen = []
    store.init("half", torch.full(LARGE, 8.0))
    for turn in range(5):
        store.push("half", torch.full(LARGE, float(turn)))
        seen.append(store.pull("half"))
    return seen


def serve_broken_updater(expected: list[torch.Tensor]) -> None:
    with (
        volary.store.serve(workers=1, updater=f"{UPDATERS}:decay") as served,
        volary.store.connect(served.address, served.key_file, worker=0) as store,
    ):
        for ours, theirs in zip(use_updater(store), expected, strict=True):
            assert torch.equal(ours, theirs)
        store.init("broken", torch.ones(3))
        store.push("broken", torch.ones(3))
        store.pull("broken")
