"""A network's tensors in a checkpoint, by slices: whoever keeps some writes them, and anyone reads what they need.

Files are safetensors. A whole tensor stands under its name, in its shape, as any other tool reads it; a slice of one as
`name[start:end]`, (end - start,), in the order in memory of the tensor, whose shape and strides the file's header says.
A block of rows or columns stands in its own shape; the header says which entries of which tensor it has. A slice of a
block is a run of its values, in their order in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open

from volary.errors import RunError
from volary.exchange.gradients.plan import in_memory_order, laid_out_as, values_in
from volary.naming import named_buffers, named_modules, named_parameters, without_compiled
from volary.run.checkpoints import require_format
from volary.sharding.blocks import TensorBlock, make_whole
from volary.sharding.ranges import Range, are_all_once
from volary.train.state.safetensors_file import SafetensorsContent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch import Tensor, nn

    from volary.run.checkpoints import Manifest
    from volary.sharding.holdings import Holdings

WEIGHTS = "model.safetensors"  # what one process writes that keeps all of them
_HEADER, _BLOCKS, _RUNS = "slices", "blocks", "slices of blocks"


def weights_file(writer: str) -> str:
    """The file of what `writer` keeps, which is some of the weights."""
    return f"model-{writer}.safetensors"


@dataclass(frozen=True)
class TensorSlice:
    """The values of `part`, (size,), of a dense tensor which lies as `like`; of a `block` of one, if there is one."""

    part: Range
    values: Tensor
    like: Tensor
    block: TensorBlock | None = None


class _BlockRun(msgspec.Struct, frozen=True):
    """A slice of a block as the header describes it: from the value `start` of the block on."""

    block: TensorBlock
    start: int


class _Described(msgspec.Struct, frozen=True, array_like=True):
    """A slice as the header describes it."""

    name: str
    start: int
    shape: list[int]
    stride: list[int]


def weights_content(
    whole: Mapping[str, Tensor], slices: Iterable[TensorSlice] = (), blocks: Mapping[TensorBlock, Tensor] | None = None
) -> SafetensorsContent:
    """A file of whole tensors, of slices and of blocks, in their shapes; values are read when it is written."""
    tensors, header, cut, runs = dict(whole), dict[str, list[object]](), dict[str, object](), dict[str, object]()
    for one in slices:
        part, lies = one.part, torch.empty_like(one.like, device="meta")
        key = f"{part.name if one.block is None else block_name(one.block)}[{part.start}:{part.end}]"
        if one.block is not None:
            tensors[key], runs[key] = one.values, {"block": asdict(one.block), "start": part.start}
        elif part.size == lies.numel():
            tensors[part.name] = laid_out_as(one.like, one.values)
        else:
            header[key] = [part.name, part.start, list(lies.shape), list(lies.stride())]
            tensors[key] = one.values
    for block, values in (blocks or {}).items():
        tensors[block_name(block)], cut[block_name(block)] = values, asdict(block)
    described = {_HEADER: header, _BLOCKS: cut, _RUNS: runs}
    return SafetensorsContent(tensors, {name: json.dumps(one) for name, one in described.items() if one})


def block_name(block: TensorBlock) -> str:
    """The name of a block, which says which entries of which tensor it has."""
    return f"{block.name}[{', '.join(f'{start}:{end}' for start, end in block.spans)}; {block.dim}]"


class SavedWeights:
    """All tensors of the network in the checkpoint in `folder`, whoever wrote which slices; read when they are used.

    Raises RunError if there are none, or what there is cannot be understood.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._pieces: dict[str, list[_Piece]] = {}
        self._blocks: dict[str, dict[TensorBlock, Callable[[], Tensor]]] = {}
        self._runs: dict[TensorBlock, list[tuple[int, Callable[[], Tensor]]]] = {}
        for name in sorted(manifest.files):
            if name == WEIGHTS or (name.startswith("model-") and name.endswith(".safetensors")):
                self._open(folder / name)
        if not self._pieces and not self._blocks:
            require_format(folder, manifest)
        for name, pieces in self._pieces.items():
            pieces.sort(key=lambda piece: piece.part.start)
            for one, other in pairwise(pieces):
                if one.part.end > other.part.start:
                    raise RunError(f"{folder}: the checkpoint has some values of {name} more than once")

    def __iter__(self) -> Iterator[str]:
        """The names of all tensors."""
        return iter([*self._pieces, *self._blocks])

    def __contains__(self, name: str) -> bool:
        return name in self._pieces or name in self._blocks

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        return next(iter(self._blocks[name])).shape if name in self._blocks else self._pieces[name][0].shape

    def whole(self, name: str) -> Tensor:
        """A tensor in its shape. Raises RunError if not all of it is there, or some of it more than once."""
        if name in self._blocks:
            return self._joined(self._blocks[name])
        first = self._pieces[name][0]
        if first.whole:
            return first.read()
        every = Range(name, 0, torch.Size(first.shape).numel())
        return self._values(every).as_strided(first.shape, first.stride)

    def values(self, part: Range, like: Tensor) -> Tensor:
        """The values of `part`, (size,), of a tensor in the order in memory of `like`, which is this tensor.

        Raises RunError if it has another shape, or not all of it is there.
        """
        self.require(part.name, like.shape)
        lies = torch.empty_like(like, device="meta")
        if part.name in self._pieces and self._pieces[part.name][0].stride == lies.stride():
            return self._values(part)
        return values_in(part, torch.empty_like(like).copy_(self.whole(part.name)))

    def block(self, block: TensorBlock) -> Tensor:
        """The values of a block, in its shape. Raises as `whole`."""
        own = self._blocks.get(block.name, {}).get(block)
        return block.taken_from(self.whole(block.name)) if own is None else own()

    def require(self, name: str, shape: Sequence[int]) -> None:
        """Raise RunError unless the tensor is there and has this shape."""
        found = self.shape(name) if name in self else "missing"
        if found != tuple(shape):
            raise RunError(f"the checkpoint's {name} is {found}; the network's is {tuple(shape)}")

    def _joined(self, cut: Mapping[TensorBlock, Callable[[], Tensor]]) -> Tensor:
        first = next(iter(cut))
        if not make_whole(cut):
            raise RunError(f"the checkpoint has other blocks of {first.name} than make it whole")
        whole: Tensor | None = None
        for block, read in cut.items():
            values = read()
            whole = values.new_empty(first.shape) if whole is None else whole
            block.put_into(whole, values)
        assert whole is not None
        return whole

    def _of_runs(self, block: TensorBlock) -> Tensor:
        """A block of which there are slices. Raises RunError unless they are all of it, each once."""
        found = [(start, read()) for start, read in sorted(self._runs[block], key=lambda run: run[0])]
        if not are_all_once(((start, start + one.numel()) for start, one in found), 0, block.size):
            raise RunError(f"the checkpoint has other slices of {block_name(block)} than make it whole")
        return torch.cat([one for _, one in found]).view(block.own_shape)

    def _values(self, wanted: Range) -> Tensor:
        at, found = wanted.start, []
        for piece in self._pieces[wanted.name]:
            upto = min(wanted.end, piece.part.end)
            if piece.part.start <= at < upto:
                found.append(piece.read().reshape(-1)[at - piece.part.start : upto - piece.part.start])
                at = upto
        if at < wanted.end:
            raise RunError(f"the checkpoint has no values {at} to {wanted.end} of {wanted.name}")
        return torch.cat(found)

    def _open(self, path: Path) -> None:
        try:
            file: Any = safe_open(path, framework="pt")
            header = file.metadata() or {}
            slices = msgspec.json.decode(header.get(_HEADER, "{}"), type=dict[str, _Described])
            blocks = msgspec.json.decode(header.get(_BLOCKS, "{}"), type=dict[str, TensorBlock])
            runs = msgspec.json.decode(header.get(_RUNS, "{}"), type=dict[str, _BlockRun])
        except (SafetensorError, msgspec.MsgspecError) as error:
            raise RunError(f"{path}: the checkpoint's weights are no safetensors file: {error}") from None
        for key in file.keys():  # noqa: SIM118 - not a mapping
            if key in runs:
                run = runs[key]
                self._runs.setdefault(run.block, []).append((run.start, partial(file.get_tensor, key)))
                self._blocks.setdefault(run.block.name, {})[run.block] = partial(self._of_runs, run.block)
                continue
            if key in blocks:
                self._blocks.setdefault(blocks[key].name, {})[blocks[key]] = partial(file.get_tensor, key)
                continue
            size = file.get_slice(key).get_shape()
            own = _Described(key, 0, size, list(torch.empty(size, device="meta").stride()))
            one, read = slices.get(key, own), partial(file.get_tensor, key)
            part = Range(without_compiled(one.name), one.start, one.start + torch.Size(size).numel())
            piece = _Piece(part, tuple(one.shape), tuple(one.stride), key not in slices, read)
            self._pieces.setdefault(part.name, []).append(piece)


@dataclass(frozen=True)
class _Piece:
    """The values of `part` of a tensor of that shape and stride. whole: they are all, and come in its shape."""

    part: Range
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    whole: bool
    read: Callable[[], Tensor]


def load_weights(module: nn.Module, saved: SavedWeights, blocks: Mapping[str, TensorBlock] | None = None) -> None:
    """Set the module's parameters and buffers. Raises RunError, naming the first tensor that does not fit.

    blocks: of each tensor of which it has a block alone, by name.
    """
    own, cut = weights_of(module), blocks or {}
    for name, tensor in own.items():
        saved.require(name, cut[name].shape if name in cut else tensor.shape)
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(saved.block(cut[name]) if name in cut else saved.whole(name))


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


class ScatteredWeights:
    """Tensors of `module` of which no rank has all, as one saves them: what it owns; what nobody owns alone, rank 0.
    It reads what it keeps.

    Made while all parameters are there.
    """

    def __init__(self, module: nn.Module, holdings: Holdings) -> None:
        self._leads, named = holdings.leads, dict(named_parameters(module))
        self._owned = [(part, named[part.name]) for part in holdings.owned]
        self._kept = [(part, named[part.name]) for part, ranks in holdings.keepers.items() if holdings.rank in ranks]
        scattered = {part.name for part in holdings.keepers}
        self._others = {name: tensor for name, tensor in weights_of(module).items() if name not in scattered}

    def content(self) -> SafetensorsContent:
        """The file that this rank writes; values are read when it is written."""
        slices = [TensorSlice(part, values_in(part, parameter), parameter) for part, parameter in self._owned]
        return weights_content(self._others if self._leads else {}, slices)

    @torch.no_grad()
    def load(self, saved: SavedWeights) -> None:
        """Set what this rank keeps, and what nobody owns alone. Raises RunError, naming the first that does not fit."""
        for name, tensor in self._others.items():
            saved.require(name, tensor.shape)
            tensor.copy_(saved.whole(name))
        for name in dict.fromkeys(part.name for part, _ in self._kept):  # of which the file is read once
            parts = [(part, like) for part, like in self._kept if part.name == name]
            values = saved.values(Range(name, 0, parts[0][1].numel()), parts[0][1])
            for part, parameter in parts:
                in_memory_order(parameter.detach())[part.start : part.end].copy_(values[part.start : part.end])
