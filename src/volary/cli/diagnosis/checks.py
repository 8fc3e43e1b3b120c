"""Checks which parts of Volary work on a machine, which do not, and why."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from volary.cli.command.settings import choices
from volary.cli.diagnosis.machine import Machine, TorchBuild
from volary.comm.groups import listening_sockets
from volary.engine import ROOM as ENGINES
from volary.lab.errors import LabError
from volary.lab.needs import needs_user_namespace
from volary.monitor.wording import size

FEWEST_OPEN_FILES = 1024
LEAST_FREE_BYTES = 1 << 30


@dataclass(frozen=True)
class Finding:
    """One row of `volary doctor`: a part of the machine, whether it works (yes, no or limited), and why."""

    what: str
    works: str
    why: str


def findings(machine: Machine) -> list[Finding]:
    """All findings, the most needed first."""
    if machine.torch is None:
        return [
            Finding("training", "no", "torch cannot be imported: install Volary with its dependencies"),
            *_around(machine),
        ]
    return [
        Finding("training on the CPU", "yes", f"torch {machine.torch.version} on {_cores(machine)}"),
        _several_workers(machine.torch),
        *_engines(len(machine.usable_cores)),
        _cuda(machine, machine.torch),
        _precision(machine.torch),
        *_around(machine),
    ]


def available() -> dict[str, dict[str, tuple[str, ...]]]:
    """The names that there are, for each setting that names a plug-in."""
    return {setting: {"built": tuple(choice.open().names())} for setting, choice in choices()}


def _cores(machine: Machine) -> str:
    usable = len(machine.usable_cores)
    of = f" (of {machine.cores})" if usable != machine.cores else ""
    quota = f", with a quota of {machine.core_quota:g}" if machine.core_quota else ""
    return f"{usable} core{'s' * (usable != 1)}{of}{quota}"


def _several_workers(torch: TorchBuild) -> Finding:
    what = "several workers on this machine"
    if not torch.backends["gloo"]:
        return Finding(what, "no", "this torch has no gloo, the transport between workers on CPUs")
    try:
        with socket.create_server(("127.0.0.1", 0)):
            pass
    except OSError as error:
        return Finding(what, "no", f"no socket can listen on 127.0.0.1: {error.strerror}")
    return Finding(what, "yes", "gloo, on loopback")


def _engines(workers: int) -> Iterator[Finding]:
    for name in ENGINES.names():
        refusal = ENGINES.load(name)().check(workers)
        yield Finding(f"engine={name}", "no" if refusal else "yes", refusal or f"{workers} workers, one a core")


def _cuda(machine: Machine, torch: TorchBuild) -> Finding:
    what = "train.device=cuda"
    if torch.built_for != "cpu" and torch.accelerators:
        nccl = "with nccl" if torch.backends["nccl"] else "without nccl: one worker only"
        return Finding(what, "yes", f"{', '.join(torch.accelerators)}, {nccl}")
    if machine.nvidia_devices and torch.built_for == "cpu":
        return Finding(
            what, "no", f"{machine.nvidia_devices} NVIDIA devices are here, but this torch is built for CPUs"
        )
    if torch.built_for == "cpu":
        return Finding(what, "no", "no NVIDIA device is here, and this torch is built for CPUs")
    return Finding(what, "no", f"this torch is built for {torch.built_for} but sees no device")


def _precision(torch: TorchBuild) -> Finding:
    what = "train.precision"
    if torch.built_for == "cpu" or not torch.accelerators:
        return Finding(what, "limited", "fp32 and bf16; fp16 needs a CUDA device")
    if not torch.bf16_on_accelerator:
        return Finding(what, "limited", "fp32 and fp16; this device has no bf16")
    return Finding(what, "yes", "fp32, bf16 and fp16")


def _around(machine: Machine) -> Iterator[Finding]:
    soft = machine.open_files[0]
    few = 0 <= soft < FEWEST_OPEN_FILES
    advice = f"; raise it with `ulimit -n {FEWEST_OPEN_FILES}`" if few else ""
    yield Finding("open files", "limited" if few else "yes", f"{soft} a process{advice}")
    tight = machine.disk_free_bytes < LEAST_FREE_BYTES
    yield Finding("disk", "limited" if tight else "yes", f"{size(machine.disk_free_bytes)} free here, for runs")
    if not os.access(Path.cwd(), os.W_OK):
        yield Finding("runs in this folder", "no", "it cannot be written; set run.folder")
    linux = sys.platform == "linux"
    why = "the kernel ends it with its driver" if linux else "needs Linux"
    yield Finding("no worker is left behind", "yes" if linux else "limited", why)
    open_to_strangers = listening_sockets.why_not()
    why = open_to_strangers or "nobody else can connect to a running gloo"
    yield Finding("gloo's ports are closed to strangers", "no" if open_to_strangers else "yes", why)
    try:
        how = "in a user namespace" if needs_user_namespace() else "with this process's own rights"
        yield Finding("volary lab", "yes", how)
    except LabError as missing:
        yield Finding("volary lab", "no", str(missing))
