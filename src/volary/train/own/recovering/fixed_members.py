"""The workers of a loop of one's own none of which may be lost, and what is refused where some may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from volary.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import nn
    from torch.optim import Optimizer

    from volary.comm.groups.group import Group
    from volary.train.own.recovering.loop_members import LoopMembers
    from volary.train.own.recovering.round_before import Updated

Found = TypeVar("Found")


def refuse_with_recovery(members: Members, having: str) -> None:
    """Raise BadInput for a loop that has something which is bound to all workers, if some may be lost."""
    if members.recovers:
        raise BadInput(
            f"the loop has {having}, and strategy.recover is memory, with which others go on without a lost one; "
            "accepted: a loop without it, or recover=checkpoint"
        )


class FixedMembers:
    """Workers none of which may be lost."""

    recovers = leaves_out = has_left = equal = waits = False
    left_out = asked = welcomed = 0
    awaited = (0, 1)

    def require_others(self, called: str) -> None:
        """Raise BadInput for a call of all workers, if this one has joined them and had no batch with them yet."""

    def require_joined(self) -> None:
        """Raise BadInput if this worker joins others, and has not met them."""

    def make(self, act: Callable[[], Found]) -> Found:
        """Make a call that all make."""
        return act()

    def step(self, act: Callable[[], object]) -> bool:
        """Make a step that all make; whether it counts."""
        act()
        return True

    def begin(
        self, generators: Any, named: Sequence[Any], optimizers: Sequence[Optimizer], models: Sequence[Updated]
    ) -> int:
        """An iteration may begin here: with a batch, or a backward pass. Returns its round.

        generators, named, optimizers, models: as of `RoundBefore`.
        """
        return 0

    def hold(self, optimizer: Optimizer) -> None:
        """An optimiser is about to update this worker's own parameters."""

    def own_step(self) -> bool:
        """This worker has updated its own parameters; whether that stands so far. Raises as `step`."""
        return True

    def take_back(self) -> None:
        """If the round before was left out, let the loop's values be as they were before it."""

    def stand(self) -> None:
        """A step is made of what was agreed on before the newest round, whatever comes of that."""

    def change(self) -> None:
        """Let others follow those that there are, between two steps. Raises Stopped for who leaves."""

    def enter(self, models: Sequence[nn.Module], named: Mapping[str, Any]) -> None:
        """Train with the others from here on, if this worker joins them."""

    def announce(self, group: Group, models: Sequence[nn.Module], names: Sequence[str], why: str) -> None:
        """Let those that may join know what this loop is."""

    def fed(self) -> None:
        """This worker has a batch with the others."""


Members: TypeAlias = "FixedMembers | LoopMembers"
