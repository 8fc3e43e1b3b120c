"""The memory that processes on this machine can still take, and what a worker takes before it has a network."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from volary.errors import SettingError

# measured on Linux with torch 2.13 for CPUs and hardly a parameter: a process that has imported torch and Volary holds
# 160 MiB for itself, and each worker that is forked from it 30 to 46 more
IMPORTED_BYTES = 160 << 20
WORKER_BYTES = 32 << 20
CODEC_BYTES = 64 << 20  # Numba with the loops of a codec, in each worker: with one it holds 77 to 98 MiB for itself
FITS = 0.75  # share of what is available from which on it is tight
CLEARLY_NOT = 1.25  # from here on it does not fit, even if the estimate is wrong by a fifth
_GIB = 1 << 30


def available_bytes(system: Path = Path("/")) -> int | None:
    """Memory that can be taken without others being ended: the machine's, or a control group's limit if less is left.

    None where the system does not say.
    """
    found = list(_left_in_groups(system))
    if (machine := _left_on_machine(system)) is not None:
        found.append(machine)
    return max(0, min(found)) if found else None


def total_bytes(system: Path = Path("/")) -> int | None:
    """Memory that the processes of this machine, or of a control group with a limit, can have in all; None: unknown."""
    found = [1024 * kib for name, kib in _facts(system / "proc/meminfo").items() if name == "MemTotal"]
    groups = system / "sys/fs/cgroup"
    for root, limit in ((groups, "memory.max"), (groups / "memory", "memory.limit_in_bytes")):
        for group in _groups(system, root):
            with contextlib.suppress(OSError, ValueError):
                found.append(int((group / limit).read_text()))
    return min(found) if found else None


def held_bytes(pid: int, system: Path = Path("/")) -> int | None:
    """Memory that a process and all below it hold: what several have counts once, divided among them (PSS).

    None where the system does not say.
    """
    found, waiting = None, [pid]
    while waiting:
        process = system / "proc" / str(waiting.pop())
        with contextlib.suppress(OSError):
            for task in (process / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        held = _facts(process / "smaps_rollup").get("Pss")
        found = found if held is None else (found or 0) + 1024 * held
    return found


def judge(needed: int, available: int | None, words: str, accepted: str) -> str | None:
    """A sentence if memory is tight. words: what needs it. Raises SettingError if it clearly does not fit."""
    if available is None or needed <= FITS * available:
        return None
    sentence = f"{words} about {needed / _GIB:.1f} GiB of memory, and {available / _GIB:.1f} GiB are available"
    if needed > CLEARLY_NOT * available:
        raise SettingError(f"{sentence}; accepted: {accepted}")
    return sentence


def _left_on_machine(system: Path) -> int | None:
    facts = _facts(system / "proc/meminfo")
    if "MemAvailable" not in facts:
        with contextlib.suppress(OSError, ValueError):
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
        return None
    return 1024 * (facts["MemAvailable"] + facts.get("SwapFree", 0))


def _left_in_groups(system: Path) -> Iterator[int]:
    """The bytes that are left in each control group of this process that has a limit; version 2, then 1."""
    for root, names in (
        (system / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")),
        (system / "sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")),
    ):
        limit, used, reclaimable = names
        for group in _groups(system, root):
            with contextlib.suppress(OSError, ValueError):
                most, taken = (int((group / name).read_text()) for name in (limit, used))
                yield most - taken + _facts(group / "memory.stat").get(reclaimable, 0)


def _groups(system: Path, root: Path) -> Iterator[Path]:
    """The process's own group of memory under `root`, and those that it lies in."""
    own = ""
    with contextlib.suppress(OSError):
        for line in (system / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "" if root.name == "cgroup" else "memory" in controllers.split(","):
                own = path
                break
    # in a container the path may be the host's, and only the root is there
    group = root / own.lstrip("/")
    while group != root:
        yield group
        group = group.parent
    yield root


def _facts(file: Path) -> dict[str, int]:
    """Lines such as "MemAvailable:  1024 kB" or "inactive_file 4096"."""
    with contextlib.suppress(OSError):
        rows = [line.replace(":", " ").split() for line in file.read_text().splitlines()]
        return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}
    return {}
