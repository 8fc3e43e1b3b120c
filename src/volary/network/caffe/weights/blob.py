"""One array of Caffe's, with its shape, as it is in a file."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from volary.network.caffe.message import CaffeMessage

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

_LEGACY = ("num", "channels", "height", "width")


@dataclass(frozen=True, eq=False)
class Blob:
    """Values in the order of their dimensions. content: little-endian, `width` bytes a value (4 or 8)."""

    shape: tuple[int, ...]
    content: bytes | memoryview
    width: int = 4

    def values(self) -> NDArray[numpy.float32]:
        """The values in their shape; the file's memory where that has float32."""
        import numpy as np

        found = np.frombuffer(self.content, "<f4" if self.width == 4 else "<f8")
        return found.astype(np.float32, copy=False).reshape(self.shape)

    @property
    def count(self) -> int:
        """How many values the blob has."""
        return prod(self.shape)


def blob_of(message: CaffeMessage) -> Blob:
    """The blob of a BlobProto. Raises ValueError if its sizes and its values do not agree."""
    width = 8 if "double_data" in message else 4
    content = message.one("double_data" if width == 8 else "data") or b""
    if "shape" in message or not any(name in message for name in _LEGACY):
        shape = tuple(message.part("shape").all("dim"))
    else:
        shape = tuple(message.one(name) for name in _LEGACY)
    if any(side < 0 for side in shape):
        raise ValueError(f"has the sizes {list(shape)}")
    if prod(shape) != len(content) // width:
        raise ValueError(f"has {len(content) // width:,} values for the sizes {list(shape)}")
    return Blob(shape, content, width)


def blob_from(values: Any, *, legacy: bool = False) -> CaffeMessage:
    """The BlobProto of an array; legacy: with four sizes, as files of 2014 have them."""
    import numpy as np

    array = np.ascontiguousarray(values, dtype="<f4")
    message = CaffeMessage("BlobProto").add("data", array.tobytes())
    if not legacy:
        return message.add("shape", CaffeMessage("BlobShape").add("dim", *map(int, array.shape)))
    for name, side in zip(_LEGACY, (1,) * (4 - array.ndim) + array.shape, strict=True):
        message.add(name, int(side))
    return message
