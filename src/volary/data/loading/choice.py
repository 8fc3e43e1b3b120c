"""Chooses who decodes samples, threads or processes, by the cost of a sample, which is measured on opening the data.

Processes do, if they can and there is enough to decode: threads wait for the interpreter's lock, with tiny samples
most of all.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

from volary.data.records.records import Forkable, Records

WORTH_S = 0.1  # of a core, for all samples: forking takes a tenth of it


@dataclass(frozen=True)
class Decoding:
    """`count` threads or processes decode. why: these and not the others."""

    by: Literal["threads", "processes"]
    count: int
    why: str


def only_threads(records: Records, own_code: bool) -> str:
    """Why processes could not decode these records; empty if they could."""
    if sys.platform != "linux":
        return "processes decode on Linux alone"
    if own_code:
        return "a transform is code of your own, which is never called in another process"
    return "" if isinstance(records, Forkable) else "only the training process can read these records"


def rather_threads(sample_s: float, samples: int) -> str:
    """Why so many samples that take so much of a core are not worth processes; empty if they are."""
    if sample_s * samples <= WORTH_S:
        return f"all samples take {sample_s * samples:.2g} s of a core, and processes are for more than {WORTH_S:g} s"
    return ""


def microseconds(seconds: float) -> str:
    """The time in microseconds, with the unit."""
    return f"{seconds * 1e6:.0f} us"
