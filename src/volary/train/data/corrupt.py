"""Samples that cannot be read: how many an epoch lost, over all workers, and how many it may lose."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from volary.errors import DataError

if TYPE_CHECKING:
    from volary.comm.groups.group import Bulletin
    from volary.data.batching.batch import Batch
    from volary.train.agreement.votes import Agreed
    from volary.train.recording.recorder import Recorder

NAMED = 10  # of the list, in a message


def teller(recorder: Recorder, split: str) -> Callable[[int, str], None]:
    """Writes each sample that is skipped into the run."""
    return lambda index, reason: recorder.event("corrupt_sample", index=index, split=split, reason=reason)


class Corrupt:
    """Counts lost samples: an epoch may lose `share` of its `samples`. All ranks count alike and end at the same step.

    samples: None if nobody knows their number, as of a stream, which loses none.
    """

    def __init__(self, samples: int | None, share: float, recorder: Recorder, bulletin: Bulletin) -> None:
        self._samples, self._share, self._recorder, self._bulletin = samples or 0, share, recorder, bulletin
        self._epoch = self._lost = 0
        self._reported: dict[str, int] = {}  # by split, the newest total
        self._own: list[str] = []

    def report(self, index: int, reason: str) -> None:
        """A sample of the training part cannot be read by this rank."""
        self._own.append(reason)
        teller(self._recorder, "train")(index, reason)

    def count(self, batch: Batch, agreed: Agreed) -> None:
        """Take note of a step. Raises DataError, with the list, if an epoch has lost more than it may."""
        if batch.epoch != self._epoch:
            self._epoch, self._lost = batch.epoch, 0
        self._lost += agreed.lost
        if self._lost > self._share * self._samples:
            raise self._too_many(self._lost, self._samples, "train")
        if agreed.lost and not self._reported:
            self._say("train", self._lost, "so far; they are skipped")
        if batch.ends_epoch and self._lost:
            self._say("train", self._lost, f"in epoch {batch.epoch}; they were skipped")

    def count_evaluated(self, lost: int, samples: int) -> None:
        """Take note of an evaluation. Raises DataError likewise."""
        if lost > self._share * samples:
            raise self._too_many(lost, samples, "test")
        if lost:
            self._say("test", lost, "; figures are of the others")

    def state(self) -> dict[str, Any]:
        """The plain values of it that a checkpoint keeps."""
        return {"epoch": self._epoch, "lost": self._lost}

    def restore(self, state: Any) -> None:
        """Go on from a checkpoint's state."""
        self._epoch, self._lost = state["epoch"], state["lost"]

    def _say(self, split: str, lost: int, what: str) -> None:
        if self._reported.get(split) == lost:
            return  # the same ones as in the epoch before
        self._reported[split] = lost
        if self._recorder.leads:
            text = f"{lost} sample{'s' * (lost > 1)} of the {split} part could not be read {what}".replace(" ;", ";")
            self._recorder.event("warning", text=f"{text}; `volary show` lists them")

    def _too_many(self, lost: int, samples: int, split: str) -> DataError:
        own = self._own if split == "train" else []
        names = [name for names in self._bulletin.share(f"corrupt {split}", own[: NAMED + 1]) for name in names]
        more = ["..."] if len(names) > NAMED else []
        listed = "".join(f"\n  {name}" for name in [*names[:NAMED], *more])
        return DataError(
            f"{lost} of {samples} samples of the {split} part could not be read, more than data.skip_corrupt "
            f"({self._share:g} of an epoch) allows; `volary show` lists them all{listed}"
        )
