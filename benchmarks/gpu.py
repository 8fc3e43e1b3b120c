"""What do Volary's loop, its exchange and its codecs cost on a CUDA device?

    python benchmarks/gpu.py [--quick] [--only NAME] [--json FILE] [--device cpu]

Without a CUDA device it says so and ends; `--device cpu` tries the script there. `resnet18-gpu-1` and `gpt-gpu-1`: one
worker's loop as `volary train` runs it, against a hand-written PyTorch loop. `resnet18-gpu-2`, `gpt-gpu-2`: two workers
on one device over torch's gloo, which carries sums over the processor's memory, against DistributedDataParallel over
the same; NCCL refuses two ranks of one device, and a session asks for a device for each worker, so these are measured
below sessions. The same network, initial values and kind of batches from memory, SGD with momentum (fused), fp32; both
read the loss of each step. A pair is a turn of each, of about a second; ratio: the median of the pairs.

`NAME-gpu`: a codec contributes 100 MB of values and adds the frames (as in encoding.py) on the device, against the same
on one core of the processor, where loops are compiled; on a device codecs use torch's operations.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from _gpu_turns import FOUND
from _report import Options, Paired, Row, arguments, paired, report
from encoding import Work
from volary.codec import ROOM

AT_MOST_S = 120.0
CODECS = ("onebit", "int8", "topk", "threshold", "powersgd", "fp16", "bf16")


@dataclass(frozen=True)
class Case:
    """A row of training. batch_size: samples of a step over all workers."""

    network: Any
    source: Mapping[str, Any]
    batch_size: int
    workers: int
    wanted: str


RESNET: tuple[Any, dict[str, Any], int] = (
    "resnet18",
    {"name": "synthetic", "shape": (3, 32, 32), "samples": 4096},
    128,
)
GPT: tuple[Any, dict[str, Any], int] = (
    {"name": "gpt", "dropout": 0.0},
    {"name": "synthetic", "kind": "tokens", "shape": (128,), "classes": 65, "samples": 4096},
    32,
)
CASES = {
    "resnet18-gpu-1": Case(*RESNET, workers=1, wanted="at most 1.03"),
    "gpt-gpu-1": Case(*GPT, workers=1, wanted="at most 1.03"),
    "resnet18-gpu-2": Case(*RESNET, workers=2, wanted="at most 1.00"),
    "gpt-gpu-2": Case(*GPT, workers=2, wanted="at most 1.00"),
}


def main() -> None:
    """Run the rows that are asked for."""
    rows: dict[str, Callable[[Options], Row]] = {name: _training_row(name) for name in CASES}
    rows |= {f"{name}-gpu": _codec_row(name) for name in CODECS}
    options = arguments(__doc__, list(rows), _device_option)
    if options.more.device == "cuda" and not torch.cuda.is_available():
        print("skipped: this machine has no CUDA device, or this torch cannot use it")
        return
    found = []
    for name, row in rows.items():
        if options.wants(name):
            try:
                found.append(row(options))
            except (RuntimeError, TypeError, subprocess.SubprocessError) as reason:  # figures of other rows are of use
                print(f"{name}: failed: {reason}")
    report(found, options.json)


def _device_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: to try the script without one")


def _training_row(name: str) -> Callable[[Options], Row]:
    def row(options: Options) -> Row:
        case = CASES[name]
        found = _turns(case, options)
        peer = "PyTorch loop" if case.workers == 1 else "DDP over gloo"
        return _row(name, found, "s per step", peer, case.wanted)

    return row


def _turns(case: Case, options: Options) -> Paired:
    """Both loops in as many processes as there are workers. Raises CalledProcessError and TimeoutExpired."""
    effort = {"pairs": 3, "turn_s": 0.3} if options.quick else {"pairs": 7, "turn_s": 1.0}
    with tempfile.TemporaryDirectory() as folder:
        work = asdict(case) | effort | {"size": case.workers, "folder": folder, "device": options.more.device}
        program = str(Path(__file__).with_name("_gpu_turns.py"))
        ranks = [
            subprocess.Popen([sys.executable, program, json.dumps(work | {"rank": rank})])
            for rank in range(case.workers)
        ]
        try:
            for rank in ranks:
                if status := rank.wait(AT_MOST_S):
                    raise subprocess.CalledProcessError(status, program)
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
        return Paired(**json.loads(Path(folder, FOUND).read_text(encoding="utf-8")))


def _codec_row(name: str) -> Callable[[Options], Row]:
    def row(options: Options) -> Row:
        torch.set_num_threads(1)
        device = torch.device(options.more.device)
        there, here = (Work(ROOM.load(name)(), one) for one in (device, torch.device("cpu")))
        found = paired(lambda: _both_ms(there, device), lambda: _both_ms(here, torch.device("cpu")), 3)
        return _row(f"{name}-gpu", found, "ms", "one core", "for information")

    return row


def _both_ms(work: Work, device: torch.device) -> float:
    """Encode, decode and add once."""
    _settle(device)
    started_s = time.perf_counter()
    work.contribute()
    work.add()
    _settle(device)
    return 1000 * (time.perf_counter() - started_s)


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _row(name: str, found: Paired, unit: str, peer: str, wanted: str) -> Row:
    print(f"{name}: {found.ratio:.3f} ± {found.spread:.3f}", flush=True)
    return Row(name, found.ours, unit, peer, found.theirs, found.ratio, wanted, "lower")


if __name__ == "__main__":
    main()
