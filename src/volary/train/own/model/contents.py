"""Watches a model's contents: users replace heads, thaw layers and load state by assignment."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from operator import attrgetter, is_, itemgetter
from typing import TYPE_CHECKING, Any

import torch

from volary.comm.groups.blocking import take_all_from_first
from volary.naming import named_modules, named_parameters
from volary.train.agreement.first_state import messages

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.comm.groups.group import Group

_EMBEDDINGS = (torch.nn.Embedding, torch.nn.EmbeddingBag)


class Contents:
    """The parts, parameters and buffers of `model` as they are now; cheap to compare with those of later.

    trained: parameters that are. sparse: those whose gradients hold a few rows only. ids: of all parameters.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        # what is compiled by TorchScript cannot be changed, and looks new each time
        scripted = [part for part in model.modules() if isinstance(part, torch.jit.ScriptModule)]
        self._parts = [part for part in model.modules() if not isinstance(part, torch.jit.ScriptModule)]
        self._inside = [vars(part) for part in self._parts]  # read in one go: there may be thousands
        self._layers, self._parameters = self._within("_modules"), self._within("_parameters")
        self._fixed = [buffer for part in scripted for buffer in part.buffers(recurse=False)]
        parameters = list(model.parameters())
        self.trained = [parameter for parameter in parameters if parameter.requires_grad]
        self._frozen = [parameter for parameter in parameters if not parameter.requires_grad]
        self._types, self._devices = self._kinds()
        self._names = {id(parameter): name for name, parameter in named_parameters(model)}
        self.ids = self._names.keys()
        self._agreed: list[tuple[nn.Module, str, Tensor]] = []  # buffers, as they were when all workers had them
        self.remember_buffers()
        self.sparse = [part.weight for part in model.modules() if isinstance(part, _EMBEDDINGS) and part.sparse]

    def __contains__(self, parameter: Tensor) -> bool:
        return id(parameter) in self.ids

    def changed(self) -> str:
        """Say what layers or parameters have changed; "" if none have. A parameter that was frozen has not."""
        if (other := self._differs("_modules", self._layers)) is not None:
            return f"{self._name(other)} has other layers"
        if (other := self._differs("_parameters", self._parameters)) is not None:
            return f"{self._name(other)} has other parameters"
        for parameter in self._frozen:
            if parameter.requires_grad:
                return f"{self._names[id(parameter)]} is trained now"
        if self._kinds() != (self._types, self._devices):
            each = zip(self.trained, self._types, self._devices, strict=True)
            odd = next(one for one, dtype, device in each if (one.dtype, one.device) != (dtype, device))
            return f"{self._names[id(odd)]} is {odd.dtype} on {odd.device} now"
        return ""

    def buffers(self) -> list[Tensor]:
        """The buffers that the model has now: it may assign new ones."""
        own = [buffer for _, _, buffer in self._assigned()]
        return list({id(buffer): buffer for buffer in (*self._fixed, *own)}.values())

    def remember_buffers(self) -> None:
        """Remember the buffers of now, which all workers have alike."""
        self._agreed = self._assigned()

    def take_buffers(self, group: Group, *, rests: bool) -> None:
        """Take those of the first rank. A collective call. rests: this worker's are of a batch without samples."""
        if rests:
            self._with_samples()
        for together in messages(self.buffers()):
            take_all_from_first(together, group)
        self.remember_buffers()

    def _with_samples(self) -> None:
        """Let buffers that were made of a batch without samples be of the shapes that they had: others' are."""
        for part, name, before in self._agreed:
            now = part._buffers.get(name)
            if now is not None and now.shape != before.shape:
                part._buffers[name] = torch.empty_like(before)

    def _assigned(self) -> list[tuple[nn.Module, str, Tensor]]:
        """The buffers that parts have assigned, and their names there."""
        having = [
            (part, own["_buffers"]) for part, own in zip(self._parts, self._inside, strict=True) if own["_buffers"]
        ]
        return [(part, name, one) for part, buffers in having for name, one in buffers.items() if one is not None]

    def _kinds(self) -> tuple[list[torch.dtype], list[torch.device]]:
        """The types and devices of trained parameters."""
        return list(map(attrgetter("dtype"), self.trained)), list(map(attrgetter("device"), self.trained))

    def _within(self, kind: str) -> tuple[list[Any], list[int]]:
        """All that is in the parts' dictionaries `kind`, and how much is in each."""
        # without a Python call or a list of each part; and by a dictionary's own values: one that waits is not to wait
        all_of_them = list(map(itemgetter(kind), self._inside))
        return list(chain.from_iterable(map(dict.values, all_of_them))), list(map(len, all_of_them))

    def _differs(self, kind: str, before: tuple[list[Any], list[int]]) -> nn.Module | None:
        """The first part whose dictionary `kind` has something else than `before`; None if all are as they were."""
        (now, counts_now), (ones, counts) = self._within(kind), before
        if counts_now == counts and all(map(is_, now, ones)):
            return None
        ends = accumulate(counts)
        return next(
            part
            for part, inside, count, end in zip(self._parts, self._inside, counts, ends, strict=True)
            if list(map(id, dict.values(inside[kind]))) != list(map(id, ones[end - count : end]))
        )

    def _name(self, part: nn.Module) -> str:
        return next((name for name, other in named_modules(self._model) if other is part and name), "the model")


def as_one(models: Sequence[nn.Module]) -> nn.Module:
    """All of some models as one network: itself if it is the only one, else by the order in which they were given."""
    return models[0] if len(models) == 1 else torch.nn.ModuleList(models)
