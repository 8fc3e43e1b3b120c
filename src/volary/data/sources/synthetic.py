"""Made-up samples of any shape, for benchmarks and first tries: made once in memory, the same for the same seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.data.samples import BOTH
from volary.errors import SettingError

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from volary.data.memory import InMemory
    from volary.data.samples import Split

_POOL_BYTES = 64 * 2**20  # distinct samples made; more samples than fit go through them again
_VALIDATION_EVERY = 5


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """`samples` to train with and a fifth as many to validate with; the distinct ones take at most 64 MiB."""

    shape: tuple[int, ...] = (1, 28, 28)  # of one input; for kind tokens: (time steps,)
    classes: int = 10  # for kind tokens: the size of the vocabulary
    samples: int = 10000  # of the training part
    kind: str = "noise"  # noise: nothing to learn; blobs: each class around its own centre; tokens: counting sequences
    seed: int = 0  # of the values; the order is seeded by train.seed

    def __post_init__(self) -> None:
        if not self.shape or min(self.shape) < 1:
            raise SettingError(f"shape is {self.shape}; accepted: one or more sizes of at least 1")
        for name in ("classes", "samples"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} is {getattr(self, name)}; accepted: 1 or more")
        if self.kind not in ("noise", "blobs", "tokens"):
            raise SettingError(f"kind is {self.kind!r}; accepted: noise, blobs, tokens")
        if self.kind == "tokens" and len(self.shape) != 1:
            raise SettingError(f"shape is {self.shape}; accepted with kind tokens: one size, the time steps")

    def check(self, parts: Sequence[Split] = BOTH) -> None:
        """Check nothing, as nothing is read."""

    def count(self, split: Split) -> int:
        """`samples`, or a fifth of them (at least 1) for validation."""
        return self.samples if split == "train" else max(1, self.samples // _VALIDATION_EVERY)

    def open(self, split: Split) -> InMemory:
        """Make the distinct samples: a few tens of milliseconds."""
        from volary.data.memory import InMemory
        from volary.data.order import seeded

        length = self.count(split)
        distinct = min(length, max(1, _POOL_BYTES // (math.prod(self.shape) * (8 if self.kind == "tokens" else 4))))
        random = seeded(self.seed, split)
        inputs, targets = self._tokens(distinct, random) if self.kind == "tokens" else self._values(distinct, random)
        return InMemory(inputs, targets, self.classes, length=None if distinct == length else length)

    def _values(self, count: int, random: Generator) -> tuple[Tensor, Tensor]:
        import torch

        from volary.data.order import seeded

        targets = torch.randint(self.classes, (count,), generator=random)
        inputs = torch.randn((count, *self.shape), generator=random)
        if self.kind == "blobs":
            for label in sorted(set(targets.tolist())):
                # a generator per class: both splits have the same centres, and only those in use are made
                inputs[targets == label] += torch.randn(self.shape, generator=seeded(self.seed, "centre", label))
        return inputs, targets

    def _tokens(self, count: int, random: Generator) -> tuple[Tensor, Tensor]:
        import torch

        start = torch.randint(self.classes, (count, 1), generator=random)
        stride = torch.randint(1, 4, (count, 1), generator=random)
        sequence = (start + stride * torch.arange(self.shape[0] + 1)) % self.classes
        return sequence[:, :-1].contiguous(), sequence[:, 1:].contiguous()


SOURCE = Synthetic
