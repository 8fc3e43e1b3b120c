"""Mean images: .binaryproto, a single blob with the sizes (1, C, H, W), and .npy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.network.caffe.weights.blob import blob_of
from volary.network.caffe.weights.files import content_of, read_message

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

_NUMPY = b"\x93NUMPY"


def read_mean(file: Path) -> NDArray[numpy.float32]:
    """The mean image in a file, shape (channels, height, width) or (channels,), as float32.

    Raises SettingError for a file that has none; nothing in it is unpickled.
    """
    import numpy as np

    if bytes(content_of(file)[: len(_NUMPY)]) == _NUMPY:
        try:
            found = np.load(file, mmap_mode="r", allow_pickle=False)  # as large as the file at most
        except Exception as error:  # numpy parses the header as Python, with whatever that raises
            raise SettingError(f"{file}: is no array of numbers ({str(error).splitlines()[0][:200]})") from None
        found = found.astype(np.float32) if found.dtype.kind in "fiu" else found.reshape(-1)[:0]
    else:
        try:
            found = blob_of(read_message(file, "BlobProto")).values()
        except ValueError as error:
            raise SettingError(f"{file}: the mean {error}") from None
    if found.ndim == 4 and found.shape[0] == 1:
        found = found[0]
    if found.ndim not in (1, 3) or not found.size or not np.isfinite(found).all():
        raise SettingError(f"{file}: is no mean image; accepted: (channels, height, width) or (channels,), finite")
    image: NDArray[numpy.float32] = found
    return image
