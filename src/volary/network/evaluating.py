"""Evaluation mode for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put `module` into evaluation mode; afterwards each part is in the mode it was in, a frozen batch norm too."""
    before = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        module.train(before[0][1])  # a module may do more in train() than set the flag
        for part, training in before:
            part.training = training
