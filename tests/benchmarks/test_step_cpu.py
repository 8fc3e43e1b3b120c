"""The benchmark of a step's CPU seconds: what its samples are counted as, and that its rows have what a table needs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from volary.lab import LabError
from volary.lab.needs import needs_user_namespace

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.parametrize(
    ("chain", "kind"),
    [
        (["tcp_rack_update ([kernel.kallsyms])", "net_rx_action ([kernel.kallsyms])"], "interrupts: packets"),
        (["copy_user ([kernel.kallsyms])", "tcp_sendmsg ([kernel.kallsyms])", "send (/lib/libc.so.6)"], "send"),
        (["clear_page ([kernel.kallsyms])", "asm_exc_page_fault ([kernel.kallsyms])"], "memory"),
        (["schedule ([kernel.kallsyms])"], "kernel, other"),
        (["mkl_blas_avx512_sgemm_kernel (/x/libtorch_cpu.so)", "main (/usr/bin/python3.11)"], "matrix products"),
        (["gloo::transport::tcp::Pair::read() (/x/libtorch_cpu.so)"], "gloo"),
        (["at::native::gelu_kernel (/x/libtorch_cpu.so)"], "torch, other"),
        (["__memmove_avx512 (/usr/lib/libc.so.6)"], "copies"),
        (["_PyEval_EvalFrameDefault (/usr/bin/python3.11)"], "interpreter"),
        ([], "other"),
    ],
)
def test_a_sample_counts_as_what_its_function_or_its_call_into_the_kernel_is_for(monkeypatch, chain, kind):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from _perf import _kind

    assert _kind(chain) == kind


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("perf") is None, reason="needs Linux's perf")
def test_a_quick_run_of_a_row_shows_where_the_time_of_its_stretches_goes():
    try:
        needs_user_namespace()
    except LabError as reason:
        pytest.skip(str(reason))
    command = [sys.executable, str(BENCHMARKS / "step_cpu.py"), "--quick", "--only", "dense", "--json", "rows.json"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=380).stdout
    (row,) = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    assert (row["name"], row["peer"], row["better"]) == ("dense", "DDP", "lower")
    stretches = [line for line in said.splitlines() if "CPU s over all ranks" in line]
    assert [line.split(":")[0] for line in stretches] == ["DDP", "no exchange", "dense"]
    assert said.count("  training ") == len(stretches)
