"""A network's tensors in a checkpoint, by slices: whoever keeps some writes them, and anyone reads what they need.

Files are safetensors. A whole tensor stands under its name, in its shape, as any other tool reads it; a slice of one as
`name[start:end]`, (end - start,), in the order in memory of the tensor, whose shape and strides the file's header says.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open

from volary.errors import RunError
from volary.exchange.gradients.plan import in_memory_order, laid_out_as
from volary.naming import named_buffers, named_modules, named_parameters, without_compiled
from volary.run.checkpoints import require_format
from volary.train.state.safetensors_file import write_safetensors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor, nn

    from volary.run.checkpoints import Manifest
    from volary.run.content import Content

WEIGHTS = "model.safetensors"  # what one process writes that keeps all of them
_HEADER = "slices"


def weights_file(writer: str) -> str:
    """The file of what `writer` keeps, which is some of the weights."""
    return f"model-{writer}.safetensors"


@dataclass(frozen=True)
class TensorSlice:
    """Values from `start` on, (n,), in the order in memory, of the dense tensor `name`, which lies as `like`."""

    name: str
    start: int
    values: Tensor
    like: Tensor


class _Described(msgspec.Struct, frozen=True, array_like=True):
    """What the header says of a slice."""

    name: str
    start: int
    shape: list[int]
    stride: list[int]


def weights_content(whole: Mapping[str, Tensor], slices: Iterable[TensorSlice] = ()) -> Content:
    """A file of whole tensors and of slices; their values are read when it is written."""
    tensors, header = dict(whole), dict[str, list[object]]()
    for one in slices:
        end = one.start + len(one.values)
        if (one.start, end) == (0, one.like.numel()):
            tensors[one.name] = laid_out_as(one.like, one.values)
        else:
            lies = torch.empty_like(one.like, device="meta")
            header[f"{one.name}[{one.start}:{end}]"] = [one.name, one.start, list(lies.shape), list(lies.stride())]
            tensors[f"{one.name}[{one.start}:{end}]"] = one.values
    metadata = {_HEADER: json.dumps(header)} if header else {}
    return lambda file: write_safetensors(file, tensors, metadata)


class SavedWeights:
    """All tensors of the network in the checkpoint in `folder`, whoever wrote which slices; read when they are used.

    Raises RunError if there are none, or what there is cannot be understood.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._pieces: dict[str, list[_Piece]] = {}
        for name in sorted(manifest.files):
            if name == WEIGHTS or (name.startswith("model-") and name.endswith(".safetensors")):
                self._open(folder / name)
        if not self._pieces:
            require_format(folder, manifest)
        for pieces in self._pieces.values():
            pieces.sort(key=lambda piece: piece.start)

    def __iter__(self) -> Iterator[str]:
        """The names of all tensors."""
        return iter(self._pieces)

    def __contains__(self, name: str) -> bool:
        return name in self._pieces

    def whole(self, name: str) -> Tensor:
        """A tensor in its shape. Raises RunError if not all of it is there."""
        first = self._pieces[name][0]
        if first.whole:
            return first.read()
        return self._values(name, 0, torch.Size(first.shape).numel()).as_strided(first.shape, first.stride)

    def values(self, name: str, like: Tensor, start: int, end: int) -> Tensor:
        """Values `start` to `end`, (end - start,), of a tensor in the order in memory of `like`, which is this tensor.

        Raises RunError if it has another shape, or not all of it is there.
        """
        self.require(name, like)
        first, lies = self._pieces[name][0], torch.empty_like(like, device="meta")
        if first.stride == lies.stride():
            return self._values(name, start, end)
        return in_memory_order(torch.empty_like(like).copy_(self.whole(name)))[start:end]

    def require(self, name: str, like: Tensor) -> None:
        """Raise RunError unless the tensor is there and has the shape of `like`."""
        found = self._pieces[name][0].shape if name in self else "missing"
        if found != tuple(like.shape):
            raise RunError(f"the checkpoint's {name} is {found}; the network's is {tuple(like.shape)}")

    def _values(self, name: str, start: int, end: int) -> Tensor:
        at, found = start, []
        for piece in self._pieces[name]:
            if piece.start <= at < min(end, piece.end):
                upto = min(end, piece.end)
                found.append(piece.read().reshape(-1)[at - piece.start : upto - piece.start])
                at = upto
        if at < end:
            raise RunError(f"the checkpoint has no values {at} to {end} of {name}")
        return torch.cat(found)

    def _open(self, path: Path) -> None:
        try:
            file: Any = safe_open(path, framework="pt")
            header = (file.metadata() or {}).get(_HEADER, "{}")
            slices = msgspec.json.decode(header, type=dict[str, _Described])
        except (SafetensorError, msgspec.MsgspecError) as error:
            raise RunError(f"{path}: the checkpoint's weights are no safetensors file: {error}") from None
        for key in file.keys():  # noqa: SIM118 - not a mapping
            size = file.get_slice(key).get_shape()
            own = _Described(key, 0, size, list(torch.empty(size, device="meta").stride()))
            one, read = slices.get(key, own), partial(file.get_tensor, key)
            end = one.start + torch.Size(size).numel()
            piece = _Piece(one.start, end, tuple(one.shape), tuple(one.stride), key not in slices, read)
            self._pieces.setdefault(without_compiled(one.name), []).append(piece)


@dataclass(frozen=True)
class _Piece:
    """Values `start` to `end` of a tensor of that shape and stride. whole: they are all, and come in its shape."""

    start: int
    end: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    whole: bool
    read: Callable[[], Tensor]


def load_weights(module: nn.Module, saved: SavedWeights) -> None:
    """Set the module's parameters and buffers. Raises RunError, naming the first tensor that does not fit."""
    own = weights_of(module)
    for name, tensor in own.items():
        saved.require(name, tensor)
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(saved.whole(name))


def load_buffers(module: nn.Module, saved: SavedWeights) -> None:
    """Set the module's buffers, of those that are saved with a network."""
    for name, buffer in named_buffers(module):
        if name in saved:
            buffer.copy_(saved.whole(name))


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name; one that is shared stands once, under its first name."""
    fleeting = {
        f"{prefix}.{name}".lstrip(".")
        for prefix, part in named_modules(module)
        for name in part._non_persistent_buffers_set
    }
    named = [*named_parameters(module), *named_buffers(module)]
    return {name: tensor.detach() for name, tensor in named if name not in fleeting}
