"""Sounds that are looked at: how long they are, their rates, and small pictures of their spectrograms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from volary.data.decoding.sound import LogMel
from volary.data.decoding.wav_file import wav_file
from volary.data.looking.pictures import Picture, link_of

if TYPE_CHECKING:
    from volary.data.records.records import Records

MELS, WINDOW_MS, HOP_MS = 40, 25.0, 10.0  # as the source has them
LONGEST_S = 10.0  # of a clip that a session is proposed for


@dataclass(frozen=True)
class SeenSounds:
    """Some sounds. rates: samples a second, by the sounds that have them. longest_s: of them; 0 if none can be read."""

    pictures: list[Picture]
    damaged: list[str]
    rates: dict[int, int]
    longest_s: float

    @property
    def clip_s(self) -> float:
        """Seconds that hold each of them, or `LONGEST_S`."""
        return min(LONGEST_S, max(0.1, math.ceil(100 * self.longest_s) / 100))


def sounds(records: Records, numbers: Iterable[int], within: Path, class_of: Callable[[int], str]) -> SeenSounds:
    """Look at these records. within: their names are shortened by it; a file out of it, by a link, is left out."""
    found = SeenSounds([], [], {}, 0.0)
    longest_s = 0.0
    for number in numbers:
        name = Path(records.name(number))
        if not name.resolve().is_relative_to(within.resolve()):
            continue
        try:
            record = records.read(number)
            rate, samples = wav_file(record)
            seconds = len(samples) / rate
            picture = LogMel(rate, min(seconds, LONGEST_S), MELS, WINDOW_MS, HOP_MS)(record)[0]
        except Exception as problem:  # foreign bytes
            found.damaged.append(f"{name}: cannot be read ({str(problem) or type(problem).__name__})")
            continue
        longest_s = max(longest_s, seconds)
        found.rates[rate] = found.rates.get(rate, 0) + 1
        low, high = float(picture.min()), float(picture.max())
        grey = ((picture - low) / max(high - low, 1e-12) * 255).astype(np.uint8)
        link = link_of(np.ascontiguousarray(grey[::-1, :, None]))  # high notes above
        short, size = name.relative_to(within).as_posix(), f"{seconds:.2f} s at {rate:,} a second"
        found.pictures.append(Picture(short, class_of(number), grey.shape[1], grey.shape[0], True, link, size))
    return SeenSounds(found.pictures, found.damaged, found.rates, longest_s)
