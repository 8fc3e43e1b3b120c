"""Measures a process and its machine: processors, memory, network, and GPUs if NVIDIA's library is there."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

PROCESS = ("cpu", "memory_bytes")
MACHINE = (
    "machine_cpu",
    "machine_cores",
    "machine_memory_bytes",
    "machine_memory_total_bytes",
    "machine_sent_bytes_per_s",
    "machine_received_bytes_per_s",
)
"""Names of what is measured, besides `gpu0`, `gpu0_memory`, `gpu1`, ...: shares of a GPU's time and of its memory.

cpu, machine_cpu: processors that were busy, in the mean since the last look.
"""


class UsageMeter:
    """Measures this process; whole_machine: and its whole machine. A look takes about 0.3 ms, at a machine 1 ms."""

    def __init__(self, *, whole_machine: bool) -> None:
        import psutil  # not needed by `volary --help`

        self._psutil, self._process, self._whole_machine = psutil, psutil.Process(), whole_machine
        self._gpus = _gpus() if whole_machine else []
        self._before: tuple[float, dict[str, float]] = (time.perf_counter(), self._counters())

    def look(self) -> dict[str, float]:
        """Measure usage since the last look, by name; leave out what the system does not report."""
        now, counters = time.perf_counter(), self._counters()
        before, old = self._before
        self._before = now, counters
        seconds = max(1e-9, now - before)
        found = {name: max(0.0, value - old.get(name, value)) / seconds for name, value in counters.items()}
        with suppress(self._psutil.Error):
            found["memory_bytes"] = float(self._process.memory_info().rss)
        return found | (self._machine() if self._whole_machine else {})

    def _counters(self) -> dict[str, float]:
        found: dict[str, float] = {}
        with suppress(self._psutil.Error):
            own = self._process.cpu_times()
            found["cpu"] = own.user + own.system
        if self._whole_machine:
            with suppress(OSError):  # a system that does not let it be read
                found["machine_cpu"] = _busy_s(self._psutil.cpu_times())
                network = self._psutil.net_io_counters()
                if network is not None:
                    found["machine_sent_bytes_per_s"] = network.bytes_sent
                    found["machine_received_bytes_per_s"] = network.bytes_recv
        return found

    def _machine(self) -> dict[str, float]:
        memory = self._psutil.virtual_memory()
        return {
            "machine_cores": float(self._psutil.cpu_count() or 1),
            "machine_memory_bytes": float(memory.total - memory.available),
            "machine_memory_total_bytes": float(memory.total),
            **{name: value for gpu, handle in enumerate(self._gpus) for name, value in _of_gpu(gpu, handle).items()},
        }


def _busy_s(times: Any) -> float:
    idle = times.idle + getattr(times, "iowait", 0.0)
    counted_twice = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - idle - counted_twice)


def _gpus() -> list[Any]:
    """Handles of NVIDIA's library; none where it, or a GPU, is not there."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
    except Exception:  # no such package; or no driver: it has errors of its own for that
        return []


def _of_gpu(number: int, handle: Any) -> dict[str, float]:
    import pynvml

    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        busy = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
        return {f"gpu{number}": busy, f"gpu{number}_memory": memory.used / memory.total}
    except pynvml.NVMLError:  # a part of a GPU (MIG) does not tell
        return {}
