"""Writes the safetensors format tensor by tensor, from where they are: the library makes a whole file in memory.

The format: the length of the header, the header, then the values of all tensors, nothing between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import _TYPES

from volary.run.labels import header_bytes

if TYPE_CHECKING:
    from torch import Tensor

_NAMES = {dtype: name for name, dtype in _TYPES.items()}


@dataclass(frozen=True)
class SafetensorsContent:
    """The file of these tensors; values are read when it is written. See `TensorContent`."""

    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str]

    def __call__(self, file: Any) -> None:
        write_safetensors(file, self.tensors, self.metadata)

    @property
    def state(self) -> dict[str, Tensor]:
        return {name: one.detach() for name, one in self.tensors.items()}

    def of(self, state: Mapping[str, Tensor]) -> SafetensorsContent:
        return SafetensorsContent(state, self.metadata)


def write_safetensors(file: Any, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a file to `file`. Memory beyond the tensors' own: a copy of one that is not contiguous, or not on the CPU.

    Raises TypeError for values that the format has no name for.
    """
    # as the library: the widest first, so that each begins at a multiple of its values' size
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name in names:
        tensor = tensors[name]
        if tensor.dtype not in _NAMES or tensor.layout != torch.strided:
            raise TypeError(f"{name} is {tensor.dtype}, {tensor.layout}; accepted: dense, and {', '.join(_TYPES)}")
        start, end = end, end + tensor.nbytes
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    file.write(header_bytes(header))
    for name in names:
        file.write(tensors[name].detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
