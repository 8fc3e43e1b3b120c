"""What every consistency model decides: which contributions make an update, and when workers push and pull."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from volary.server.closing import Closer


@dataclass(frozen=True, kw_only=True)
class Consistency:
    """A model's settings, and what the roster and the workers need to know of it. All defaults are those of `bsp`."""

    @property
    def needs_server(self) -> bool:
        """Whether replicas may differ, so that a parameter server must keep what is agreed."""
        return False

    @property
    def elastic(self) -> bool:
        """Whether workers may leave and join while the run goes on."""
        return False

    @property
    def steals(self) -> bool:
        """Whether a worker that has nothing left to do takes a portion that another has not begun."""
        return False

    @property
    def epoch_share(self) -> float | None:
        """The share of workers that ends an epoch once they have finished their own part of it, in (0, 1].

        None: there are no own parts, and the next epoch begins as soon as a worker has nothing left to do.
        """
        return None

    @property
    def push_every(self) -> int:
        """How many portions of samples a worker pushes as one contribution."""
        return 1

    @property
    def fetch_every(self) -> int:
        """How many contributions a worker computes with the same parameters."""
        return 1

    @property
    def asks_ahead(self) -> bool:
        """Whether a worker asks for parameters when backward begins, too: it reads whatever is there."""
        return False

    def closer(self, workers: int, first: int = 0, samples: int = 0) -> Closer:
        """Which contributions make an update, and when, in a run of so many workers: here all of a step, as computed.

        first: the clock that the run begins with. samples: how many were learnt from before. Raises SettingError if a
        setting does not fit the number of workers.
        """
        from volary.consistency._with_all import WithAll  # reading a session needs no more than the settings

        return WithAll(first, early=True)
