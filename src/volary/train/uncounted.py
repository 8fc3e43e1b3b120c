"""A loss of the user's own that divides by something that it does not say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.network.criteria.own import OwnLoss
from volary.network.loss_graph import mean_of_some_in

if TYPE_CHECKING:
    from torch import Tensor

    from volary.network.criterion import Criterion
    from volary.train.recording.recorder import Recorder


class UncountedLoss:
    """Warns of it, once, where batches are divided: into `pieces`, among workers and on each."""

    def __init__(self, criterion: Criterion, recorder: Recorder, pieces: int) -> None:
        self._recorder, self._name = recorder, getattr(criterion, "name", "")
        self._looks = isinstance(criterion, OwnLoss) and not criterion.counts and pieces > 1

    def look(self, loss: Tensor, samples: int) -> None:
        """At the loss of so many samples, a scalar."""
        if self._looks and (how := mean_of_some_in(loss, samples)):
            self._looks = False
            text = f"loss {self._name!r} is a mean over a part of the batch ({how}), and workers and parts are weighted"
            accepted = "accepted: counted(target) beside it, which gives what the loss divides by"
            self._recorder.event("warning", text=f"{text} by their samples; {accepted}")
