"""A library that answers as NVIDIA's does, of a machine with three GPUs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

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


def nvml(library: Path) -> Path:
    """Compile it. Skips where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source = library.with_name("nvml.c")
    source.write_text(NVML)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return library
