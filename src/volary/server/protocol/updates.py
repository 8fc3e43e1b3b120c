"""Which contributions make an update, and of which samples: plain values that travel within messages."""

from __future__ import annotations

from msgspec import Struct

from volary.server.protocol.vectors import Asked


class Contribution(Struct, frozen=True, array_like=True, order=True):
    """One worker's share of an update: what it pushed with this clock."""

    worker: int
    clock: int


class Portion(Struct, frozen=True, array_like=True):
    """Samples `start` to `end` of the order of `epoch`, to be learnt from once. number: unique in the run."""

    number: int
    epoch: int
    start: int
    end: int


class Closing(Struct, frozen=True, array_like=True):
    """An update: number 1, 2, ... of the run; every server applies all of them, in this order.

    contributions: what it is the sum of; none: nothing changes but the version. scale: factor of that sum. samples:
    that the run has learnt from, this update included. dropped: contributions that will be in no update. rates: the
    learning rates to use, as workers sent them; none: those of the session's schedule. norm: the kind of norm of the
    gradient that servers find (PartialNorms) before they apply it, times Clip's factor; None: they apply it at once.
    asked: what servers find of vectors (Products) before they do with the update what Direct says; None: they have a
    rule of their own.
    """

    number: int
    contributions: tuple[Contribution, ...]
    scale: float
    samples: int
    dropped: tuple[Contribution, ...] = ()
    rates: tuple[float, ...] = ()
    norm: float | None = None
    asked: Asked | None = None

    @property
    def waits(self) -> bool:
        """Whether servers find something of the update first, and the roster says what becomes of it."""
        return self.norm is not None or self.asked is not None
