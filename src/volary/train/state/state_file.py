"""State as a file: tensors, numbers, text and containers of these. Nothing that is read from one can run."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.serialization import config

from volary.errors import RunError
from volary.run.content import whole


@dataclass(frozen=True)
class StateContent:
    """The file of a state; tensors go from where they are straight to the disk. See `TensorContent`."""

    state: Any

    def __call__(self, file: Any) -> None:
        # the sum of a whole tensor at once would hold up the steps beside it; a checkpoint has checksums of its files
        with config.patch("save.compute_crc32", False):  # type: ignore[attr-defined]  # torch adds it when imported
            torch.save(self.state, file)

    def of(self, state: Any) -> StateContent:
        return StateContent(state)


def packed(state: Any) -> bytes:
    """The bytes of a file with this state."""
    return whole(StateContent(state))


def unpacked(data: bytes | Path, name: Path) -> Any:
    """The state in the bytes, or in the file, whose tensors then stay on the disk until they are used.

    name: of the file, for the message. Raises RunError for anything else; nothing of it has run.
    """
    source = data if isinstance(data, Path) else io.BytesIO(data)
    try:
        return torch.load(source, weights_only=True, map_location="cpu", mmap=isinstance(data, Path))
    except Exception as error:  # foreign bytes raise whatever they like, and torch's words advise to trust them
        raise RunError(
            f"{name}: damaged, or holds more than tensors and plain values: refused, nothing of it ran"
        ) from error
