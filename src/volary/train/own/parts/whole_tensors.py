"""Whole tensors of a network that workers hold in parts, as the code of its users reads and gives them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from volary.comm.groups.blocking import from_rank, gather_plain
from volary.errors import BadInput
from volary.naming import named_buffers, named_parameters
from volary.train.own.together import gathered
from volary.train.state.skeleton import blank, put_together, taken_apart

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.utils.hooks import RemovableHandle

    from volary.comm.groups.group import Group
    from volary.sharding.blocks import TensorBlock
    from volary.sharding.holdings import Holdings

Together = Callable[[str, int], AbstractContextManager["Group"]]  # see `volary.train.own.together.called_by_all`


@dataclass(frozen=True)
class WholeParameters:
    """The parameters of a network before workers were left with parts of it.

    likes: by name, tensors of their shapes and layouts, without values. known: the parameters, as long as somebody has
    them, with their names.
    """

    likes: Mapping[str, Tensor]
    known: Sequence[tuple[weakref.ref[Tensor], str]]

    @classmethod
    def of(cls, module: nn.Module) -> WholeParameters:
        """Remember those that `module` has now."""
        named = list(named_parameters(module))
        likes = {name: torch.empty_like(one, device="meta", requires_grad=False) for name, one in named}
        return cls(likes, [(weakref.ref(one), name) for name, one in named])

    def name_of(self, parameter: Tensor) -> str:
        """Its name; empty if it is none of these."""
        return next((name for one, name in self.known if one() is parameter), "")


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
        """Put tensors together, in their shapes, of this worker's block of each, by name. A collective call."""
        found = []
        with self._together("state_dict", sum(values.numel() > 0 for _, values in parts)) as group:
            for name, values in parts:
                blocks = self._of_ranks[name]
                tensor = values.new_empty(blocks[0].shape)
                for block, theirs in zip(blocks, gathered(values, group), strict=True):
                    block.put_into(tensor, theirs)
                found.append(tensor)
        return found

    def follow_stages(self, module: nn.Module) -> list[RemovableHandle]:
        """The same of a network of which each worker has some tensors, and nobody else has them."""

        def read(_: nn.Module, state: dict[str, Tensor], prefix: str, *_more: Any) -> None:
            own = {key[len(prefix) :]: one for key, one in state.items() if key.startswith(prefix)}
            with self._together("state_dict", 0) as group:
                plain, mine = taken_apart(own)
                for rank, theirs in enumerate(gather_plain(plain, group)):
                    tensors = mine if rank == group.rank else blank(theirs)
                    for tensor in tensors:
                        from_rank(rank, tensor, group)
                    state.update((prefix + name, one) for name, one in put_together(theirs, tensors).items())

        def load(_: nn.Module, state: dict[str, Any], prefix: str, *_more: Any) -> None:
            own = {prefix + name for name in (*dict(named_parameters(module)), *dict(named_buffers(module)))}
            for key in [key for key in state if key.startswith(prefix) and key not in own]:
                del state[key]

        return [module.register_state_dict_post_hook(read), module.register_load_state_dict_pre_hook(load)]

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


def refuse_other_shape(name: str, given: Sequence[int], wanted: Sequence[int] | None) -> None:
    """Raise BadInput unless the average of a parameter has its shape; None: there is no such parameter."""
    if wanted is None or tuple(given) != tuple(wanted):
        has = "no such parameter" if wanted is None else f"of shape {tuple(wanted)}"
        raise BadInput(
            f"the average that is loaded has {name} of shape {tuple(given)}, and the model has {has}; accepted: an "
            "average of the same model"
        )
