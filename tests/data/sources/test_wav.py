"""Sound as spectrograms: a tone is in its band, whatever the file's format."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest
import torch

from volary.data.skipping import Skipping
from volary.data.sources.wav import Wav


def write_tone(path: Path, hertz: float, *, width: int = 2, channels: int = 1, rate: int = 8000, seconds: float = 0.5):
    path.parent.mkdir(parents=True, exist_ok=True)
    tone = np.sin(2 * np.pi * hertz * np.arange(round(rate * seconds)) / rate) * 0.5
    scaled = np.round(tone * (2 ** (8 * width - 1) - 1)).astype("<i4")
    if width == 1:
        values = (scaled + 128).astype(np.uint8).tobytes()
    else:
        values = scaled.view(np.uint8).reshape(-1, 4)[:, :width].tobytes()
    frames = np.frombuffer(values, dtype=np.uint8).reshape(-1, 1, width).repeat(channels, axis=1).tobytes()
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", ""))
        file.writeframes(frames)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split in ("train", "test"):
        for name, hertz in (("low", 300), ("mid", 1000), ("top", 3000)):
            write_tone(tmp_path / split / name / "0.wav", hertz)
    return tmp_path


def test_a_tone_is_loudest_in_its_band(folder):
    source = Wav(folder=folder, rate=8000, seconds=0.5, mels=20)
    source.check()
    samples = source.open("train")
    inputs, targets = samples.fetch(torch.arange(3))
    assert (samples.input_shape, samples.input_dtype, samples.classes) == ((1, 20, 48), torch.float32, 3)
    assert targets.tolist() == [0, 1, 2]
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 4000 / 700), 22) / 2595) - 1)
    for spectrogram, hertz in zip(inputs, (300, 1000, 3000), strict=True):
        loudest = int(spectrogram[0].mean(1).argmax())
        assert edges[loudest] < hertz < edges[loudest + 2]


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
def test_formats_give_the_same_spectrogram(folder, width, channels):
    write_tone(folder / "train" / "mid" / "1.wav", 1000, width=width, channels=channels)
    inputs, _ = Wav(folder=folder, rate=8000, seconds=0.5).open("train").fetch(torch.tensor([1, 2]))
    strong = inputs[0] > 0
    assert strong.any()
    torch.testing.assert_close(inputs[0][strong], inputs[1][strong], rtol=0, atol=0.1)


def test_clips_are_cut_or_filled_up_with_silence(folder):
    inputs, _ = Wav(folder=folder, rate=8000, seconds=1.0).open("train").fetch(torch.tensor([0]))
    assert inputs.shape == (1, 1, 40, 98)
    torch.testing.assert_close(inputs[0, 0, :, 60:], torch.full((40, 38), float(np.log(1e-6))))
    assert Wav(folder=folder, rate=8000, seconds=0.1).open("train").fetch(torch.tensor([0]))[0].shape == (1, 1, 40, 8)


def test_a_file_that_is_cut_or_of_another_rate_is_skipped_and_named(folder):
    write_tone(folder / "train" / "mid" / "0.wav", 1000, rate=16000)
    cut = folder / "train" / "top" / "0.wav"
    cut.write_bytes(cut.read_bytes()[:1000])
    told: list[str] = []
    samples = Skipping(Wav(folder=folder, rate=8000).open("train"), lambda _, text: told.append(text))
    assert samples.fetch(torch.arange(3))[1].tolist() == [0]
    assert told[0].endswith(
        "mid/0.wav: not a WAV file that can be decoded (it has 16000 samples a second, and 8000 are set as `rate`)"
    )
    assert "top/0.wav: not a WAV file that can be decoded (it is truncated: " in told[1]
