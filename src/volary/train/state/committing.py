"""All ranks write one checkpoint together: it counts once everything of everybody is on the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from volary.run.content import Content
    from volary.train.recording.recorder import Recorder
    from volary.train.state.drafts import Drafts

Files = Callable[[], "Iterator[tuple[str, Content]]"]


class Committing:
    """Of one run. gather: what all ranks say, by rank; a collective call."""

    def __init__(self, drafts: Drafts, recorder: Recorder, rank: int, gather: Callable[[Any], list[Any]]) -> None:
        self._drafts, self._recorder, self._rank, self._gather = drafts, recorder, rank, gather

    def write(self, step: int, files: Files, metric: float | None = None, *, last: bool = False) -> str:
        """Write and commit the checkpoint of `step`. Returns why that failed, the same on all ranks; then nothing of it
        is left. A collective call. files: what this rank writes, by name. last: waits until it counts.
        """
        failure = self._tried(step, files, metric)
        if last and not failure:
            failure = self._failure_of_first(self._drafts.settle)
        if failure and self._rank == 0:
            self._drafts.give_up(step)
        return failure

    def _tried(self, step: int, files: Files, metric: float | None) -> str:
        drafts = self._drafts
        if failure := self._failure_of_first(lambda: drafts.begin(step)):
            return failure
        sums: dict[str, str] = {}

        def write() -> None:
            for name, content in files():
                sums[name] = drafts.write(step, name, content)
                del content  # with the state that it holds, before that of the next file is made

        everybody = self._gathered((_failure(write), sums))
        for other, (failure, theirs) in enumerate(everybody):
            if failure:
                return f"rank {other}: {failure}" if other else str(failure)
            sums |= theirs
        return self._failure_of_first(lambda: drafts.commit(step, len(everybody), sums, metric))

    def _failure_of_first(self, work: Callable[[], object]) -> str:
        """Rank 0 does it; all ranks learn why it failed, if it did."""
        failure: str = self._gathered(_failure(work) if self._rank == 0 else "")[0]
        return failure

    def _gathered(self, value: Any) -> list[Any]:
        """What all ranks say, by rank; meanwhile the others are those that are late."""
        with self._recorder.waiting():
            return self._gather(value)


def _failure(work: Callable[[], object]) -> str:
    """Do it; what the disk did not let be done, or nothing."""
    try:
        work()
    except OSError as error:
        return str(error)
    return ""
