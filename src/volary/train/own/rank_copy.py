"""If the model is the mean of all workers' parameters: warns of a `state_dict()` that holds one worker's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from volary.train.recording.recorder import Recorder


class RankCopy:
    """Watches `model` and its parts until `close`. why: says what parameters are now; empty if all have the same.

    Rank 0, which is the one that saves, warns once.
    """

    def __init__(self, model: nn.Module, why: Callable[[], str], recorder: Recorder) -> None:
        self._why, self._recorder, self._warned = why, recorder, not recorder.leads
        parts = [part for part in model.modules() if not isinstance(part, torch.jit.ScriptModule)]
        self._hooks = [part.register_state_dict_pre_hook(_Reading(self._read)) for part in parts]

    def warn(self, what: str) -> None:
        """Warn once of `what` that it is one worker's own, if it is."""
        if not self._warned and (text := self._why()):
            self._warned = True
            self._recorder.event("warning", text=f"{what} {text}")

    def close(self) -> None:
        """Remove the hooks from the model."""
        for hook in self._hooks:
            hook.remove()

    def _read(self) -> None:
        self.warn("state_dict() was read, which")


class _Reading:
    def __init__(self, read: Callable[[], object]) -> None:
        self._read = read

    def __call__(self, _module: nn.Module, _prefix: str, _keep_vars: bool) -> None:
        self._read()

    def __reduce__(self) -> Any:
        """A copy of the network is no worker's replica."""
        return _Reading, (str,)
