"""Whole tensors of a network that workers hold in parts, as the code of its users reads and gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from volary.train.own.together import gathered

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.utils.hooks import RemovableHandle

    from volary.comm.groups.group import Group
    from volary.sharding.blocks import TensorBlock
    from volary.sharding.holdings import Holdings

Together = Callable[[str, int], AbstractContextManager["Group"]]  # see `volary.train.own.together.called_by_all`


class WholeTensors:
    """Puts tensors together whose blocks the workers of `holdings` have. together: around what all of them do."""

    def __init__(self, holdings: Holdings, together: Together) -> None:
        self.own, self._together = holdings.blocks, together
        self._of_ranks: dict[str, list[TensorBlock]] = {}
        for rank in range(holdings.mesh.size):
            for block, ranks in holdings.cut.items():
                if rank in ranks:
                    self._of_ranks.setdefault(block.name, []).append(block)

    def whole(self, parts: Sequence[tuple[str, Tensor]]) -> list[Tensor]:
        """Of each tensor, by name, this worker's block, to the tensors in their shapes. A collective call."""
        found = []
        with self._together("state_dict", sum(values.numel() > 0 for _, values in parts)) as group:
            for name, values in parts:
                blocks = self._of_ranks[name]
                tensor = values.new_empty(blocks[0].shape)
                for block, theirs in zip(blocks, gathered(values, group), strict=True):
                    block.put_into(tensor, theirs)
                found.append(tensor)
        return found

    def follow(self, layer: nn.Module, cut: Mapping[str, str]) -> list[RemovableHandle]:
        """Let the layer's state be of whole tensors, where it is read and where it is loaded.

        cut: of its parameters that are cut, the network's name for each. Reading is a collective call then.
        """

        def read(_: nn.Module, state: dict[str, Tensor], prefix: str, *_more: Any) -> None:
            keys = [prefix + own for own in cut]
            state.update(zip(keys, self.whole([(cut[key[len(prefix) :]], state[key]) for key in keys]), strict=True))

        def load(_: nn.Module, state: dict[str, Any], prefix: str, *_more: Any) -> None:
            for own, name in cut.items():
                if prefix + own in state:
                    state[prefix + own] = part_of(state[prefix + own], self.own[name])

        return [layer.register_state_dict_post_hook(read), layer.register_load_state_dict_pre_hook(load)]


def part_of(value: Any, block: TensorBlock) -> Any:
    """The block of a tensor that is whole; anything else as it is."""
    return block.taken_from(value) if getattr(value, "shape", None) == block.shape else value


def owners_of(module: nn.Module, names: Mapping[int, str]) -> dict[nn.Module, dict[str, str]]:
    """The layers whose own parameters are among those with these ids, with the network's names by the layers' own."""
    found: dict[nn.Module, dict[str, str]] = {}
    for layer in module.modules():
        own = {name: names[id(one)] for name, one in layer.named_parameters(recurse=False) if id(one) in names}
        if own:
            found[layer] = own
    return found
