"""What servers leave in a checkpoint: by the parameters' names, so that any number of servers goes on from it.

A server writes a file of the shards that it is asked for: slices as (name, start, end) of parameters and buffers in
their order in memory, with their values and what the optimiser remembers of each; how these tensors lie; and beside the
first shard what no server keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from volary.errors import RunError
from volary.exchange._plan import in_memory_order
from volary.train.pieces import COUNTER
from volary.train.state_file import packed, unpacked

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.run.checkpoints import Checkpoints, Manifest
    from volary.server.slices import Slice
    from volary.server.vault import Vault
    from volary.train.served.layout import Layout

_FIRST_SHARD = 0  # beside which lies what no server keeps


def file_of(number: int, shards: Sequence[int]) -> str:
    """The file that server `number` writes of these shards; it may have others to write for one that was lost."""
    return f"server-{number}-shard-{'-'.join(map(str, shards))}.pt"


def is_served(manifest: Manifest) -> bool:
    """Whether servers wrote the checkpoint."""
    return any(name.startswith("server-") for name in manifest.files)


class Writer:
    """Writes server `number`'s slices as they were kept for a cut."""

    def __init__(self, number: int, layout: Layout, module: nn.Module, checkpoints: Checkpoints) -> None:
        self._number, self._layout, self._checkpoints = number, layout, checkpoints
        kept = {name for name, one in layout.tensors if one.numel()}
        saved = module.state_dict(keep_vars=True)
        named = [*module.named_parameters(), *module.named_buffers()]
        self._rest = {name: one.detach().clone() for name, one in named if name in saved and name not in kept}
        self._lie = {
            name: (tuple(one.shape), torch.empty_like(one, device="meta").stride(), one.dtype)
            for name, one in layout.tensors
        }

    def write(self, vault: Vault, cut: int, step: int, shards: list[int]) -> dict[str, str]:
        """Write what is kept of these shards to the draft of checkpoint `step`; checksums by name. Raises OSError."""
        slices = [self._described(vault, one, cut) for one in self._layout.slices if one.shard in shards]
        names = {name for one in slices for name, _, _ in one["parts"]}
        content = {
            "slices": slices,
            "tensors": {
                name: {"shape": shape, "stride": stride, "dtype": str(dtype).removeprefix("torch.")}
                for name, (shape, stride, dtype) in self._lie.items()
                if name in names
            },
            "rest": self._rest if _FIRST_SHARD in shards else {},
        }
        name = file_of(self._number, shards)
        return {name: self._checkpoints.write(step, name, packed(content))}

    def _described(self, vault: Vault, one: Slice, cut: int) -> dict[str, Any]:
        reading = vault.read_kept(one.number, cut)
        try:
            values = reading.tensor.clone()
        finally:
            reading.close()
        parts = [(self._layout.tensors[part.parameter][0], part.start, part.end) for part in one.parts]
        return {"parts": parts, "values": values, "state": vault.kept_state(one.number, cut)}


@dataclass
class _Piece:
    """Values `start` to `end` of a tensor, in its order in memory, and what the optimiser remembers of them."""

    start: int
    end: int
    values: Tensor
    state: Mapping[str, Any]

    def is_cut(self, key: str) -> bool:
        """Whether an entry has something of each value."""
        entry = self.state[key]
        return key != COUNTER and isinstance(entry, torch.Tensor) and entry.shape == self.values.shape


@dataclass
class Shards:
    """All that servers left in a checkpoint, together."""

    pieces: dict[str, list[_Piece]] = field(default_factory=dict)
    tensors: dict[str, dict[str, Any]] = field(default_factory=dict)
    rest: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, manifest: Manifest) -> Shards:
        """Read a checkpoint's files; values stay on the disk until they are used."""
        found = cls()
        for name in sorted(manifest.files):
            if name.startswith("server-"):
                found._add(unpacked(folder / name, folder / name))
        return found

    def values(self, name: str, start: int, end: int) -> Tensor:
        """Values `start` to `end` of a tensor. Raises RunError if they are not all there."""
        return torch.cat([piece.values[span] for piece, span in self._between(name, start, end)])

    def state(self, name: str, start: int, end: int) -> dict[str, Any]:
        """What the optimiser remembers of these values, in its own words: values are cut, anything else is alike."""
        between = list(self._between(name, start, end))
        found: dict[str, Any] = {}
        for key, entry in between[0][0].state.items():
            if between[0][0].is_cut(key):
                found[key] = torch.cat([piece.state[key][span] for piece, span in between])
            else:
                found[key] = entry.clone() if isinstance(entry, torch.Tensor) else entry
        return found

    def whole(self) -> dict[str, Tensor]:
        """Every tensor of the network by its name, in its shape."""
        found = dict(self.rest)
        for name, lies in self.tensors.items():
            dtype = getattr(torch, lies["dtype"])
            one = torch.empty_strided(tuple(lies["shape"]), tuple(lies["stride"]), dtype=dtype)
            in_memory_order(one).copy_(self.values(name, 0, one.numel()))
            found[name] = one
        return found

    def add(self, name: str, start: int, values: Tensor, state: Mapping[str, Any]) -> None:
        """Values of a tensor from `start` on, in its order in memory, and what the optimiser remembers of them."""
        self.pieces.setdefault(name, []).append(_Piece(start, start + len(values), values, state))

    def _add(self, content: Mapping[str, Any]) -> None:
        self.tensors |= content["tensors"]
        self.rest |= content["rest"]
        for one in content["slices"]:
            at = 0
            for (name, start, end), state in zip(one["parts"], one["state"], strict=True):
                self.add(name, start, one["values"][at : at + end - start], state)
                at += end - start

    def _between(self, name: str, start: int, end: int) -> Iterator[tuple[_Piece, slice]]:
        at = start
        for piece in sorted(self.pieces.get(name, []), key=lambda piece: piece.start):
            low, high = max(at, piece.start), min(end, piece.end)
            if low == at < high:
                yield piece, slice(low - piece.start, high - piece.start)
                at = high
        if at < end:
            raise RunError(f"the checkpoint has no values {at} to {end} of {name}; the network has changed")
