"""Random numbers of one rank alone, between two layers that it has parts of; those that all ranks draw stay alike."""

from __future__ import annotations

import torch


class OwnDraws:
    """rank: of those that draw apart from `begin` to `end`, which may draw differently many numbers."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._kept: torch.Tensor | None = None

    def begin(self) -> None:
        """Draw other numbers than other ranks from now on; what they are follows from those that all draw."""
        seed = int(torch.randint(2**62, (), dtype=torch.int64))
        self._kept = torch.get_rng_state()
        torch.default_generator.manual_seed(seed + self._rank)

    def end(self) -> None:
        """Go on with the numbers that all draw; without a `begin` before they are these already."""
        if self._kept is not None:
            torch.set_rng_state(self._kept)
        self._kept = None
