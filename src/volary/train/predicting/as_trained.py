"""Inputs for a source that cannot read files without targets itself, prepared as the samples of training were."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from volary.data.decoding.images import SUFFIXES as IMAGES
from volary.data.decoding.images import ImageDecoder
from volary.data.loading.pipeline import Pipeline
from volary.data.loading.scale import Scale
from volary.data.memory import InMemory
from volary.data.unlabelled.array_file import SUFFIXES as ARRAYS
from volary.data.unlabelled.array_file import rows_of
from volary.data.unlabelled.image_files import image_files
from volary.data.unlabelled.unlabelled import Unlabelled
from volary.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from volary.data.datasets.stream import Stream
    from volary.data.samples import Samples


def as_trained(samples: Samples | Stream, given: Path, name: str) -> Unlabelled:
    """Rows of an array, or images where samples are images; bytes are scaled as those of `samples` were.

    name: of the source, in messages. Raises DataError for anything else, and for rows of another shape.
    """
    shape = samples.input_shape
    scale, shift = (samples.scale, samples.shift) if isinstance(samples, InMemory) else (None, 0.0)
    if given.suffix in ARRAYS:
        array = rows_of(given, "inputs")
        if array.shape[1:] != shape:
            raise DataError(f"{given}: a row has the shape {array.shape[1:]}; accepted: {shape}, as in training")
        rows = torch.from_numpy(array)
        if array.dtype != "uint8" or scale is None:
            rows, scale = rows.to(samples.input_dtype), None
        return Unlabelled(InMemory(rows, torch.zeros(len(array), dtype=torch.int64), None, scale, shift))
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise DataError(f"{given}: source {name!r} takes a .npy or .npz with rows of the shape {shape} here")
    if not given.is_dir() and given.suffix.lower() not in IMAGES:
        raise DataError(f"{given}: accepted: images, or a .npy or .npz with rows of the shape {shape}")
    files, names = image_files(given)
    decoder = ImageDecoder(shape[0], shape[1] if shape[1] == shape[2] else None)
    scaled = Scale(1 / 255, 0.0) if scale is None else Scale(scale, shift)
    pipeline = Pipeline(files, torch.zeros(len(names), dtype=torch.int64), None, decoder, scaled)
    if pipeline.input_shape != shape:
        raise DataError(f"{given}: images become {pipeline.input_shape}; accepted: {shape}, as in training")
    return Unlabelled(pipeline, names.__getitem__)
