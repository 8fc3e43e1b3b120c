"""The first checkpoint of a run that nobody has trained for here: resuming it is what every run can.

So whoever keeps the parameters reads what it needs, with any strategy and on any machine, and no later attempt looks
for where they came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from volary.run.checkpoints import ROSTER, SHARED, Checkpoints
from volary.run.content import Content
from volary.server.roster.portions import RemainingSamples
from volary.server.roster.state import RosterState
from volary.train.saving.committing import write_files
from volary.train.state.optimizer_state import OPTIMIZER, OptimizerState
from volary.train.state.state_file import StateContent
from volary.train.state.weights import WEIGHTS, weights_content, weights_of

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class FirstCheckpoint:
    """A checkpoint after `step` updates, with files by name."""

    step: int
    files: Mapping[str, Content]

    def write(self, checkpoints: Checkpoints) -> None:
        """Write it to those of a new run. Raises OSError."""
        checkpoints.begin(self.step)
        sums = write_files(checkpoints.write, self.step, self.files.items())
        checkpoints.commit(self.step, 1, sums, None)


def untrained(module: nn.Module) -> FirstCheckpoint:
    """The checkpoint of a network as it is, before the first step: all else is as a run begins without one."""
    return FirstCheckpoint(
        0,
        {
            WEIGHTS: weights_content(weights_of(module)),
            OPTIMIZER: StateContent(OptimizerState().plain()),
            SHARED: StateContent({}),
            ROSTER: msgspec.json.encode(RosterState(0, 0, RemainingSamples(0, []))),
        },
    )
