"""Data parallel: every worker holds the whole network and a share of each batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class WholeNetwork:
    """Each worker has a replica of all parameters."""

    def part(self, module: nn.Module) -> nn.Module:
        """The part of `module` that this worker holds: all of it."""
        return module


PARTITION = WholeNetwork
