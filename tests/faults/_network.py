"""A small network of a user's own, with every kind of state, and ways to go wrong at a step on a rank."""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import sys
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import torch
from torch import Tensor, nn

from volary.errors import BadInput
from volary.placement import find


def _rank() -> int:
    try:
        return find().rank
    except BadInput:  # nobody launched this process: it looks at the network before the run, or after it
        return 0


RANK = _rank()


class Net(nn.Module):
    """pace_s: a step takes at least so long, and slow_s more on `ranks`.

    fault: what goes wrong in training step `at` on `ranks`, if anything.
    ballast: numbers beside the parameters that a checkpoint carries too. after: a file that `ranks` wait for first.
    """

    def __init__(
        self,
        classes: int,
        pace_s: float = 0.0,
        slow_s: float = 0.0,
        fault: str = "",
        at: int = 5,
        ranks: tuple[int, ...] = (1,),
        ballast: int = 0,
        after: str = "",
    ) -> None:
        super().__init__()
        until = time.monotonic() + 30
        while after and RANK in ranks and not Path(after).exists() and time.monotonic() < until:
            time.sleep(0.01)
        # dropout draws random numbers, batch norm has buffers: a resumed run must go on with both
        self.layers = nn.Sequential(
            nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Dropout(0.2), nn.ReLU(), nn.Linear(32, classes)
        )
        self.register_buffer("ballast", torch.zeros(ballast))
        self.pace_s, self.at = pace_s + (slow_s if RANK in ranks else 0.0), at
        self.fault = fault if RANK in ranks else ""
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(self.pace_s)
        if self.training:
            self.calls += 1
        if self.calls == self.at and self.fault:
            x = x + FAULTS[self.fault]()
        return self.layers(x)


def loop_for_ever() -> float:
    while True:
        time.sleep(0.01)


def loop_until_told() -> float:
    while not Path("go-on").exists():
        time.sleep(0.01)
    return 0.0


def take_25_seconds() -> float:
    time.sleep(25)
    return 0.0


def hold_the_interpreter() -> float:
    return float(sum(itertools.repeat(0)))  # for ever, and no other thread can run


def raise_an_error() -> float:
    raise ValueError("boom in user code")


def raise_another_error() -> float:
    raise KeyError(f"of rank {RANK} alone")


def leave_by_the_back_door() -> float:
    os._exit(7)


def print_and_be_killed() -> float:
    print("the last words of rank", RANK, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    return 0.0


def leave_without_a_word() -> float:
    os._exit(0)


def leave() -> float:
    sys.exit(0)


def be_terminated() -> float:
    os.kill(os.getpid(), signal.SIGTERM)
    return 0.0


def not_a_number() -> float:
    return float("nan")


def start_a_child_and_wait() -> float:
    import subprocess

    child = subprocess.Popen(["sleep", "600"])
    Path(f"child-{RANK}").write_text(str(child.pid))
    return loop_for_ever()


def take_all_memory() -> float:
    kept = []
    while True:
        kept.append(torch.ones(2**20))


def reset_connections() -> float:
    """Break this process's connections to its driver, as a firewall that forgets them does: the driver sees a reset."""
    libc = ctypes.CDLL(None, use_errno=True)
    port = int(os.environ["VOLARY_MEET"].rpartition(":")[2])
    for one in psutil.Process().net_connections("tcp"):
        if one.raddr and one.raddr.port == port:
            nowhere = bytes(16)  # a struct sockaddr of the family AF_UNSPEC
            assert libc.connect(one.fd, nowhere, len(nowhere)) == 0, os.strerror(ctypes.get_errno())
    return 0.0


def hold_the_lock() -> float:
    """Hang with the interpreter's lock held, in which nothing of this process can do anything about it."""
    Path(f"holding-{RANK}").touch()
    ctypes.PyDLL(None).pause()
    return 0.0


FAULTS = {
    "hold the lock": hold_the_lock,
    "reset": reset_connections,
    "loop": loop_for_ever,
    "loop until told": loop_until_told,
    "25 s": take_25_seconds,
    "hold": hold_the_interpreter,
    "print and die": print_and_be_killed,
    "raise": raise_an_error,
    "raise own": raise_another_error,
    "os._exit": leave_by_the_back_door,
    "os._exit 0": leave_without_a_word,
    "sys.exit": leave,
    "terminate": be_terminated,
    "nan": not_a_number,
    "child": start_a_child_and_wait,
    "memory": take_all_memory,
}
