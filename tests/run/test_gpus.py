"""Which GPUs there are and who computes on them: asked of a library that answers as NVIDIA's does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from volary.run.machine import gpus

# three GPUs: somebody computes on the second, and the third has fallen off the bus (NVML_ERROR_GPU_IS_LOST)
NVML = """
#include <stddef.h>
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned number, void **handle) {
    *handle = (void *)(size_t)(0x7f0000000000 + number); return number == 2 ? 15 : 0; }
int nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned *count, void *list) {
    unsigned there = (size_t)handle == 0x7f0000000001 ? 2 : 0;
    int small = there > *count; *count = there; return small ? 7 : 0; }
"""


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    Path("nvml.c").write_text(NVML)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", "nvml.so", "nvml.c"], check=True)
    monkeypatch.setattr(gpus, "LIBRARY", str(Path("nvml.so").absolute()))
    monkeypatch.delenv(gpus.VISIBLE, raising=False)


def test_gpus_that_somebody_computes_on_are_known_by_their_numbers(three, monkeypatch):
    assert gpus.gpus_here() == {0: False, 1: True, 2: False}
    monkeypatch.setenv(gpus.VISIBLE, "1,2")
    assert gpus.gpus_here() == {1: True, 2: False}


def test_a_library_that_is_none_of_nvidia_s_is_as_good_as_none(monkeypatch):
    monkeypatch.setattr(gpus, "LIBRARY", "libc.so.6")
    monkeypatch.setattr(gpus, "_devices", lambda: [0])
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    assert gpus.gpus_here() == {0: False}
