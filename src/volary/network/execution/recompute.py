"""Activation checkpointing: backward computes activations anew (Chen et al. 2016, arXiv:1604.06174)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from volary.errors import SettingError
from volary.naming import named_modules


def recompute(module: nn.Module, patterns: Sequence[str]) -> None:
    """Let layers whose names fit a pattern keep only their inputs until backward, which computes the rest anew.

    Of layers within each other the outer one does. Results are the same bit for bit: the same random numbers are drawn
    again, and buffers, as batch norm's statistics, are as they were before, and are not changed a second time.
    Raises SettingError for a pattern that fits no layer, and for a layer that is TorchScript.
    """
    layers = {name: part for name, part in named_modules(module) if name}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in layers):
            near = get_close_matches(pattern, layers, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            known = ", ".join(name for name in layers if "." not in name)
            raise SettingError(f"train.recompute: {pattern!r} fits no layer; {hint}Known: {known}, and those within")
    chosen: list[str] = []
    for name, part in layers.items():
        if not any(fnmatchcase(name, pattern) for pattern in patterns):
            continue
        if isinstance(part, torch.jit.ScriptModule):
            raise SettingError(f"train.recompute: {name} is TorchScript; accepted: layers that Python runs")
        if any(name.startswith(f"{outer}.") for outer in chosen) or type(part).forward is nn.Module.forward:
            continue
        chosen.append(name)
        part.forward = _Recomputed(part, part.forward)


class _Recomputed:
    """A layer's `forward`, (n, ...) to (n, ...), while it is trained."""

    def __init__(self, part: nn.Module, forward: Callable[..., Any]) -> None:
        self._part, self._forward = part, forward

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled():
            return self._forward(*inputs, **named)
        before = [
            (owner, {name: one.clone() for name, one in owner._buffers.items() if one is not None})
            for owner in self._part.modules()
            if owner._buffers
        ]
        forward = partial(self._forward, **named)
        return checkpoint(forward, *inputs, use_reentrant=False, context_fn=partial(_contexts, before))


Buffers = Sequence[tuple[nn.Module, Mapping[str, Tensor]]]


def _contexts(before: Buffers) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """The contexts that the first and the second forward run in."""
    return nullcontext(), _with_buffers(before)


@contextmanager
def _with_buffers(before: Buffers) -> Iterator[None]:
    """Let modules have these buffers instead of their own; the other ones stay untouched."""
    own = [(owner, dict(owner._buffers)) for owner, _ in before]
    for owner, buffers in before:
        owner._buffers.update(buffers)
    try:
        yield
    finally:
        for owner, kept in own:
            owner._buffers.update(kept)
