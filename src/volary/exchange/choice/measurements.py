"""What is known when ways are chosen, and what was chosen."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from volary.codec._base import FrameCodec
from volary.exchange.choice.costs import WorkTimes

if TYPE_CHECKING:
    from volary.codec._base import Codec, Layer
    from volary.exchange.choice.costs import LinkCosts

TRIED_ROWS, TRIED_COLUMNS, TRIED_PRODUCTS = 256, 1024, 64
TRIES = 3


@dataclass(frozen=True)
class Measurements:
    """layers: the network's. links: what carried the first steps. work: measured when somebody asks."""

    layers: Sequence[Layer]
    links: LinkCosts

    def work(self, codecs: Mapping[str, Codec]) -> WorkTimes:
        """Seconds of work on this machine, by a short trial; also compiles what is compiled at first use."""
        encoding = {name: _codec_s(codec) for name, codec in codecs.items() if isinstance(codec, FrameCodec)}
        return WorkTimes(encoding, _product_s())


@dataclass(frozen=True)
class Decision:
    """How a layer travels from now on, as plain values.

    way: its representation's name. seconds: expected, of wire and work together.
    """

    names: tuple[str, ...]
    way: str
    link_bytes: float
    seconds: float
    why: str


def _codec_s(codec: FrameCodec) -> float:
    values = torch.linspace(-1, 1, TRIED_ROWS * TRIED_COLUMNS).view(TRIED_ROWS, TRIED_COLUMNS)
    if not codec.by_rows:
        values = values.view(1, -1)
    frame = torch.empty(codec.frame_bytes(*values.shape), dtype=torch.uint8)
    memory = torch.zeros(codec.memory_values(*values.shape))
    out = torch.zeros_like(values)

    def once() -> None:
        codec.encode(values, frame, memory)
        codec.add(frame, out)
        codec.decode(frame, out)

    return _quickest_s(once) / values.numel()


def _product_s() -> float:
    errors, inputs = torch.ones(TRIED_PRODUCTS, TRIED_ROWS), torch.ones(TRIED_PRODUCTS, TRIED_COLUMNS)
    out = torch.empty(TRIED_ROWS, TRIED_COLUMNS)
    return _quickest_s(lambda: torch.mm(errors.t(), inputs, out=out)) / (TRIED_PRODUCTS * out.numel())


def _quickest_s(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(TRIES):
        started_s = time.perf_counter()
        work()
        times.append(time.perf_counter() - started_s)
    return min(times)
