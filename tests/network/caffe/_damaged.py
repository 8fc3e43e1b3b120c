"""Reads damaged files of Caffe's under limits of processor time and memory; started by test_damaged.py.

Arguments: a folder of whole files, a seed, and how many damaged ones are made of each. What is neither read nor refused
in sentences that name the file is printed, and is why the process fails.
"""

from __future__ import annotations

import io
import random
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from volary.data.formats.mean_file import read_mean
from volary.errors import VolaryError
from volary.network.caffe.describing import describe
from volary.network.caffe.module import build, inputs_of
from volary.network.caffe.reading.text import read_text
from volary.network.caffe.solver.snapshot import read_snapshot
from volary.network.caffe.source import read_net
from volary.network.caffe.weights.files import read_weights

MEMORY, PROCESSOR_S = 200 * 2**20, 1.0


def shown(file: Path) -> None:
    source = read_net(file)
    describe(source, inputs_of(source), "TEST")


READERS: dict[str, Callable[[Path], Any]] = {
    "net.prototxt": shown,
    "solver.prototxt": lambda file: read_text(file, "Solver"),
    "net.caffemodel": read_weights,
    "net.caffemodel.h5": read_weights,
    "mean.binaryproto": read_mean,
    "mean.npy": read_mean,
    "net.solverstate": read_snapshot,
}
NUMBERS = (b"0", b"-1", b"3", b"1000", b"65536", b"1000000007", b"4294967295", b"9" * 40, b"1e30", b"nan")


def damaged(whole: bytes, draw: random.Random, *, text: bool) -> bytes:
    """The same with bits flipped, a stretch cut out or repeated often, the end cut off, or another number in a text."""
    content = bytearray(whole)
    for _ in range(draw.randint(1, 3)):
        place, what = draw.randrange(len(content)), draw.randrange(5 if text else 4)
        if what == 0:
            for _ in range(draw.randint(1, 8)):
                content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        elif what == 1:
            del content[place : place + draw.randint(1, 40)]
        elif what == 2:
            content[place:place] = content[place : place + draw.randint(1, 40)] * draw.randint(1, 20_000)
        elif what == 3:
            del content[place:]
        else:
            digits = [at for at, byte in enumerate(content) if 48 <= byte <= 57]
            if digits:
                at = draw.choice(digits)
                content[at : at + 1] = draw.choice(NUMBERS)
        if not content:
            return b""
    return bytes(content)


def hostile(name: str) -> Iterator[bytes]:
    """Files that ask for much: depth, counts, lengths."""
    if name.endswith("prototxt"):
        yield b"layer {" * 500_000
        yield b'name: "a" ' * 100_000
        yield b"name: " + b'"a" ' * 1_000_000
        yield b"input_dim: " + b"9" * 4_000_000
        yield b"input_dim: 0x" + b"f" * 4_000_000
        yield b"[" * 4_000_000
        yield b"x: [" + b"1," * 2_000_000
        yield b'layer { name: "a" type: "ReLU" bottom: "a" top: "a" }\n' * 40_000
    if name == "net.prototxt":
        for field in NET_FIELDS:
            for number in (b"0", b"1000000007", b"4294967295"):
                yield net_with(field, number)
    if name in ("net.caffemodel", "mean.binaryproto", "net.solverstate"):
        yield b"\x0a\xff\xff\xff\xff\x0f" * 1000
        yield b"\xa2\x06\x00" * 5_000_000  # layers without anything
        yield (b"\x2d" + b"\x00" * 4) * 2_000_000  # values one by one
        yield b"\xff" * 1_000_000
    if name == "net.caffemodel.h5":
        yield unstored()
    if name == "mean.npy":
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 100000, 100000), }"
        yield b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + header.ljust(117) + b"\n" + b"\x00" * 64


NET_FIELDS = (
    ("Convolution", "convolution_param", "num_output", "kernel_size: 1"),
    ("Convolution", "convolution_param", "kernel_size", "num_output: 2"),
    ("Convolution", "convolution_param", "group", "num_output: 2 kernel_size: 1"),
    ("Convolution", "convolution_param", "pad", "num_output: 2 kernel_size: 1"),
    ("Deconvolution", "convolution_param", "kernel_size", 'num_output: 2 weight_filler { type: "bilinear" }'),
    ("InnerProduct", "inner_product_param", "num_output", 'weight_filler { type: "gaussian" sparse: 3 }'),
    ("Pooling", "pooling_param", "kernel_size", "pad: 0"),
    ("LRN", "lrn_param", "local_size", "norm_region: WITHIN_CHANNEL"),
    ("SPP", "spp_param", "pyramid_height", "pool: MAX"),
    ("Tile", "tile_param", "tiles", "axis: 1"),
    ("ShuffleChannel", "shuffle_channel_param", "group", ""),
    ("Reshape", "reshape_param", "axis", "shape { dim: 0 }"),
    ("Embed", "embed_param", "input_dim", "num_output: 2"),
    ("Slice", "slice_param", "slice_point", "axis: 1"),
    ("ArgMax", "argmax_param", "top_k", "axis: 1"),
)


def unstored() -> bytes:
    """HDF5 of a blob whose values are not in the file."""
    import h5py

    kept = io.BytesIO()
    with h5py.File(kept, "w") as opened:
        opened.create_dataset("data/c/0", shape=(2**30,), dtype="<f4")
        opened.create_dataset("data/c/1", shape=(2**30,), dtype="<f4", chunks=(2**16,), compression="gzip")
    return kept.getvalue()


def net_with(field: tuple[str, str, str, str], number: bytes) -> bytes:
    kind, settings, name, others = field
    text = (
        'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: [1, 4, 8, 8] } } }\n'
        f'layer {{ name: "l" type: "{kind}" bottom: "x" top: "y" {settings} {{ {others} {name}: {number.decode()} }} }}'
    )
    return text.encode()


def outcome(name: str, file: Path) -> str:
    """The fault in how a file is taken; empty if there is none."""
    try:
        signal.setitimer(signal.ITIMER_PROF, PROCESSOR_S)
        READERS[name](file)
    except VolaryError as error:
        lines = str(error).splitlines()
        return "" if lines and all(file.name in line and len(line) < 2000 for line in lines) else str(error)[:300]
    except TimeoutError:
        return f"takes more than {PROCESSOR_S:g} s of a processor"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return ""


def late(*_: object) -> None:
    raise TimeoutError


def main(folder: Path, seed: int, count: int) -> int:
    torch.set_num_threads(1)
    signal.signal(signal.SIGPROF, late)
    for name, read in READERS.items():  # what is imported, and what torch makes once
        read(folder / name)
    source = read_net(folder / "net.prototxt")
    build(source, inputs_of(source))
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    draw, found = random.Random(seed), 0
    for name in READERS:
        whole, file = (folder / name).read_bytes(), folder / f"damaged-{name}"
        files = [*(damaged(whole, draw, text=name.endswith("prototxt")) for _ in range(count)), *hostile(name)]
        for number, content in enumerate(files):
            file.write_bytes(content)
            if wrong := outcome(name, file):
                found += 1
                print(f"{name}, number {number} ({content[:200]!r}): {wrong}")
    return found


if __name__ == "__main__":
    sys.exit(min(1, main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
