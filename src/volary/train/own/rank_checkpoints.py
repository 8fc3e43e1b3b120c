"""Checkpoints of a user's own loop over all-reduce: all ranks write them together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from volary.train.state.committing import Committing
from volary.train.state.rank_state import rank_file
from volary.train.state.state_file import state_content

if TYPE_CHECKING:
    from pathlib import Path

    from volary.comm.groups.group import Group
    from volary.run.checkpoints import Manifest
    from volary.run.content import Content
    from volary.train.recording.recorder import Recorder
    from volary.train.state.drafts import Drafts


class RankCheckpoints:
    """See `volary.train.own.keeping.LoopCheckpoints`. Of the ranks of `group`, to `drafts`."""

    def __init__(self, group: Group, recorder: Recorder, drafts: Drafts) -> None:
        self.rank, self.size = group.rank, group.size
        self._bulletin, self._recorder, self._drafts = group.bulletin, recorder, drafts
        self._gathered = 0

    def newest(self) -> tuple[Manifest, Path] | None:
        """Rank 0 looks for it, and sets damaged ones aside. Raises RunError if all are damaged."""
        if self.rank == 0:
            newest, warnings = self._drafts.take_up()
            for text in warnings:
                self._recorder.event("warning", text=text)
            self._bulletin.post("resume", newest)
        step = self._bulletin.read("resume", 0)
        if step is None:
            return None
        manifest = self._drafts.have(step, whole=True)
        return manifest, self._drafts.checkpoints.path(step)

    def on_servers(self, value: Any) -> bool:
        """Over all-reduce no network is."""
        return False

    def write(self, mine: dict[str, Any], alike: Callable[[], Iterator[tuple[str, Content]]]) -> None:
        """Of this step; rank 0 writes what all have alike. A collective call."""

        def files() -> Iterator[tuple[str, Content]]:
            yield rank_file(self.rank), state_content(mine)
            if self.rank == 0:
                yield from alike()

        committing = Committing(self._drafts, self._recorder, self.rank, self._gather)
        failure = committing.write(self._recorder.step, files)
        if failure and self.rank == 0:
            self._recorder.event("checkpoint_failed", reason=f"{failure}; training goes on, older checkpoints stay")

    def _gather(self, value: Any) -> list[Any]:
        """Over the bulletin: a rank that saves while another is in a step must not mix with its exchange."""
        self._gathered += 1
        return self._bulletin.share(f"save-{self._gathered}", value)
