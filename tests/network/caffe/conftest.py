"""Data that networks of Caffe's are trained on."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from network.caffe._nets import SAMPLES

SIDE = 28


@pytest.fixture
def digits(tmp_path, monkeypatch):
    """A folder of IDX files with a few images, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(1)
    images = generator.integers(0, 256, (SAMPLES, SIDE, SIDE), dtype=np.uint8)
    labels = generator.integers(0, 10, SAMPLES, dtype=np.uint8)
    labels[0] = 9  # so that there are ten classes
    for part in ("train", "t10k"):
        for name, values in (("images-idx3", images), ("labels-idx1", labels)):
            head = struct.pack(f">I{values.ndim}I", 0x800 + values.ndim, *values.shape)
            Path(f"{part}-{name}-ubyte.gz").write_bytes(gzip.compress(head + values.tobytes()))
    return torch.from_numpy(images).float().unsqueeze(1) / 255, torch.from_numpy(labels).long()
