"""All ranks write one checkpoint together: it counts once everything of everybody is on the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from volary.sharding.groups import leads

if TYPE_CHECKING:
    from volary.run.content import Content
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
    """Writes one run's checkpoints. gather: returns what all ranks say, by rank; a collective call. leads: this rank
    deletes what does not count. counting: is around the moment in which one comes to count; may raise OSError.
    """

    def __init__(
        self,
        drafts: Drafts,
        gather: Callable[[Any], list[Any]],
        *,
        leads: bool,
        counting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._drafts, self._gather, self._leads, self._counting = drafts, gather, leads, counting

    def write(self, step: int, files: Files, metric: float | None = None) -> str:
        """Write and commit the checkpoint of `step`. Returns why that failed, the same on all ranks; then nothing of it
        is left. A collective call. files: what this rank writes, by name.
        """
        failure = self._tried(step, files, metric)
        if failure and self._leads:
            self._drafts.give_up(step)
        return failure

    def newest(self) -> int | None:
        """The step of the checkpoint that came to count last. A collective call."""
        found: int | None = self._gather(self._drafts.newest)[0]
        return found

    def _tried(self, step: int, files: Files, metric: float | None) -> str:
        if failure := self._failure_of_any(lambda: self._drafts.begin(step)):
            return failure
        sums: dict[str, str] = {}

        def write() -> None:
            sums.update(write_files(self._drafts.write, step, files()))

        everybody = self._gather((_failure(write), sums))
        for other, (failure, theirs) in enumerate(everybody):
            if failure:
                return _of(other, failure)
            sums |= theirs

        def commit() -> None:
            with self._counting():
                self._drafts.commit(step, len(everybody), sums, metric)

        return self._failure_of_any(commit)

    def _failure_of_any(self, work: Callable[[], object]) -> str:
        """All ranks do it, and learn why it failed, if it did: of the first where it did."""
        everybody: list[str] = self._gather(_failure(work))
        return next((_of(other, failure) for other, failure in enumerate(everybody) if failure), "")


def _of(rank: int, failure: str) -> str:
    return failure if leads(rank) else f"rank {rank}: {failure}"


def _failure(work: Callable[[], object]) -> str:
    """Do it; what the disk did not let be done, or nothing."""
    try:
        work()
    except OSError as error:
        return str(error) or type(error).__name__
    return ""
