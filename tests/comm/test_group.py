"""torch's groups on the board and the closed ear, with real ranks: everything torch does, under a scan, to the end."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist

import volary
from _workers import Workers, alone, joined
from volary.comm.control.board import Board
from volary.comm.control.server import KeyedServer
from volary.comm.groups import gloo_mesh, listening_sockets
from volary.comm.groups.group import interface_of, join
from volary.comm.groups.listeners import ListeningSocket, listeners
from volary.comm.topology.links import Links
from volary.errors import SettingError

KEY = b"the key of this test run, 32 b.."
HERE = Path(__file__).resolve().parent
linux = pytest.mark.skipif(bool(listening_sockets.why_not()), reason=listening_sockets.why_not() or "-")


def everything(rank: int, world_size: int) -> dict[str, Any]:
    """All that Volary and DistributedDataParallel ask of a group."""
    total = torch.full((1000,), float(rank + 1))
    dist.all_reduce(total)
    pair = dist.new_group([0, 1])
    part = torch.tensor([float(rank + 1)])
    if rank < 2:
        dist.all_reduce(part, group=pair)
    dist.barrier()
    told = [{"from": rank}] if rank == 0 else [None]
    dist.broadcast_object_list(told)
    gathered: list[Any] = [None] * world_size
    dist.all_gather_object(gathered, rank)
    return {
        "total": total[0].item(),
        "part": part.item(),
        "told": told[0],
        "gathered": gathered,
        "weights": trained(rank),
        "listening": [(one.address, one.port) for one in listeners([os.getpid()])],
    }


def trained(rank: int) -> list[float]:
    torch.manual_seed(rank)  # DDP makes them equal
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(5, 4)).square().sum().backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()


def test_three_ranks_do_all_that_torch_asks_of_a_group_on_loopback_alone(workers: Workers) -> None:
    results = workers(3, everything)
    assert [r["total"] for r in results] == [6.0] * 3
    assert [r["part"] for r in results] == [3.0, 3.0, 3.0]
    assert all(r["told"] == {"from": 0} and r["gathered"] == [0, 1, 2] for r in results)
    assert results[0]["weights"] == results[1]["weights"] == results[2]["weights"]
    if not listening_sockets.why_not():
        assert all(result["listening"] == [] for result in results)  # two groups were made, and nobody listens any more


def in_parts(rank: int, world_size: int) -> dict[str, Any]:
    """Three groups with another rank each, and a second one with the same; all of them used at the same time."""
    whole = joined()
    ways = [[[0, 1], [2, 3]], [[0, 2], [3, 1]], [[0, 3], [1, 2]], [[0, 1], [2, 3]]]
    groups = [whole.divided(parts) for parts in ways]
    sums = [torch.tensor([10.0**rank]) for _ in groups]
    works = [
        dist.all_reduce(one, group=group.process_group, async_op=True) for one, group in zip(sums, groups, strict=True)
    ]
    for work in reversed(works):
        work.wait()
    links, came = [Links(group) for group in groups], [torch.zeros(1) for _ in groups]
    coming = [link.receive(one, 1 - link.rank) for link, one in zip(links, came, strict=True)]
    for number, link in reversed([*enumerate(links)]):  # to one rank over two groups, in another order than awaited
        link.send(torch.tensor([10.0 * number + rank]), 1 - link.rank).wait()
    for transfer in coming:
        transfer.wait()
    return {
        "places": [(group.rank, group.size) for group in groups],
        "sums": [one.item() for one in sums],
        "came": [one.item() for one in came],
        "posted": [group.bulletin.share("who", [number, rank]) for number, group in enumerate(groups)],
        "within": [group.within("part").bulletin.share("who", rank) for group in groups],
        "listening": len(listeners([os.getpid()])),
    }


def test_a_run_s_ranks_are_divided_into_groups_that_overlap_and_never_meet(workers: Workers) -> None:
    members = [[(0, 1), (0, 2), (0, 3), (0, 1)], [(0, 1), (1, 3), (1, 2), (0, 1)]]
    members += [[(2, 3), (0, 2), (1, 2), (2, 3)], [(2, 3), (1, 3), (0, 3), (2, 3)]]
    for rank, (mine, found) in enumerate(zip(members, workers(4, in_parts), strict=True)):
        others = [one[0] + one[1] - rank for one in mine]
        assert found["places"] == [(one.index(rank), 2) for one in mine], "counted from 0 in rising order"
        assert found["sums"] == [10.0 ** one[0] + 10.0 ** one[1] for one in mine]
        assert found["came"] == [10.0 * number + other for number, other in enumerate(others)]
        assert found["posted"] == [[[number, member] for member in one] for number, one in enumerate(mine)]
        assert found["within"] == [[*one] for one in mine]
        assert found["listening"] == 0 or listening_sockets.why_not(), "no group listens any more"


def under_a_scan(rank: int, world_size: int, closed: bool, connections: int) -> dict[str, Any]:
    """All-reduce while rank 0's child knocks at every port of every rank; what that did to our descriptors."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    known: list[tuple[str, int]] = []
    close = listening_sockets.close if closed else lambda _: True  # the control: groups that listen on
    gloo_mesh.listening_sockets.close = lambda descriptor: (
        known.extend(listening_sockets.ends(descriptor)) or close(descriptor)
    )
    group = dist.new_group([*range(world_size)])
    ends: list[Any] = [None] * world_size
    dist.all_gather_object(ends, known, group=group)
    before = psutil.Process().num_fds()
    scan = scanner([end for one in ends for end in one], connections) if rank == 0 else None
    rounds = 0
    going = torch.ones(1)
    while going.item():
        going[0] = float(scan is not None and scan.poll() is None)
        dist.all_reduce(going, group=group)
        rounds += 1
        time.sleep(0.001)  # leaves the core to the scanner
    reached = int(scan.communicate()[0]) if scan else 0
    return {"before": before, "after": psutil.Process().num_fds(), "rounds": rounds, "reached": reached}


def scanner(ends: list[tuple[str, int]], connections: int) -> subprocess.Popen[str]:
    arguments = [str(connections), *(f"{host}:{port}" for host, port in ends)]
    return subprocess.Popen([sys.executable, HERE / "scan.py", *arguments], stdout=subprocess.PIPE, text=True)


@linux
def test_a_scan_with_garbage_reaches_no_rank_and_leaks_no_descriptor(workers: Workers) -> None:
    results = workers(2, under_a_scan, True, 150)
    assert results[0]["rounds"] > 20
    assert results[0]["reached"] == 0
    for result in results:
        assert result["after"] <= result["before"] + 3  # the scanner's pipe


@linux
@pytest.mark.slow
def test_if_nobody_closed_the_ears_the_same_scan_would_leak_a_descriptor_a_connection(workers: Workers) -> None:
    results = workers(2, under_a_scan, False, 40)
    assert results[0]["reached"] > 0
    assert all(result["after"] > result["before"] + 30 for result in results)


@pytest.fixture
def program(tmp_path: Path) -> Any:
    """`program(name)`: two processes that run it as rank 0 and 1; what they printed and how they ended."""

    def run(name: str) -> list[tuple[int, str]]:
        with KeyedServer(KEY, {"board": Board()}) as server, contextlib.ExitStack() as stack:
            crew = [
                stack.enter_context(
                    subprocess.Popen(
                        [sys.executable, HERE / "ends.py", name, str(server.address[1]), str(rank), KEY.hex()],
                        stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT,
                        text=True,
                        env={**os.environ, "PYTHONPATH": str(Path(volary.__file__).parents[1])},
                    )
                )
                for rank in range(2)
            ]
            killer = threading.Timer(60, lambda: [one.kill() for one in crew])
            killer.start()
            try:
                out = crew[0].communicate()[0]
                if name == "stopped_peer":
                    crew[1].send_signal(signal.SIGKILL)
                return [(crew[0].returncode, out), (crew[1].wait(), crew[1].communicate()[0])]
            finally:
                killer.cancel()
                killer.join()
                for one in crew:
                    one.kill()

    return run


def with_strangers(rank: int, world_size: int) -> tuple[list[bytes], float]:
    """A group to which strangers connect while its ranks do; what these are answered, and what the ranks add up to."""
    strangers: list[socket.socket] = []
    close = gloo_mesh._close

    def knocked(own: list[int]) -> None:
        for said in (b"", b"garbage", bytes(8), bytes(range(256))):
            strangers.extend(socket.create_connection(listening_sockets.ends(one)[0], timeout=10) for one in own)
            strangers[-1].sendall(said)
        close(own)

    gloo_mesh._close = knocked
    group = dist.new_group([*range(world_size)])
    total = torch.ones(10)
    dist.all_reduce(total, group=group)
    heard = []
    for one in strangers:
        try:
            heard.append(one.recv(1))
        except ConnectionError:
            heard.append(b"")
        one.close()
    return heard, total[0].item()


@linux
def test_whoever_connects_to_gloo_while_the_ranks_do_is_cut_off(workers: Workers) -> None:
    assert workers(2, with_strangers) == [([b""] * 4, 2.0)] * 2


@pytest.mark.slow  # a Python of its own
def test_a_process_that_never_leaves_and_has_a_thread_in_gloo_still_ends_with_zero(program: Any) -> None:
    for code, out in program("never_leaves"):
        assert code == 0, out


@linux
def test_cutting_wakes_a_collective_that_hangs_on_a_stopped_peer(program: Any) -> None:
    (code, out), (killed, _) = program("stopped_peer")
    assert code == 0, out
    assert "woken after" in out
    assert float(out.split("woken after")[1].split()[0]) < 2.0
    assert killed == -signal.SIGKILL


def test_the_interface_of_an_address_is_found_or_refused_with_those_there_are() -> None:
    assert interface_of("127.0.0.1").startswith("lo")
    with pytest.raises(SettingError, match=r"no address 203\.0\.113\.9; it has the interfaces"):
        interface_of("203.0.113.9")


def test_a_listener_knows_its_end() -> None:
    assert ListeningSocket(1, "127.0.0.1", 80) < ListeningSocket(2, "127.0.0.1", 80)


@pytest.mark.parametrize(
    ("backend", "device", "why"),
    [("mpi", "cpu", "built without MPI"), ("nccl", "cpu", "on the CPU"), ("gloo", "cuda", "on CUDA")],
)
def test_a_backend_that_does_not_fit_is_refused_before_anybody_is_met(backend, device, why):
    if backend == "mpi" and dist.is_mpi_available():
        pytest.skip("this torch has MPI")
    with pytest.raises(SettingError, match=f"backend is '{backend}'.*{why}.*accepted"):
        join(dist.HashStore(), alone().bulletin, torch.device(device), 1.0, backend=backend)
    assert not dist.is_initialized()
