"""One job of Spark for each batch: shares of it go to tasks, and slices of the summed gradients come back."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from volary.errors import VolaryError
from volary.executors.application import attached
from volary.executors.stage import cause
from volary.partition._base import whole_batch
from volary.partition.jobs.running import slices_for, summed_slices
from volary.partition.jobs.share import BUFFER, LOSS, USED, SharedNetwork, TaskShare
from volary.session.values.reference import USER_FILES

if TYPE_CHECKING:
    from torch import nn

    from volary.partition._base import Passes


class GradientJobs:
    """How a batch is learned. module: what is trained; it is copied as it is now, without what hooks into it later.

    tasks: into so many shares a batch is cut, and into so many slices its gradients.
    """

    def __init__(self, module: nn.Module, tasks: int) -> None:
        self._module, self._tasks = module, tasks
        self._skeleton = copy.deepcopy(module).to("meta")
        firsts: dict[int, str] = {}
        everything = chain(
            module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)
        )
        self._first = {name: firsts.setdefault(id(one), name) for name, one in everything}

    @cached_property
    def _spark(self) -> Any:
        return attached()

    def learn(self, passes: Passes) -> bool:
        """Take one batch; see `volary.partition._base.Part`. Raises VolaryError if a task fails again and again."""
        parts = passes.cut(self._tasks)
        if not parts:
            return whole_batch(passes)
        values, abouts = self._computed(passes, parts)
        losses = torch.stack([about[LOSS] for about in abouts])
        shares = torch.tensor([part.share for part in parts], dtype=losses.dtype)
        if not passes.computed((losses * shares).sum() / (passes.share or 1.0)):
            return False
        self._take_buffers(abouts[0])
        used = torch.stack([about[USED] for about in abouts]).any(0).tolist()
        trained = [one for one in self._module.parameters() if one.requires_grad]
        pieces = torch.from_numpy(values).split([one.numel() for one in trained])
        passes.add_gradients(
            {
                one: piece.view_as(one).to(one)
                for one, piece, is_used in zip(trained, pieces, used, strict=True)
                if is_used
            }
        )
        return True

    def _computed(
        self, passes: Passes, parts: Sequence[Passes]
    ) -> tuple[np.ndarray[Any, Any], list[dict[str, Tensor]]]:
        """The summed gradients, one vector (values,), and what each task says of its share."""
        state = {name: one.detach().cpu().contiguous() for name, one in self._tensors().items()}
        trained = [name for name, one in self._module.named_parameters() if one.requires_grad]
        dtype = np.result_type(*(state[name].numpy().dtype for name in trained)).name
        network = SharedNetwork(
            self._skeleton,
            passes.criterion,
            self._first,
            trained,
            dtype,
            [part.training for part in self._module.modules()],
            slices_for(self._tasks),
            int(torch.randint(2**62, ())),
        )
        shares = [
            TaskShare(
                task,
                part.share,
                save({"inputs": part.inputs.cpu().contiguous(), "targets": part.targets.cpu().contiguous()}),
            )
            for task, part in enumerate(parts)
        ]
        _send_user_code_along()
        passes.turn_back()  # a job is no wait for other workers, however long it takes
        try:
            found = summed_slices(self._spark, network, save(state), shares)
        except Exception as error:  # Spark raises Java's errors by many names
            raise VolaryError(f"a job of Spark for one batch failed: {cause(error)}") from error
        values = np.concatenate([np.frombuffer(one.values, dtype) for one in found])
        return values, [load(about) for one in found for about in one.abouts]

    def _tensors(self) -> dict[str, Tensor]:
        both = chain(self._module.named_parameters(), self._module.named_buffers())
        return {name: one for name, one in both if self._first[name] == name}

    @torch.no_grad()
    def _take_buffers(self, about: dict[str, Tensor]) -> None:
        for name, buffer in self._module.named_buffers():
            if self._first[name] == name:
                buffer.copy_(about[BUFFER + name])


def _send_user_code_along() -> None:
    """Let code of the user's own files travel with what is made of it: executors cannot import it by its name."""
    pickling = import_module("pyspark.cloudpickle")
    for name, module in list(sys.modules.items()):
        if name.startswith(USER_FILES):
            pickling.register_pickle_by_value(module)
