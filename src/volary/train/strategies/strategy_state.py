"""The state that outlives a plan of buckets: chosen representations, and residuals of codecs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from volary.exchange.compression.error_feedback import ErrorFeedback
from volary.train.strategies.averaging.outer_rule import WorkersOuterRule
from volary.train.strategies.comparison import Comparison

if TYPE_CHECKING:
    from volary.exchange.compression.residual import ResidualState
    from volary.train.update.averaging import Averaging

STRATEGY = "strategy"  # what a checkpoint calls this state, and that of all of a user's loop
_REPRESENTATIONS = "representations"
_EARLIER = "ways"  # the name of all three in checkpoints of earlier versions


def renamed(shared: Mapping[str, Any]) -> dict[str, Any]:
    """State that all ranks have alike in a checkpoint, by its names of this version, whichever wrote it."""
    return {STRATEGY if name == _EARLIER else name: state for name, state in shared.items()}


class ResidualKeeper(Protocol):
    """A keeper of what codecs have left out; see `volary.exchange._base.Keeper`."""

    def state(self, *, copied: bool = True) -> ResidualState: ...

    def restore(self, states: Sequence[ResidualState]) -> None: ...


class StrategyState:
    """Representations are the same on all ranks, and in state.pt of a checkpoint; residuals are each rank's own.

    representations: by parameter, the name of the one that was chosen; empty before anything was. comparison: of the
    best, while it lasts. outer: the outer rule of local steps, the same on all ranks, with a state of its own.
    averaging: of what it makes. warned: warnings, and parameters that had no gradient, which are not said again.
    """

    def __init__(self, averaging: Averaging | None = None) -> None:
        self.representations: dict[str, str] = {}
        self.comparison: Comparison | None = None
        self.outer = WorkersOuterRule(averaging)
        self.warned: set[str] = set()
        self._residuals: ResidualKeeper = ErrorFeedback([])  # whoever has them: a worker alone has no keeper

    def follow(self, keeper: ResidualKeeper) -> None:
        """Let the keeper hold the residuals from now on; it continues from those of the one before."""
        keeper.restore([self._residuals.state(copied=False)])
        self._residuals = keeper

    def state(self) -> dict[str, Any]:
        """The representations, and how far they were compared."""
        return {
            _REPRESENTATIONS: self.representations,
            "comparison": self.comparison.state() if self.comparison else None,
        }

    def restore(self, state: Any) -> None:
        self.representations = dict(state[_REPRESENTATIONS if _REPRESENTATIONS in state else _EARLIER])
        compared = state.get("comparison")  # not, or otherwise, in checkpoints of earlier versions
        self.comparison = Comparison(**compared) if compared and "over" in compared else None

    def rank_state(self) -> dict[str, Any]:
        """The residuals of this rank's codecs, in their own memory until the next step."""
        return self._residuals.state(copied=False)

    def restore_rank(self, states: Sequence[dict[str, Any]]) -> None:
        """Replace the residuals by those of this rank, and of ranks that are gone, in a checkpoint."""
        self._residuals.restore(states)
