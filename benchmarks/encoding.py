"""What does it cost to encode 100 MB of gradients, and to decode and add them, beside a plain copy of as many bytes?

    python benchmarks/encoding.py [--quick] [--only NAME] [--json FILE]

One thread, fp32, 25 million normally distributed values: more than a cache holds. They are encoded as the exchange
does it, in parcels of 8 MiB and sections of 65536 values (onebit and int8: 262144; powersgd: a parcel's rows at once),
to memory that is there. The peer is torch's `copy_` of the same values to memory that is there; it takes turns with
ours. `NAME-encode` is what a worker does with a bucket: codecs that keep errors (onebit, threshold, powersgd) also add
the residual, and work out the next. `topk-encode` is selecting and packing alone; `topk-feedback` is all of it.
`NAME-decode` decodes frames and adds them to values. `torch-topk` is what a user would take instead: `torch.topk` of
the magnitudes, 1 %, indices and values. ratio: the median of the pairs' ours / the copy. Above the table: bytes of
values / bytes of frames.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Parameter

from _report import Options, Row, arguments, paired, report
from volary.codec import ROOM
from volary.codec._base import FrameCodec
from volary.exchange.compression.error_feedback import ErrorFeedback
from volary.exchange.compression.sections import cut
from volary.exchange.gradients.plan import BucketPlan
from volary.exchange.representations.frames import Frames
from volary.server.protocol.sections import Section, frames_bytes

CPU = torch.device("cpu")
SHAPE = (6250, 4000)  # 100 MB
PARCEL_MB = 8
PAIRS, QUICK_PAIRS = 31, 7
INFORMATION = "for information"


@dataclass(frozen=True)
class Case:
    """One row: a codec, and which of its operations. wanted: the bound of ours / the copy."""

    codec: str
    operation: str
    wanted: str = INFORMATION


CASES = {
    "onebit-encode": Case("onebit", "contribute", "at most 3.0"),
    "onebit-decode": Case("onebit", "add", "at most 2.2"),
    "int8-encode": Case("int8", "contribute", "at most 2.5"),
    "int8-decode": Case("int8", "add", "at most 1.5"),
    "topk-encode": Case("topk", "encode", "at most 5"),
    "topk-feedback": Case("topk", "contribute"),
    "topk-decode": Case("topk", "add"),
    "torch-topk": Case("topk", "torch"),
    "fp16-encode": Case("fp16", "contribute"),
    "fp16-decode": Case("fp16", "add"),
    "bf16-encode": Case("bf16", "contribute"),
    "bf16-decode": Case("bf16", "add"),
    "threshold-encode": Case("threshold", "contribute"),
    "threshold-decode": Case("threshold", "add"),
    "dct-encode": Case("dct", "contribute"),
    "dct-decode": Case("dct", "add"),
    "powersgd-encode": Case("powersgd", "contribute"),
    "powersgd-decode": Case("powersgd", "add"),
}


def main() -> None:
    """Run the rows that are asked for."""
    options = arguments(__doc__, list(CASES))
    torch.set_num_threads(1)
    report([_row(name, case, options) for name, case in CASES.items() if options.wants(name)], options.json)


def _row(name: str, case: Case, options: Options) -> Row:
    codec: FrameCodec = ROOM.load(case.codec)()
    work = Work(codec)
    apart = torch.empty_like(work.values)
    operation: Callable[[], object] = getattr(work, case.operation)
    found = paired(lambda: _ms(operation), lambda: _ms(lambda: apart.copy_(work.values)), _pairs(options))
    print(f"{name}: {found.ratio:.2f} ± {found.spread:.2f}; {work.saved:.2f} times fewer bytes")
    return Row(name, found.ours, "ms", "torch copy_", found.theirs, found.ratio, case.wanted, "lower")


def _pairs(options: Options) -> int:
    return QUICK_PAIRS if options.quick else PAIRS


def _ms(operation: Callable[[], object]) -> float:
    start = time.perf_counter()
    operation()
    return 1000 * (time.perf_counter() - start)


class Work:
    """A bucket of one parameter whose way is `codec`, its gradient, and frames for all of it, on `device`."""

    def __init__(self, codec: FrameCodec, device: torch.device = CPU) -> None:
        weight = Parameter(torch.empty(SHAPE, device=device))
        plan = BucketPlan([("weight", weight)], torch.float32, device, Frames(codec))
        slices = [cut(plan, codec, parcel.start, parcel.end, 1)[0] for parcel in plan.cuts(PARCEL_MB)]
        self._codec = codec
        self._residual = ErrorFeedback([plan]).of(plan)
        self._parcels = [(one, torch.zeros(frames_bytes(one), dtype=torch.uint8, device=device)) for one in slices]
        self.values = torch.randn(plan.shape.numel, generator=torch.Generator().manual_seed(0)).to(device)
        self._sum = self.values.clone()
        self.saved = 4 * self.values.numel() / sum(frame.numel() for _, frame in self._parcels)
        self.contribute()

    def contribute(self) -> None:
        """Encode all values and the residual; the new residual is kept."""
        for section, values, frame in self._sections(self.values):
            self._residual.contribute(section, values, frame)

    def encode(self) -> None:
        """Encode all values."""
        for section, values, frame in self._sections(self.values):
            if not section.exact:
                self._codec.encode(values.view(section.shapes[0]), frame, torch.empty(0))

    def add(self) -> None:
        """Add what the frames say."""
        for section, values, frame in self._sections(self._sum):
            if not section.exact:
                self._codec.add(frame, values.view(section.shapes[0]))

    def torch(self) -> None:
        """Choose 1 % with torch."""
        chosen = self.values.abs().topk(self.values.numel() // 100, sorted=False).indices
        self.values[chosen]

    def _sections(self, values: Tensor) -> Iterator[tuple[Section, Tensor, Tensor]]:
        for sections, frame in self._parcels:
            for one in sections:
                yield one, values[one.start : one.end], frame[one.offset : one.offset + one.frame_bytes]


if __name__ == "__main__":
    main()
