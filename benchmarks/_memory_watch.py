"""Memory that processes hold while a command runs, looked at every 10 ms."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

LOOK_S = 0.01
IMPORTED = "import torch, sys; sys.stdin.read()"
ONE_BY_ONE = {"OMP_PROC_BIND": "false", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Look:
    """Memory of one worker at one time (seconds since 1970), in bytes."""

    at: float
    held_bytes: int


def watched(command: Sequence[str], worker: str, folder: str) -> list[list[Look]]:
    """Run a command; what each of its processes had that has `worker` in its command line."""
    looks: dict[int, list[Look]] = {}
    with subprocess.Popen(command, cwd=folder, env=os.environ | ONE_BY_ONE, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            for child in _children(process.pid, lambda line: worker in line):
                if held := held_bytes(child):
                    looks.setdefault(child, []).append(Look(time.time(), held))
            time.sleep(LOOK_S)
    if process.returncode or not looks:
        raise SystemExit(f"{' '.join(command)} ended with status {process.returncode}")
    return list(looks.values())


def _children(process: int, wanted: Callable[[str], bool]) -> list[int]:
    found = []
    for child in psutil.Process(process).children(recursive=True):
        try:
            if wanted(" ".join(child.cmdline())):
                found.append(child.pid)
        except psutil.Error:  # it has ended meanwhile
            continue
    return found


def held_bytes(process: int) -> int:
    """Its private memory and its part of what it shares, but for files; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    facts = {name.rstrip(":"): int(rest[0]) for name, *rest in (line.split() for line in lines[1:])}
    return 1024 * (facts["Pss_Anon"] + facts["Pss_Shmem"])


@cache
def torch_bytes() -> int:
    """Memory of a process that has imported torch, and nothing else."""
    with subprocess.Popen([sys.executable, "-c", IMPORTED], stdin=subprocess.PIPE) as process:
        held, before = 1, 0
        while held != before:  # until it only waits
            time.sleep(0.5)
            before, held = held, held_bytes(process.pid)
        assert process.stdin is not None
        process.stdin.close()
    print(f"  torch: {held / 2**20:.0f} MiB")
    return held
