"""Files of weights, which somebody else may have made: what is read is checked before memory is taken for it."""

from __future__ import annotations

import mmap
from pathlib import Path

from volary.errors import SettingError
from volary.network.caffe.findings import Findings
from volary.network.caffe.message import CaffeMessage
from volary.network.caffe.reading.binary import MOST_BYTES, read_binary
from volary.network.caffe.upgrade.v0 import v1_layers
from volary.network.caffe.upgrade.v1 import current_layer
from volary.network.caffe.weights.blob import Blob, blob_of
from volary.network.caffe.weights.hdf5 import SIGNATURE, blobs_in_hdf5

Weights = dict[str, list[Blob]]  # by the layer's name, in the layer's order


def content_of(file: Path) -> memoryview:
    """The bytes of a file, which the system reads as they are used. Raises SettingError if it cannot, or is empty."""
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, 2)
            if not 0 < size < MOST_BYTES:
                raise SettingError(f"{file}: has {size:,} bytes; accepted: above 0, below {MOST_BYTES:,}")
            return memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise SettingError(f"{file}: {error.strerror or error}; accepted: a file of Caffe's") from None


def read_message(file: Path, kind: str) -> CaffeMessage:
    """The binary message of this kind in a file. Raises SettingError if it is something else."""
    try:
        found = read_binary(content_of(file), kind)
    except ValueError as error:
        raise SettingError(f"{file}: is no binary protobuf of a {kind} ({error})") from None
    if not found.values:
        raise SettingError(f"{file}: is neither text nor binary protobuf: it has no field of a {kind}")
    return found


def read_weights(file: Path) -> Weights:
    """The blobs of each layer that has some, of a .caffemodel of any age or a .caffemodel.h5.

    Raises SettingError for a file that is something else, or has blobs whose sizes and values do not agree.
    """
    if bytes(content_of(file)[: len(SIGNATURE)]) == SIGNATURE:
        return blobs_in_hdf5(file)
    net, findings = read_message(file, "Net"), Findings(str(file))
    layers = net.all("layers")
    if any("layer" in layer for layer in layers):
        layers = v1_layers(layers, findings)
    found: Weights = {}
    for layer in [*net.all("layer"), *(current_layer(layer, findings) for layer in layers)]:
        blobs = []
        for number, message in enumerate(layer.all("blobs")):
            try:
                blobs.append(blob_of(message))
            except ValueError as error:
                findings.add(f"blob {number} {error}", layer=layer.one("name"))
        if blobs:
            found[layer.one("name")] = blobs
    findings.raise_if_any()
    return found
