"""A loss that does not say what it divides by: part of a batch, or what targets are filled up with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from volary.data.batching.padding import IGNORED
from volary.errors import SettingError
from volary.network.criteria.user_loss import UserLoss
from volary.network.loss_graph import mean_of_some_in

if TYPE_CHECKING:
    from torch import Tensor

    from volary.network.criterion import Criterion
    from volary.train.recording.recorder import Recorder


class UncountedLoss:
    """Warns of it, once, where batches are divided: into `pieces`, among workers and on each."""

    def __init__(self, criterion: Criterion, recorder: Recorder, pieces: int) -> None:
        self._recorder, self._name = recorder, getattr(criterion, "name", "")
        self._looks = isinstance(criterion, UserLoss) and not criterion.counts and pieces > 1

    def look(self, loss: Tensor, samples: int) -> None:
        """Look at the loss of so many samples, a scalar."""
        if self._looks and (how := mean_of_some_in(loss, samples)):
            self._looks = False
            text = f"loss {self._name!r} is a mean over a part of the batch ({how}), and workers and parts are weighted"
            accepted = "accepted: counted(target) beside it, which gives what the loss divides by"
            self._recorder.event("warning", text=f"{text} by their samples; {accepted}")


def refusing_filled(criterion: Criterion, loss: str) -> Callable[[Tensor], None]:
    """Raises SettingError, given targets (n, ...) that are all filled up, if they count for `criterion`."""

    def check(targets: Tensor) -> None:
        if criterion.counted(targets) != 0:
            raise SettingError(
                f"loss {loss!r} does not say that it ignores {IGNORED}, with which targets of differing size are "
                "filled up; accepted: cross_entropy, or a loss of your own with counted(target), which gives 0 for them"
            )

    return check
