"""Everything that has happened in one simulated run, as far as promises speak of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeAlias

from volary.server.protocol.updates import Closing, Contribution, Portion

Value: TypeAlias = tuple[Contribution, ...]  # of a slice: all that it is the sum of, in the order they were added


@dataclass(frozen=True)
class Read:
    """A worker began `clock` with these parameters: by slice, version and value."""

    worker: int
    clock: int
    slices: dict[int, tuple[int, Value]]


@dataclass(frozen=True)
class Wait:
    """A worker could not begin `clock` yet. needed: the version it lacked; closed: the newest update there was;
    behind: the first clock that not all who were there had finished, as far as the roster had heard.
    """

    worker: int
    clock: int
    needed: int
    closed: int
    behind: int


@dataclass(frozen=True)
class Saved:
    """A checkpoint. state: of the roster; values: by slice; residuals: by worker, what they are of."""

    step: int
    state: dict[str, Any]
    values: dict[int, Value]
    residuals: dict[int, Value] = field(default_factory=dict)


@dataclass
class History:
    """first, began: the update that the run began with, and what all slices were then.

    learnt: what each contribution was made from. acknowledged: contributions that their workers know to be held.
    dropped: those that workers were told of. not_finite: those whose loss was no number. numbers: of snapshots, as of
    which update they are; snapshots: what was seen of them, by slice. counts: what the roster has counted.
    lost_servers: that the run went on without. stayed: workers that were there at the end. encoded: by worker,
    contributions that its residuals are of. residuals: what is written of these, by step and worker. norms: that
    workers were told of the updates that contributions are in.
    """

    first: int = 0
    began: Value = ()
    learnt: dict[Contribution, tuple[Portion, ...]] = field(default_factory=dict)
    closings: list[Closing] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    acknowledged: set[Contribution] = field(default_factory=set)
    dropped: set[Contribution] = field(default_factory=set)
    not_finite: set[Contribution] = field(default_factory=set)
    numbers: dict[int, int] = field(default_factory=dict)
    snapshots: dict[int, set[tuple[int, Value]]] = field(default_factory=dict)
    saved: list[Saved] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    lost_servers: set[int] = field(default_factory=set)
    stayed: set[int] = field(default_factory=set)
    encoded: dict[int, Value] = field(default_factory=dict)
    residuals: dict[tuple[int, int], Value] = field(default_factory=dict)
    norms: dict[Contribution, float] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        """The last update that was announced."""
        return self.first + len(self.closings)

    @property
    def checkpoints(self) -> dict[int, Saved]:
        """The checkpoints that there are, by step: a later one of the same step has taken the earlier one's place."""
        return {saved.step: saved for saved in self.saved}

    @property
    def newest_checkpoint(self) -> Saved:
        """The state from which a resumed run continues."""
        return self.checkpoints[max(self.checkpoints)]

    def said(self, kind: str, rank: int | None, data: dict[str, Any]) -> None:
        """The roster's events, as they come."""
        self.lost_servers.update([data["server"]] if kind == "server_lost" else [])
        for counted, _, _, _, often in data.get("rows", ()):
            self.counts[counted] += often

    def used(self) -> Iterator[Contribution]:
        """All contributions that made an update, in their order."""
        for closing in self.closings:
            yield from closing.contributions

    def samples(self, number: int | None = None) -> Counter[tuple[int, int]]:
        """How often each sample was learnt from, as (epoch, sample), up to and with update `number`."""
        learnt: Counter[tuple[int, int]] = Counter()
        for closing in self.closings:
            if number is None or closing.number <= number:
                left_out = [each for each in closing.dropped if each in self.not_finite]
                for portion in chain.from_iterable(self.learnt[each] for each in (*closing.contributions, *left_out)):
                    learnt.update((portion.epoch, sample) for sample in range(portion.start, portion.end))
        return learnt

    def as_of(self) -> list[Value]:
        """The right value of every slice after update `first`, and after each that follows."""
        values = [self.began]
        for closing in self.closings:
            values.append(values[-1] + closing.contributions)
        return values
