"""The NVIDIA GPUs of this machine by number, and which of them some process computes on."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

VISIBLE = "CUDA_VISIBLE_DEVICES"
_BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # NVIDIA's library counts so, and CUDA only where it is asked to
LIBRARY = "libnvidia-ml.so.1"  # comes with the driver, and is asked without its Python package
_INSUFFICIENT_SIZE = 7


def gpus_here() -> dict[int, bool]:
    """Each GPU that this process may use, by its number, and whether somebody computes on it.

    Where NVIDIA's library is not to be found nobody does, as far as that is known.
    """
    found = _asked() or dict.fromkeys(_devices(), False)
    visible = os.environ.get(VISIBLE)
    if visible is None:
        return found
    allowed = {int(one) for one in visible.split(",") if one.strip().isdecimal()}
    return {number: used for number, used in found.items() if number in allowed}


def visible(gpus: Sequence[int] | None) -> dict[str, str]:
    """The environment variables of processes that have these GPUs, by number, and no others; None: as it is."""
    return {} if gpus is None else {VISIBLE: ",".join(map(str, gpus)), **_BY_BUS}


def _devices() -> list[int]:
    names = [path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*")]
    return sorted(int(name) for name in names if name.isdecimal())


def _asked() -> dict[int, bool]:
    if (library := _library(LIBRARY)) is None:
        return {}
    count = ctypes.c_uint()
    failed = library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    return {} if failed else {number: _computes(library, number) for number in range(count.value)}


@cache  # it takes 15 ms of a processor to open, and is asked every few seconds
def _library(name: str) -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(name)
        return None if library.nvmlInit_v2() else library
    except (OSError, AttributeError):  # no driver, or no library of NVIDIA's
        return None


def _computes(library: ctypes.CDLL, number: int) -> bool:
    handle, processes = ctypes.c_void_p(), ctypes.c_uint(0)
    if library.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle)):
        return False
    # asked with no room for what it lists: there is too little of that only if somebody computes
    answer = library.nvmlDeviceGetComputeRunningProcesses(handle, ctypes.byref(processes), None)
    return bool(answer == _INSUFFICIENT_SIZE)
