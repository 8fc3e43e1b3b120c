"""The progress of a run, in the words that every checkpoint has, whoever writes it: those of a roster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from volary.server.roster.portions import RemainingSamples
from volary.server.roster.state import RosterState
from volary.sharding.epochs import Epochs

if TYPE_CHECKING:
    from volary.data.feed import Feed
    from volary.run.best import Best
    from volary.server.roster.plateau import Plateau


class Progress:
    """The progress of workers that keep step. warn: says in a sentence what cannot be as it was."""

    def __init__(self, feed: Feed, best: Best, plateau: Plateau, warn: Callable[[str], None]) -> None:
        self._feed, self._best, self._plateau, self._warn = feed, best, plateau, warn

    def packed(self, step: int) -> bytes:
        """The bytes of the progress file of a checkpoint after `step` updates."""
        feed = self._feed.state()
        epoch, position, samples = feed["epoch"], feed["position"], feed["samples"]
        begun = [(epoch, position, samples)] if position else []
        left = RemainingSamples(epoch + len(begun), begun)
        return msgspec.json.encode(RosterState(step, epoch * samples + position, left, self._best, self._plateau))

    def parts(self, data: bytes) -> dict[str, Any]:
        """The states of the feed and of the best evaluation, from what a roster said.

        A feed has an epoch in its order, which workers of servers may not have.
        """
        known, state = msgspec.json.decode(data, type=RosterState), self._feed.state()
        epochs = Epochs(state["samples"], self._feed.batch_size)
        epoch, position = divmod(known.samples, epochs.samples)
        ranges = [(start + at * epochs.samples, end + at * epochs.samples) for at, start, end in known.left.ranges]
        if missed := sum(max(0, min(end, known.samples) - start) for start, end in ranges):
            self._warn(
                f"{missed} samples are left out, and as many come twice in an epoch: workers were not equally far"
            )
        feed = state | {"epoch": epoch, "position": position, "step": epochs.steps_of(known.samples)}
        return {"feed": feed, "best": msgspec.to_builtins(known.best), "plateau": known.plateau.state()}
