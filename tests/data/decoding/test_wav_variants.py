"""Each variant of WAV is read as the tone that it holds, or refused in a sentence: the rows of docs/data.md."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from volary.data.decoding.wav_file import wav_file
from volary.data.skipping import Skipping
from volary.data.sources.wav import Wav

PAGE = Path(__file__).parents[3] / "docs" / "data.md"
TONE = 0.5 * np.sin(np.arange(800) * np.pi / 4)
TAIL = bytes.fromhex("000000001000800000aa00389b71")


def chunk(name: bytes, content: bytes, order: str = "<", length: int | None = None) -> bytes:
    said = len(content) if length is None else length
    return name + struct.pack(f"{order}I", said) + content + b"\0" * (len(content) % 2)


def wav(
    data: bytes,
    bits: int,
    coding: int = 1,
    *,
    channels: int = 1,
    order: str = "<",
    extra: bytes = b"",
    before: bytes = b"",
    width: int = 0,
    rate: int = 8000,
) -> bytes:
    frame = channels * (width or bits // 8)
    described = struct.pack(f"{order}HHIIHH", coding, channels, rate, rate * frame, frame, bits) + extra
    body = b"WAVE" + before + chunk(b"fmt ", described, order) + chunk(b"data", data, order)
    return (b"RIFF" if order == "<" else b"RIFX") + struct.pack(f"{order}I", len(body)) + body


def integers(bits: int, order: str = "<", channels: int = 1) -> bytes:
    values = np.round(TONE * (2 ** (bits - 1) - 1)).astype(f"{order}i4").repeat(channels)
    if bits == 8:
        return (values + 128).astype(np.uint8).tobytes()
    four = values.view(np.uint8).reshape(-1, 4)
    return (four[:, : bits // 8] if order == "<" else four[:, -bits // 8 :]).tobytes()


def extensible(coding: int, bits: int, order: str = "<") -> bytes:
    return struct.pack(f"{order}HHII", 22, bits, 4, coding) + TAIL[2:]


def rf64() -> bytes:
    data = integers(16)
    sizes = chunk(b"ds64", struct.pack("<QQQI", 0, len(data), 800, 0))
    described = chunk(b"fmt ", struct.pack("<HHIIHH", 1, 1, 8000, 16000, 2, 16))
    return b"RF64" + b"\xff" * 4 + b"WAVE" + sizes + described + chunk(b"data", data, length=0xFFFFFFFF)


READ: dict[str, Callable[[], bytes]] = {
    "integers of 8 bits": lambda: wav(integers(8), 8),
    "integers of 16 bits": lambda: wav(integers(16), 16),
    "integers of 24 bits": lambda: wav(integers(24), 24),
    "integers of 32 bits": lambda: wav(integers(32), 32),
    "12 bits in 16": lambda: wav((np.round(TONE * 2047).astype("<i2") << 4).tobytes(), 12, width=2),
    "20 bits in 24": lambda: wav(integers(24), 20, width=3),
    "floats of 32 bits": lambda: wav(TONE.astype("<f4").tobytes(), 32, 3, extra=b"\0\0"),
    "floats of 64 bits": lambda: wav(TONE.astype("<f8").tobytes(), 64, 3),
    "EXTENSIBLE, integers of 16 bits": lambda: wav(integers(16), 16, 0xFFFE, extra=extensible(1, 16)),
    "EXTENSIBLE, integers of 24 bits": lambda: wav(integers(24), 24, 0xFFFE, extra=extensible(1, 24)),
    "EXTENSIBLE, integers of 32 bits": lambda: wav(integers(32), 32, 0xFFFE, extra=extensible(1, 32)),
    "EXTENSIBLE, floats": lambda: wav(TONE.astype("<f4").tobytes(), 32, 0xFFFE, extra=extensible(3, 32)),
    "several channels": lambda: wav(integers(16, channels=3), 16, channels=3),
    "big-endian (RIFX)": lambda: wav(integers(16, ">"), 16, order=">"),
    "big-endian of 24 bits": lambda: wav(integers(24, ">"), 24, order=">"),
    "64 bits long (RF64, BW64)": rf64,
    "other chunks, of odd length": lambda: wav(integers(16), 16, before=chunk(b"LIST", b"odd") + chunk(b"junk", b"")),
}
REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "A-law": (lambda: wav(bytes(800), 8, 6), "its samples are coded as A-law; accepted: integers of 8, 16, 24"),
    "µ-law": (lambda: wav(bytes(800), 8, 7), "its samples are coded as µ-law; accepted"),
    "EXTENSIBLE, µ-law": (lambda: wav(bytes(800), 8, 0xFFFE, extra=extensible(7, 8)), "coded as µ-law; accepted"),
    "ADPCM": (lambda: wav(bytes(800), 4, 0x11, width=1), "its samples are coded as IMA ADPCM; accepted"),
    "MP3 in WAV": (lambda: wav(bytes(800), 0, 0x55, width=1), "its samples are coded as MP3; accepted"),
    "integers of 64 bits": (lambda: wav(bytes(800), 64), "its samples are integers of 64 bits in 8 bytes; accepted"),
    "floats of 16 bits": (lambda: wav(bytes(800), 16, 3), "its samples are floats of 16 bits in 2 bytes; accepted"),
    "a float that is no number": (
        lambda: wav(np.array([0, np.nan], "<f4").tobytes(), 32, 3),
        "its sample 1 is infinite or no number",
    ),
    "another rate": (lambda: wav(integers(16), 16, rate=16000), "it has 16000 samples a second, and 8000 are set"),
    "no samples": (lambda: wav(b"", 16), "it has 0 bytes of samples"),
    "half a sample": (lambda: wav(bytes(801), 16), "it has 801 bytes of samples; accepted: a multiple of 2"),
    "samples twice": (
        lambda: wav(integers(16), 16) + chunk(b"data", integers(16)),
        "its samples come before their format, or twice",
    ),
    "its format twice": (
        lambda: wav(integers(16), 16, before=chunk(b"fmt ", struct.pack("<HHIIHH", 1, 2, 8000, 16000, 2, 8))),
        "it has its format twice",
    ),
    "no length, as of a stream": (
        lambda: wav(b"", 16)[:-4] + b"\xff" * 4 + integers(16),
        "it does not say how many samples it has",
    ),
    "truncated": (lambda: wav(integers(16), 16)[:1000], "it is truncated: 956 bytes of 1600"),
    "a damaged format": (lambda: wav(integers(16), 16, channels=0), "its format is damaged: 0 channels"),
    "another file": (lambda: b"fLaC" + bytes(100), "it does not begin as a WAV file"),
}


@pytest.mark.parametrize("variant", READ)
def test_a_variant_holds_the_tone_in_every_channel(variant):
    found = wav_file(READ[variant]())
    assert (found.rate, found.samples.dtype, len(found.samples)) == (8000, np.float32, 800)
    coarse = {"integers of 8 bits": 0.01, "12 bits in 16": 1e-3}.get(variant, 1e-4)
    for channel in found.samples.T:
        np.testing.assert_allclose(channel, TONE, rtol=0, atol=coarse)


def test_floats_of_any_size_are_as_they_are_and_what_float32_cannot_hold_is_refused():
    assert wav_file(wav(np.array([2.5], "<f8").tobytes(), 64, 3)).samples.tolist() == [[2.5]]
    with pytest.raises(ValueError, match="its sample 0 is infinite"):
        wav_file(wav(np.array([1e300], "<f8").tobytes(), 64, 3))


def test_every_variant_has_its_row_in_the_docs_and_every_row_its_variant():
    section = PAGE.read_text(encoding="utf-8").split("\n### WAV\n")[1].split("\n##")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    assert {variant for variant, _ in rows[2:]} == {*READ, *REFUSED}
    assert {variant for variant, said in rows[2:] if said.startswith("refused")} == {*REFUSED}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split in ("train", "test"):
        for name in "ab":
            (tmp_path / split / name).mkdir(parents=True)
            (tmp_path / split / name / "0.wav").write_bytes(wav(integers(16), 16))
    return tmp_path


def test_variants_give_the_spectrogram_of_the_plain_file(folder):
    for number, variant in enumerate(sorted(READ), start=1):
        (folder / "train" / "a" / f"{number:03}.WAV").write_bytes(READ[variant]())
    inputs, targets = Wav(folder=folder, rate=8000, seconds=0.1).open("train").fetch(torch.arange(len(READ) + 2))
    assert targets.tolist() == [0] * (len(READ) + 1) + [1]
    strong = inputs[0] > 0
    assert strong.any()
    for spectrogram in inputs:
        torch.testing.assert_close(spectrogram[strong], inputs[0][strong], rtol=0, atol=0.1)


@pytest.mark.parametrize("variant", REFUSED)
def test_a_variant_that_is_not_read_is_named_with_its_file(folder, variant):
    made, sentence = REFUSED[variant]
    path = folder / "train" / "b" / "0.wav"
    path.write_bytes(made())
    told: list[str] = []
    samples = Skipping(Wav(folder=folder, rate=8000).open("train"), lambda _, text: told.append(text))
    assert samples.fetch(torch.arange(2))[1].tolist() == [0]
    assert told[0].startswith(f"{path}: not a WAV file that can be decoded (")
    assert sentence in told[0]
