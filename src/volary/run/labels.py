"""The metadata of a file of weights, in the safetensors format, which readers of weights skip."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_LENGTH_BYTES = 8  # the header's length, little endian, before the header
_ALIGNED_TO = 8


def labelled(weights: bytes, labels: Mapping[str, str]) -> bytes:
    """The safetensors file `weights` with `labels` as its metadata; tensors stay as they are."""
    length = int.from_bytes(weights[:_LENGTH_BYTES], "little")
    tensors = _LENGTH_BYTES + length
    header = json.loads(weights[_LENGTH_BYTES:tensors])
    return header_bytes({"__metadata__": dict(labels)} | header) + weights[tensors:]


def header_bytes(header: Mapping[str, Any]) -> bytes:
    """Make the bytes before the tensors of a safetensors file."""
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED_TO)
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text
