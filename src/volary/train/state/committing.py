"""All ranks write one checkpoint together: it counts once everything of everybody is on the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from volary.run.content import Content
    from volary.train.recording.recorder import Recorder
    from volary.train.state.drafts import Drafts

Files = Callable[[], "Iterator[tuple[str, Content]]"]


def write_files(
    write: Callable[[int, str, Content], str], step: int, files: Iterable[tuple[str, Content]]
) -> dict[str, str]:
    """Write files of the checkpoint of `step`; their checksums by name. write: one of them. Raises OSError."""
    sums = {}
    for name, content in files:
        sums[name] = write(step, name, content)
        del content  # with the state that it holds, before that of the next file is made
    return sums


class Committing:
    """Writes one run's checkpoints. gather: returns what all ranks say, by rank; a collective call."""

    def __init__(self, drafts: Drafts, recorder: Recorder, gather: Callable[[Any], list[Any]]) -> None:
        self._drafts, self._recorder, self._gather = drafts, recorder, gather

    def write(self, step: int, files: Files, metric: float | None = None, *, last: bool = False) -> str:
        """Write and commit the checkpoint of `step`. Returns why that failed, the same on all ranks; then nothing of it
        is left. A collective call. files: what this rank writes, by name. last: waits until it counts.
        """
        drafts = self._drafts.at_once() if last else self._drafts
        failure = self._tried(drafts, step, files, metric)
        if last and not failure:
            failure = self._failure_of_any(drafts.settle)
        if failure and self._recorder.leads:
            drafts.give_up(step)
        return failure

    def settle(self) -> str:
        """Wait until what was written counts. Returns why it does not, the same on all ranks. A collective call."""
        return self._failure_of_any(self._drafts.settle)

    def newest(self) -> int | None:
        """The step of the checkpoint that came to count last. A collective call."""
        found: int | None = self._gathered(self._drafts.newest)[0]
        return found

    def _tried(self, drafts: Drafts, step: int, files: Files, metric: float | None) -> str:
        if failure := self._failure_of_any(lambda: drafts.begin(step)):
            return failure
        sums: dict[str, str] = {}

        def write() -> None:
            sums.update(write_files(drafts.write, step, files()))

        everybody = self._gathered((_failure(write), sums))
        for other, (failure, theirs) in enumerate(everybody):
            if failure:
                return _of(other, failure)
            sums |= theirs
        return self._failure_of_any(lambda: drafts.commit(step, len(everybody), sums, metric))

    def _failure_of_any(self, work: Callable[[], object]) -> str:
        """All ranks do it, and learn why it failed, if it did: of the first where it did."""
        everybody: list[str] = self._gathered(_failure(work))
        return next((_of(other, failure) for other, failure in enumerate(everybody) if failure), "")

    def _gathered(self, value: Any) -> list[Any]:
        """What all ranks say, by rank; meanwhile the others are those that are late."""
        with self._recorder.waiting():
            return self._gather(value)


def _of(rank: int, failure: str) -> str:
    return f"rank {rank}: {failure}" if rank else failure


def _failure(work: Callable[[], object]) -> str:
    """Do it; what the disk did not let be done, or nothing."""
    try:
        work()
    except OSError as error:
        return str(error)
    return ""
