"""An optimiser's state by parts of parameters, which may be cut otherwise when it is read than when written."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import astuple, replace
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from volary.errors import RunError
from volary.exchange.gradients.plan import laid_out_as
from volary.naming import named_parameters
from volary.run.checkpoints import SHARED, read
from volary.sharding.blocks import TensorBlock, make_whole
from volary.sharding.groups import leads
from volary.sharding.ranges import Range, are_all_once
from volary.train.state.part_state import AVERAGE, AVERAGED, PartState
from volary.train.state.state_file import StateContent, unpacked
from volary.train.state.weights import SavedWeights, load_weights, weights_content, weights_file, weights_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from torch import Tensor, nn

    from volary.run.checkpoints import Manifest
    from volary.sharding.holdings import Holdings
    from volary.train.state.held import Savable

OPTIMIZER = "optimizer.pt"  # what one process writes that updates all parameters
OUTER = "outer.pt"  # likewise, of the outer rule of local steps
_Key = tuple[str, bool]  # a tensor's name; whether it is the state of its average


def optimizer_file(writer: str, whole: str = OPTIMIZER) -> str:
    """The file of what `writer` updates, which is some of the parameters. whole: OPTIMIZER or OUTER."""
    return f"{whole.removesuffix('.pt')}-{writer}.pt"


class OptimizerState:
    """State of parts that do not overlap; parameters that were never updated have none.

    Of a tensor that is cut into blocks it is the state of these; who asks for runs of its values gets these joined.
    Averages of values are parts of their own, as they may be kept elsewhere than what updates the values.
    """

    def __init__(self, parts: Iterable[PartState] = ()) -> None:
        self._parts: dict[_Key, list[PartState]] = {}
        self._blocks: dict[_Key, dict[TensorBlock, list[PartState]]] = {}
        for one in (piece for part in parts for piece in _averages_apart(part)):
            key = one.part.name, AVERAGE in one.each
            if one.block is None:
                self._parts.setdefault(key, []).append(one)
            else:
                self._blocks.setdefault(key, {}).setdefault(one.block, []).append(one)
        for known in (*self._parts.values(), *(runs for cut in self._blocks.values() for runs in cut.values())):
            known.sort(key=lambda one: one.part.start)

    def of(self, part: Range, *, copied: bool = True) -> PartState:
        """The state of `part`. Raises RunError if there is state of only some of its values.

        copied: False: in the memory of the state of a larger part, if one contains it.
        """
        own, average = (self._of((part.name, averages), part, copied=copied) for averages in (False, True))
        return PartState(part, {**own.each, **average.each}, {**own.whole, **average.whole})

    def within(self, blocks: Mapping[str, TensorBlock]) -> OptimizerState:
        """The state of these blocks, as of tensors with these names, instead of that of the tensors they are of; and
        that of all other tensors. Raises as `of`.
        """
        return OptimizerState(self._within(blocks))

    def cut(self, blocks: Mapping[str, TensorBlock]) -> OptimizerState:
        """Undo `within`: the state of tensors with these names is that of these blocks."""
        return OptimizerState(_in_block(one, blocks.get(one.part.name)) for one in self._all())

    def of_names(self, names: Container[str]) -> OptimizerState:
        """The state of the tensors with these names."""
        return OptimizerState(one for one in self._all() if one.part.name in names)

    def share(self, rank: int, ranks: int, first_bytes: int) -> OptimizerState:
        """The share that a rank writes of what all have alike, so that all write about as many bytes; in its memory.

        first_bytes: that the first of them writes beside it. What is not of each value stays in one piece.
        """
        parts = list(self._all())
        bytes_of = [sum(entry.nbytes for entry in one.each.values()) for one in parts]
        low, high = _bounds(sum(bytes_of), rank, ranks, first_bytes)
        found, at = list[PartState](), 0
        for one, size in zip(parts, bytes_of, strict=True):
            values, per_value = one.part.size, size / max(1, one.part.size)
            if not size:
                found += [one] if leads(rank) else []
            else:
                start, end = (min(max(round((bound - at) / per_value), 0), values) for bound in (low, high))
                found += [_apart(_between([one], _within(one.part, start, end), copied=False))] if start < end else []
            at += size
        return OptimizerState(found)

    def plain(self) -> list[Any]:
        """All of it in tensors, plain values and containers of these."""
        found: list[Any] = []
        for one in self._all():
            block = (
                [] if one.block is None else [[list(one.block.shape), one.block.dim, list(map(list, one.block.spans))]]
            )
            found.append([*astuple(one.part), dict(one.each), dict(one.whole), *block])
        return found

    @classmethod
    def read(cls, folder: Path, manifest: Manifest, whole: str = OPTIMIZER, *, averages: bool = True) -> OptimizerState:
        """Read the state in the checkpoint in `folder`, whoever wrote which parts; tensors stay on the disk until used.

        whole: OPTIMIZER or OUTER. averages: with those of the values, whichever of the two rules kept them.
        """
        found = {rule: cls.from_plain(_written(folder, manifest, rule)) for rule in (OPTIMIZER, OUTER)}
        kept = [one for state in found.values() for one in state._all() if AVERAGE in one.each]
        own = (one for one in found[whole]._all() if AVERAGE not in one.each)
        return cls([*own, *(kept if averages else ())])

    @classmethod
    def from_plain(cls, plain: Iterable[Any]) -> OptimizerState:
        """The state of which `plain` made these plain values."""
        return cls(
            PartState(Range(name, start, end), each, whole, *(_block(name, *one) for one in block))
            for name, start, end, each, whole, *block in plain
        )

    def _of(self, key: _Key, part: Range, *, copied: bool) -> PartState:
        if key in self._blocks:
            self._parts[key] = [_joined(self._blocks.pop(key))]
        return _between(self._parts.get(key, []), part, copied=copied)

    def _all(self) -> Iterator[PartState]:
        for known in self._parts.values():
            yield from known
        for cut in self._blocks.values():
            for runs in cut.values():
                yield from runs

    def _within(self, blocks: Mapping[str, TensorBlock]) -> Iterator[PartState]:
        cut = {block.name for block in blocks.values()}
        for key in dict.fromkeys((*self._parts, *self._blocks)):
            if key[0] not in cut:
                yield from self._parts[key] if key in self._parts else [_joined(self._blocks[key])]
                continue
            for name, block in blocks.items():
                if block.name == key[0]:
                    yield self._of_block(key, block, name)

    def _of_block(self, key: _Key, block: TensorBlock, name: str) -> PartState:
        """The state of a block, as of a tensor called `name`."""
        own = Range(name, 0, block.size)
        if block in (known := self._blocks.get(key, {})):
            return replace(_between(known[block], replace(own, name=block.name), copied=True), part=own, block=None)
        whole = self._of(key, Range(block.name, 0, prod(block.shape)), copied=True)
        each = {key: block.taken_from(entry.view(block.shape)).flatten() for key, entry in whole.each.items()}
        return PartState(own, each, whole.whole)


def _bounds(size: int, rank: int, ranks: int, first: int) -> tuple[float, float]:
    """From where to where a rank writes of so many bytes. first: bytes that the first of them writes beside it."""
    least = max(0.0, (size + first) / ranks - first) if ranks > 1 else size  # of the first
    each = (size - least) / max(1, ranks - 1)
    low, high = (0 if number == 0 else least + (number - 1) * each for number in (rank, rank + 1))
    return low, size if rank == ranks - 1 else high


def _within(part: Range, start: int, end: int) -> Range:
    return Range(part.name, part.start + start, part.start + end)


def _apart(one: PartState) -> PartState:
    """The same values, each in a storage of its own: torch.save writes all of the storage that a tensor is in."""
    return replace(one, each={key: _storage_of(entry) for key, entry in one.each.items()})


def _storage_of(values: Tensor) -> Tensor:
    if values.device.type != "cpu":
        return values.clone()
    return torch.from_numpy(values.view(torch.uint8).numpy()).view(values.dtype)  # the same memory


def _in_block(one: PartState, block: TensorBlock | None) -> PartState:
    return replace(one, part=replace(one.part, name=block.name), block=block) if block else replace(one, block=None)


def part_files(
    module: nn.Module, holdings: Holdings, rank: int, rules: Iterable[tuple[str, Any]]
) -> Iterator[tuple[str, Savable]]:
    """Yield the files, by name, of what this `rank` owns of `module`.

    rules: what an optimiser remembers of the tensors that it keeps, in plain values, by the name of the file that one
    process would write.
    """
    writer, cut = f"worker-{rank}", holdings.blocks
    own = {name: one for name, one in weights_of(module).items() if holdings.writes_of(name)}
    if not own:
        return
    blocks = {cut[name]: one for name, one in own.items() if name in cut}
    yield weights_file(writer), weights_content({n: one for n, one in own.items() if n not in cut}, blocks=blocks)
    for file, plain in rules:
        if plain:
            state = OptimizerState.from_plain(plain).cut(cut).of_names(own)
            yield optimizer_file(writer, file), StateContent(state.plain())


def _averages_apart(one: PartState) -> Iterator[PartState]:
    each, whole = dict(one.each), dict(one.whole)
    if AVERAGE in each:
        yield replace(one, each={AVERAGE: each.pop(AVERAGE)}, whole={AVERAGED: whole.pop(AVERAGED)})
    if each or whole:
        yield replace(one, each=each, whole=whole)


def _written(folder: Path, manifest: Manifest, whole: str) -> Iterator[Any]:
    parts = optimizer_file("", whole).removesuffix(".pt")
    files = [name for name in sorted(manifest.files) if name == whole or name.startswith(parts)]
    return (part for name in files for part in unpacked(folder / name, folder / name))


def load_checkpoint(module: nn.Module, folder: Path, manifest: Manifest, *, average: bool) -> None:
    """Set the module's parameters and buffers to those in the checkpoint in `folder`. average: to their averages.

    Raises RunError as `load_weights` and `load_averages`.
    """
    load_weights(module, SavedWeights(folder, manifest))
    if average:
        load_averages(module, folder, manifest)


@torch.no_grad()
def load_averages(module: nn.Module, folder: Path, manifest: Manifest) -> None:
    """Set the module's parameters to the averages in the checkpoint in `folder`, where it has some.

    Buffers, and parameters that were never updated, stay as they are. Raises RunError if there are none, or several.
    """
    state, kept, found = OptimizerState.read(folder, manifest), _of_loop(folder, manifest), 0
    for name, parameter in named_parameters(module):
        each = state.of(Range(name, 0, parameter.numel())).each
        if AVERAGE in each:
            parameter.copy_(laid_out_as(parameter, each[AVERAGE]))
        elif name in kept and kept[name].shape == parameter.shape:
            parameter.copy_(kept[name])
        else:
            continue
        found += 1
    if not found:
        raise RunError(
            f"{folder}: the checkpoint has no averages of weights; accepted with --average: a run with train.average, "
            "of a step after its start, or one whose loop saves what worker.average gives"
        )


def _of_loop(folder: Path, manifest: Manifest) -> Mapping[str, Tensor]:
    """The average (...) by name that all workers of a user's own loop had. Raises RunError if there are several."""
    if SHARED not in manifest.files:
        return {}
    named = unpacked(read(folder, manifest, SHARED), folder / SHARED).get("named", {})
    found = {name: one["state"] for name, one in named.items() if AVERAGE in one}
    if len(found) > 1:
        raise RunError(
            f"{folder}: the checkpoint has the averages {', '.join(found)}; accepted with --average: a loop that saves "
            "one"
        )
    return next(iter(found.values()), {})


def _between(known: Sequence[PartState], wanted: Range, *, copied: bool) -> PartState:
    between = []
    for one in known:
        low, high = max(wanted.start, one.part.start), min(wanted.end, one.part.end)
        if low < high or (one.part == wanted and not wanted.size):
            between.append((one, slice(low - one.part.start, high - one.part.start)))
    if not between:
        return PartState(wanted, {}, {})
    values = f"values {wanted.start} to {wanted.end} of {wanted.name}"
    if sum(span.stop - span.start for _, span in between) < wanted.size:
        raise RunError(f"the optimiser's state covers some of the {values}, and not all")
    inside = ((one.part.start + span.start, one.part.start + span.stop) for one, span in between)
    if not are_all_once(inside, wanted.start, wanted.end):
        raise RunError(f"the optimiser's state has some of the {values} more than once")
    first = between[0][0]
    pieces = {key: [one.each[key][span] for one, span in between] for key in first.each}
    shares = len(between) == 1 and not copied
    each = {key: found[0] if shares else torch.cat(found) for key, found in pieces.items()}
    return PartState(wanted, each, first.whole)


def _joined(cut: Mapping[TensorBlock, Sequence[PartState]]) -> PartState:
    """The state of a whole tensor, of that of its blocks. Raises RunError unless they are all of it, each once."""
    found = {block: _between(runs, Range(block.name, 0, block.size), copied=False) for block, runs in cut.items()}
    first, some = next(iter(found.items()))
    if not make_whole(found):
        raise RunError(f"the optimiser's state has other blocks of {first.name} than make it whole")
    each = {key: torch.empty(first.shape, dtype=entry.dtype) for key, entry in some.each.items()}
    for block, one in found.items():
        for key, entry in one.each.items():
            block.put_into(each[key], entry.view(block.own_shape))
    return PartState(
        Range(first.name, 0, prod(first.shape)), {key: entry.flatten() for key, entry in each.items()}, some.whole
    )


def _block(name: str, shape: Sequence[int], dim: int, spans: Sequence[Sequence[int]]) -> TensorBlock:
    return TensorBlock(name, tuple(shape), dim, tuple((start, end) for start, end in spans))
