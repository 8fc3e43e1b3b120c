"""The NVIDIA GPUs of this machine by number, and which of them some process computes on."""

from __future__ import annotations

import os
from pathlib import Path

VISIBLE = "CUDA_VISIBLE_DEVICES"
BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # NVIDIA's library counts so, and CUDA only where it is asked to


def gpus_here() -> dict[int, bool]:
    """Each GPU that this process may use, by its number, and whether somebody computes on it.

    Without NVIDIA's Python library (`pip install nvidia-ml-py`) nobody does, as far as that is known.
    """
    found = _asked() or dict.fromkeys(_devices(), False)
    visible = os.environ.get(VISIBLE)
    if visible is None:
        return found
    allowed = {int(one) for one in visible.split(",") if one.strip().isdecimal()}
    return {number: used for number, used in found.items() if number in allowed}


def _devices() -> list[int]:
    names = [path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*")]
    return sorted(int(name) for name in names if name.isdecimal())


def _asked() -> dict[int, bool]:
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
            computing = [bool(pynvml.nvmlDeviceGetComputeRunningProcesses(handle)) for handle in handles]
        finally:
            pynvml.nvmlShutdown()
    except Exception:  # no such package; or no driver: it has errors of its own for that
        return {}
    return dict(enumerate(computing))
