"""Workers keep freed memory or return it, and ask for huge pages for large tensors unless users forbid it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

ASKED = """
import torch
def asked():
    tensor, inside = torch.zeros(2**22), False
    for line in open("/proc/self/smaps"):
        head, *flags = line.split()
        if "-" in head:
            start, end = (int(edge, 16) for edge in head.split("-"))
            inside = start <= tensor.data_ptr() + tensor.nbytes // 2 < end
        elif head == "VmFlags:" and inside:
            return "hg" in flags
"""
PROGRAM = f"""
from volary.run.machine.allocator import take_huge_pages
take_huge_pages()
{ASKED}
print(asked())
"""
NETWORK = f"""
{ASKED}
class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(784, 10))
        print("huge pages", asked())
"""

KEPT = """
from pathlib import Path
from volary.run.machine.allocator import keep_freed_memory, return_freed_memory

def after():
    blocks = [b"x" * 2**22 for _ in range(16)]
    del blocks
    return int(Path("/proc/self/statm").read_text().split()[1]) >> 8  # MiB, of pages of 4 kB

keep_freed_memory()
kept = after()
return_freed_memory()
print(kept - after() > 48, after() - after() < 16)
"""

has_huge_pages = pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage/enabled").exists(), reason="this kernel has no huge pages to ask for"
)


@pytest.mark.skipif("glibc" not in platform.libc_ver(), reason="another C library")
def test_freed_memory_is_kept_or_returned_as_a_worker_says():
    said = subprocess.run([sys.executable, "-c", KEPT], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.split() == ["True", "True"]


@has_huge_pages
@pytest.mark.parametrize(("wanted", "asked"), [(None, True), pytest.param("0", False, marks=pytest.mark.slow)])
def test_large_tensors_lie_where_huge_pages_were_asked_for_unless_the_user_says_otherwise(wanted, asked):
    environment = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"}
    environment |= {} if wanted is None else {"THP_MEM_ALLOC_ENABLE": wanted}
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert said.stdout.split() == [str(asked)]


@has_huge_pages
@pytest.mark.slow  # what is asked for comes above
def test_workers_ask_whoever_they_were_forked_from():
    Path("net.py").write_text(NETWORK)
    Path("session.yaml").write_text(
        "network: net.py:Net\ndata: {source: digits, batch_size: 16}\noptimizer: {name: sgd, lr: 0.1}\n"
        "train: {steps: 1}\nstrategy: {workers: 2}\n"
    )
    subprocess.run([sys.executable, "-m", "volary", "train", "session.yaml"], check=True, timeout=120)
    (log,) = Path("runs").glob("*/logs/worker-1.log")
    assert "huge pages True" in log.read_text()
