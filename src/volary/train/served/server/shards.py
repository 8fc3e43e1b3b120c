"""A server's part of a checkpoint: the slices that it keeps, with the optimiser's state of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from volary.sharding.groups import LEADER
from volary.train.saving.committing import write_files
from volary.train.state.optimizer_state import OptimizerState, optimizer_file
from volary.train.state.state_file import StateContent
from volary.train.state.weights import TensorSlice, weights_content, weights_file, weights_of

if TYPE_CHECKING:
    from volary.run.content import Content
    from volary.server.protocol.slices import Slice
    from volary.server.shards.slice_store import SliceStore
    from volary.train.served.server.served_network import ServedNetwork


class ShardWriter:
    """Writes server `number`'s slices as they were kept for a snapshot. write: a file, as `Checkpoints.write`.

    What no server keeps stands beside the first shard.
    """

    def __init__(self, number: int, network: ServedNetwork, write: Callable[[int, str, Content], str]) -> None:
        self._number, self._layout, self._write = number, network.layout, write
        self._remembered = network.remembered
        kept = {self._layout.called(name) for name, one in self._layout.tensors.items() if one.numel()}
        self._rest = {name: one.clone() for name, one in weights_of(network.module).items() if name not in kept}

    def write(self, slice_store: SliceStore, snapshot: int, step: int, shards: list[int]) -> dict[str, str]:
        """Write what is kept of these shards to the draft of checkpoint `step`; checksums by name. Raises OSError.

        They may be another server's, which was lost: each file names its shards.
        """
        slices = [one for one in self._layout.slices if one.shard in shards]
        tensors = [part for one in slices for part in self._tensors(slice_store, one, snapshot)]
        state = OptimizerState(part for one in slices for part in slice_store.kept_state(one.number, snapshot))
        writer = f"server-{self._number}-shard-{'-'.join(map(str, shards))}"
        files: dict[str, Content] = {
            weights_file(writer): weights_content(self._rest if LEADER in shards else {}, tensors),
            optimizer_file(writer, self._remembered): StateContent(state.cut(self._layout.blocks).plain()),
        }
        return write_files(self._write, step, files.items())

    def _tensors(self, slice_store: SliceStore, one: Slice, snapshot: int) -> Iterator[TensorSlice]:
        reading = slice_store.read_kept(one.number, snapshot)
        try:
            values = reading.tensor.clone()
        finally:
            reading.close()
        at = 0
        for part in one.parts:
            own, block = values[at : at + part.size], self._layout.blocks.get(part.name)
            yield TensorSlice(part, own, self._layout.tensors[part.name], block)
            at += part.size
