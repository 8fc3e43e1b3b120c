"""Protocols of state in a checkpoint: state that all ranks hold alike, and state of each rank alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from volary.train.state.held import Savable


class Stateful(Protocol):
    """Part of a run's state, in values that a weights-only reader accepts."""

    def state(self) -> Any:
        """Everything that decides how this continues."""
        ...

    def restore(self, state: Any) -> None:
        """Continue from what `state` returned."""
        ...


class RankState(Protocol):
    """State that differs by rank, such as residuals; those of ranks that a resumed run has no more go to the others."""

    def rank_state(self) -> Any:
        """This rank's state, in values that a weights-only reader accepts."""
        ...

    def restore_rank(self, states: Sequence[Any]) -> None:
        """Replace this rank's own state by that of several ranks in a checkpoint."""
        ...


@dataclass(frozen=True)
class CheckpointParts:
    """The parts of a run that a rank holds. own: makes the state that it has alone, by name.

    alike: makes the files, by name, of what all ranks have alike, which one of them writes. kept: makes the files of
    its share, where each rank keeps one.
    """

    own: Callable[[], Mapping[str, Any]]
    alike: Callable[[], Iterable[tuple[str, Savable]]]
    kept: Callable[[], Iterable[tuple[str, Savable]]] = tuple
