"""State of which each worker has its own where workers update by themselves, in checkpoints."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from volary.train.state.checkpoint import Stateful


class PerWorkerState:
    """The `name` of each worker, as an optimiser or a loss scale; see `Stateful` and `RankState`.

    A worker that a resumed run has more than before begins with rank 0's.
    """

    def __init__(self, name: str, part: Stateful) -> None:
        self._name, self._part, self._own = name, part, False

    def state(self) -> Any:
        return self._part.state()

    def restore(self, state: Any) -> None:
        """Go on from rank 0's, unless there was one of this worker's own."""
        if not self._own:
            self._part.restore(state)

    def rank_state(self) -> dict[str, Any]:
        """This worker's, as of now: servers keep it while training goes on."""
        return {self._name: deepcopy(self._part.state())}

    def restore_rank(self, states: Sequence[dict[str, Any]]) -> None:
        """Go on from this worker's own, if there is one; those of workers that are gone end with them."""
        if states:
            self._own = True
            self._part.restore(states[0][self._name])
