"""WAV files to log-mel spectrograms (1, mels, frames) of float32."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from volary.data.decoding.decoder import Array
from volary.data.decoding.wav_file import wav_file
from volary.data.records.records import Bytes

SUFFIXES = frozenset({".wav"})
ACCEPTED = "class folders of .wav files"
_FLOOR = 1e-6  # power below which is silence


@dataclass(frozen=True)
class LogMel:
    """The natural logarithm of power in bands of the mel scale (O'Shaughnessy 1987; triangles as in HTK).

    rate: samples a second, which all files have. seconds: clips are cut or filled up with silence at their end.
    """

    rate: int
    seconds: float
    mels: int
    window_ms: float
    hop_ms: float
    kind: ClassVar[str] = "a WAV file"

    def __call__(self, record: Bytes, out: Array | None = None) -> Array:
        """Make the spectrogram of one file."""
        clip = self._clip(record)
        width, hop = self._width, max(1, round(self.hop_ms * self.rate / 1000))
        starts = np.arange(0, max(1, len(clip) - width + 1), hop)
        clip = np.pad(clip, (0, max(0, width - len(clip))))
        frames = clip[starts[:, None] + np.arange(width)] * self._hann
        power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
        values: Array = np.log(power @ self._bands + _FLOOR).astype(np.float32)
        return np.ascontiguousarray(values.T[None])

    def other(self, shape: tuple[int, ...], first: tuple[int, ...]) -> str:
        """Say nothing: settings give all samples one shape."""
        return f"has the shape {shape}, the first one {first}"

    def dropped(self) -> list[str]:
        """Say nothing: a setting cuts what is beyond `seconds`, and channels are averaged."""
        return []

    def _clip(self, record: Bytes) -> Array:
        rate, samples = wav_file(record)
        if rate != self.rate:
            raise ValueError(f"it has {rate} samples a second, and {self.rate} are set as `rate`")
        clip = samples.mean(axis=1)
        length = round(self.seconds * self.rate)
        return np.pad(clip[:length], (0, max(0, length - len(clip))))

    @property
    def _width(self) -> int:
        return max(2, round(self.window_ms * self.rate / 1000))

    @cached_property
    def _hann(self) -> Array:
        whole: Array = np.hanning(self._width + 1)
        window: Array = whole[:-1]
        return window

    @cached_property
    def _bands(self) -> Array:
        """(frequencies, mels): triangles, equally wide on the mel scale."""
        frequencies = np.fft.rfftfreq(self._width, 1 / self.rate)
        top = 2595 * np.log10(1 + self.rate / 2 / 700)
        edges = 700 * (10 ** (np.linspace(0, top, self.mels + 2) / 2595) - 1)
        rising = (frequencies[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
        falling = (edges[2:] - frequencies[:, None]) / (edges[2:] - edges[1:-1])
        bands: Array = np.maximum(0, np.minimum(rising, falling))
        return bands
