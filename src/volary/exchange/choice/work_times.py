"""Seconds of a core that codecs, factors and bytes cost: measured on this machine, kept for later runs.

They are in the user's cache directory. Each is measured when a run first asks for it, in some milliseconds, and again
by the next runs, until there are several figures: the least counts, as load makes work longer and never shorter.
"""

from __future__ import annotations

import logging
import platform
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

import msgspec
import torch

import volary
from volary.codec._base import FrameCodec
from volary.codec.kernels.batches import MatrixBatch
from volary.exchange.choice.costs import WorkTimes
from volary.run.machine.kept_figures import keep, path_of

FILE = "codecs.json"
ROWS, COLUMNS = 4096, 1024  # beyond what caches hold, as gradients are
SMALL, SMALL_MATRICES = 16, 64  # rows and columns of one that takes little time beside what each takes; how many
FEWEST_ROWS, PRODUCTS = 256, 64
MESSAGE_BYTES, MESSAGES = 1 << 18, 16
TRIES = 3
RUNS = 4  # that measure: a machine is hardly busy in all of them

_log = logging.getLogger(__name__)


def work_times(codecs: Mapping[str, FrameCodec]) -> WorkTimes:
    """Measure the work of these codecs, by name. The first measurement compiles a codec that is compiled at all."""
    kept = _read()
    known = {name: list(figures) for name, figures in kept.get(_machine(), {}).items()}
    wanted: dict[str, Callable[[], float]] = {"product": _product_s, "byte": _byte_s}
    wanted |= {repr(codec): _codec_timer(codec) for codec in codecs.values()}
    wanted |= {_matrix_of(codec): partial(_matrix_s, codec) for codec in codecs.values() if codec.by_rows}
    missing = [name for name in wanted if len(known.get(name, [])) < RUNS]
    for name in missing:
        known.setdefault(name, []).append(wanted[name]())
    if missing:
        try:
            keep(FILE, msgspec.json.format(msgspec.json.encode(kept | {_machine(): known})) + b"\n")
        except OSError as error:
            _log.info("what codecs cost could not be kept: %s", error)
    least = {name: min(known[name]) for name in wanted}
    return WorkTimes(
        {name: least[repr(codec)] for name, codec in codecs.items()},
        least["product"],
        least["byte"],
        {name: least[_matrix_of(codec)] for name, codec in codecs.items() if codec.by_rows},
    )


def _matrix_of(codec: FrameCodec) -> str:
    return f"a matrix among others of {codec!r}"


def _machine() -> str:
    """The key that figures are kept under: other software or another processor has others."""
    processor = platform.processor() or platform.machine()
    return f"{socket.gethostname()}, {processor}, volary {volary.__version__}, torch {torch.__version__}"


def _read() -> dict[str, dict[str, list[float]]]:
    path = path_of(FILE)
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, list[float]]])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        _log.warning("%s is ignored, as it cannot be read (%s); codecs are measured anew", path, error)
        return {}


def _codec_timer(codec: FrameCodec) -> Callable[[], float]:
    return lambda: _codec_s(codec)


def _codec_s(codec: FrameCodec) -> float:
    """Seconds of a value that is encoded with error feedback, added by its owner and decoded by everybody."""
    return _quickest_s(_once(codec, ROWS, COLUMNS)) / (ROWS * COLUMNS)


def _matrix_s(codec: FrameCodec) -> float:
    """Seconds of a small matrix among others: nearly all of it is what does not grow with its values."""
    batch = MatrixBatch(codec, [(SMALL, SMALL)] * SMALL_MATRICES)
    values, memory = torch.linspace(-1, 1, batch.size), torch.zeros(batch.memory_values)
    frames, residual = torch.empty(batch.frame_bytes, dtype=torch.uint8), torch.zeros_like(values)

    def once() -> None:
        codec.encode_each(batch, values, residual, frames, memory)
        codec.add_each(batch, frames, residual)
        codec.decode_each(batch, frames, residual)

    return _quickest_s(once) / SMALL_MATRICES


def _once(codec: FrameCodec, rows: int, columns: int) -> Callable[[], None]:
    """A function that does all the work of encoding and adding so many values once."""
    values = torch.linspace(-1, 1, rows * columns).view(rows, columns)
    if not codec.by_rows:
        values = values.view(1, -1)
    frame = torch.empty(codec.frame_bytes(*values.shape), dtype=torch.uint8)
    memory = torch.zeros(codec.memory_values(*values.shape))
    out, residual = torch.zeros_like(values), torch.zeros_like(values)

    def once() -> None:
        if codec.feedback:
            codec.encode_with_feedback(values, residual, frame, memory)
        else:
            codec.encode(values, frame, memory)
        codec.add(frame, out)
        codec.decode(frame, out)

    return once


def _product_s() -> float:
    errors, inputs = torch.ones(PRODUCTS, FEWEST_ROWS), torch.ones(PRODUCTS, COLUMNS)
    out = torch.empty(FEWEST_ROWS, COLUMNS)
    return _quickest_s(lambda: torch.mm(errors.t(), inputs, out=out)) / (PRODUCTS * out.numel())


def _byte_s() -> float:
    """Seconds of a byte, of the whole process: another thread receives what is sent."""
    data, room = bytes(MESSAGE_BYTES), bytearray(MESSAGE_BYTES)
    one, other = socket.socketpair()
    with one, other:

        def receive() -> None:
            left = MESSAGE_BYTES * MESSAGES
            while left and (arrived := other.recv_into(room)):
                left -= arrived

        receiver = threading.Thread(target=receive, name="measuring", daemon=True)
        receiver.start()
        began_s = time.process_time()
        for _ in range(MESSAGES):
            one.sendall(data)
        receiver.join()
        return (time.process_time() - began_s) / (MESSAGE_BYTES * MESSAGES)


def _quickest_s(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(TRIES):
        began_s = time.process_time()  # others may have the cores meanwhile
        work()
        times.append(time.process_time() - began_s)
    return min(times)
