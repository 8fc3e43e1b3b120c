"""Samples of Linux's `perf` of all processors, by stretch of time, thread and kind of work, for step_cpu.py."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from volary.errors import DataError

STRETCHES = "stretches.json"  # among a run's results: when each stretch began and ended, by name
ALONE = "no exchange"
HERTZ = 997
TRAINING = "training"
PRODUCTS = "matrix products"
MARK = "v:"  # begins the names of the threads of ranks; the kernel keeps 15 characters
THREADS = {"MainThread": TRAINING}

# of a sample in the kernel, any function in the chain of calls says what for
KERNEL = {
    r"net_rx_action|net_tx_action|handle_softirqs|sysvec|irqentry": "interrupts: packets",
    r"sendmsg|sendto|sock_write|writev|tcp_push": "send",
    r"recvmsg|recvfrom|sock_read|readv": "receive",
    r"epoll": "wait for sockets",
    r"futex": "wait for threads",
    r"page_fault|mmap|munmap|madvise": "memory",
}
# of any other, its function, or else the file that this is from
FUNCTIONS = {
    r"gloo::": "gloo",
    r"gemm|gemv|mkl_blas|mkldnn|dnnl|brgemm": PRODUCTS,
    r"sgd_kernel": "update",
    r"memcpy|memmove|direct_copy|copy_kernel|copy_stub": "copies",
}
FILES = {
    r"libtorch|libc10|libmkl": "torch, other",
    r"libpython|bin/python|_core\.cpython|_rust\.abi3": "interpreter",
    r"/libc[.-]|libgomp|ld-linux|libstdc|libm\.|vdso": "C library",
    r"unknown|perf-\d+|anon|\(deleted\)|memfd": "compiled at run time",
}


def mark_threads() -> None:
    """Let perf know this rank's threads by the names that they have in Python."""
    for thread in threading.enumerate():
        name = THREADS.get(thread.name, thread.name)
        Path(f"/proc/self/task/{thread.native_id}/comm").write_text(MARK + name, encoding="utf-8")


@contextmanager
def recorded(file: Path) -> Iterator[None]:
    """Let perf write samples of all processors to `file` meanwhile. Raises DataError if there is no perf."""
    if shutil.which("perf") is None:
        raise DataError("there is no perf here: install your distribution's linux-perf, and be root")
    how = ["-a", "-e", "cpu-clock", "-F", str(HERTZ), "-k", "CLOCK_MONOTONIC", "-g"]
    command = ["perf", "record", "--quiet", *how, "-o", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    if not file.exists():
        raise DataError(f"perf recorded nothing: {said.strip()}")


def by_thread(file: Path, began_s: float, ended_s: float) -> Mapping[tuple[str, str], float]:
    """CPU seconds of all ranks by thread and kind of work between two times of CLOCK_MONOTONIC."""
    found: dict[int, Counter[tuple[str, str]]] = {}
    for pid, name, chain in _samples(file, began_s, ended_s):
        found.setdefault(pid, Counter())[name, _kind(chain)] += 1
    ranks = [one for one in found.values() if any(name == MARK + TRAINING for name, _ in one)]
    total = sum(ranks, Counter[tuple[str, str]]())
    return {(name.removeprefix(MARK), kind): count / HERTZ for (name, kind), count in total.items()}


def _samples(file: Path, began_s: float, ended_s: float) -> Iterator[tuple[int, str, list[str]]]:
    """Process, thread's name, and calls, the innermost first, of each sample."""
    command = ["perf", "script", "-i", str(file), "--time", f"{began_s:.6f},{ended_s:.6f}"]
    command += ["-F", "comm,pid,tid,time,ip,sym,dso"]
    said = subprocess.run(command, capture_output=True, text=True, errors="replace", check=True).stdout
    for block in said.split("\n\n"):
        head, *chain = block.strip("\n").split("\n")
        if known := re.match(r"\s*(.*?)\s+(\d+)/\d+\s+[\d.]+:", head):
            yield int(known[2]), known[1], chain


def _kind(chain: Sequence[str]) -> str:
    leaf = chain[0] if chain else ""
    if "[kernel" in leaf:
        whole = "\n".join(line for line in chain if "[kernel" in line)
        return next((name for pattern, name in KERNEL.items() if re.search(pattern, whole)), "kernel, other")
    function, _, file = leaf.rpartition(" (")
    known = [name for pattern, name in FUNCTIONS.items() if re.search(pattern, function)]
    known += [name for pattern, name in FILES.items() if re.search(pattern, file)]
    return next(iter(known), "other")
