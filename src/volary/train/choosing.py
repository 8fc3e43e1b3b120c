"""Chooses the way in which each parameter travels: at the start, when a warm-up ends, and when links are known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from volary.exchange._layers import layers
from volary.exchange._options import Links
from volary.exchange._rows import Rows
from volary.exchange._seen import Seen
from volary.exchange._way import EXACT
from volary.train.profile import WARM_STEPS

if TYPE_CHECKING:
    from volary.exchange._way import Way
    from volary.train.bulletin import Bulletin
    from volary.train.contribution import Contribution, Terms

WATCHED_STEPS = WARM_STEPS + 1
FOLLOW_STEPS = 20  # between two looks at the links
CHANGED = 2.0  # links that are faster or slower by this factor are other links


class Chooser:
    """Alike on all ranks: what is measured, rank 0 measures. samples: how many the run has seen."""

    def __init__(self, terms: Terms, bulletin: Bulletin, samples: Callable[[], int]) -> None:
        self._terms, self._bulletin, self._samples = terms, bulletin, samples
        self._exchange, self._codec = terms.settings.exchange, terms.settings.codec
        self._steps = self._asked = 0
        self._rows = Rows(terms.module) if self._exchange.decides else None
        self._rate = _Rate()

    def ways(self) -> dict[str, Way]:
        """The way of each parameter that does not travel as it is, now."""
        if self._terms.carried.ways:
            named = {name: self._exchange.named(way) for name, way in self._terms.carried.ways.items()}
            return {name: way for name, way in named.items() if way != EXACT}
        self._codec = self._terms.settings.codec.at(self._samples())
        trained = {name: one for name, one in self._terms.module.named_parameters() if one.requires_grad}
        found: dict[str, Way] = self._exchange.ways(self._codec, trained)
        return found

    def changed(self, contribution: Contribution) -> bool:
        """A step is over: whether `ways` are others from now on. At some steps a collective call."""
        self._steps += 1
        if not self._exchange.decides:
            return bool(self._terms.settings.codec.at(self._samples()) != self._codec)
        if self._exchange.follows and not contribution.exchange.sent_bytes:
            return False  # in shared memory, where nothing travels
        if not self._terms.carried.ways:
            return self._steps >= WATCHED_STEPS and self._agree(contribution)
        return self._exchange.follows and self._steps % FOLLOW_STEPS == 0 and self._agree(contribution)

    def close(self) -> None:
        """Watch no longer."""
        if self._rows is not None:
            self._rows.remove()

    def _agree(self, contribution: Contribution) -> bool:
        """Take what rank 0 decides; whether it differs from what was."""
        topic, before = f"ways {self._steps}", self.ways()
        if self._bulletin.rank == 0:
            self._bulletin.post(topic, self._decided(contribution))
        ways: dict[str, str] | None = self._bulletin.read(topic, 0)
        if ways is None:
            return False
        self._terms.carried.ways = ways
        return self.ways() != before

    def _decided(self, contribution: Contribution) -> dict[str, str] | None:
        """The name of each parameter's way, and for people why; None where links are as they were."""
        assert self._rows is not None
        bytes_per_s = self._rate.of(contribution.sent_bytes_per_s())
        if bytes_per_s is None and self._exchange.follows:
            return None
        products = {name: rows / (self._steps - self._asked) for name, rows in self._rows.seen().items()}
        self._asked = self._steps
        seen = Seen(layers(self._terms.module, products), self._links(bytes_per_s or math.inf))
        decisions = self._exchange.decide(seen)
        ways = {name: decision.way for decision in decisions for name in decision.names}
        if ways != self._terms.carried.ways:
            table = [
                [one.names[0], one.way, round(one.link_bytes), round(one.seconds, 6), one.why] for one in decisions
            ]
            self._terms.recorder.event("ways", bytes_per_s=round(bytes_per_s or 0), table=table)
        return ways

    def _links(self, bytes_per_s: float) -> Links:
        nodes = self._terms.ground.topology.nodes
        local = max(len(ranks) for ranks in nodes) if len(nodes) > 1 else 1
        return Links(len(self._terms.ground.topology.order), local, local * bytes_per_s, self._terms.ground.levels)


class _Rate:
    """Bytes per second of this rank's link, scaled by how it changes.

    Encoded values and factors load a link otherwise than the sums did from which its speed is known, so after a choice
    what is measured is only compared with itself.
    """

    def __init__(self) -> None:
        self._known: float | None = None
        self._reference: float | None = None

    def of(self, measured: float | None) -> float | None:
        """The link's bytes per second, now that so many were `measured`; None if it is as it was."""
        if measured is None:
            return None
        if self._known is None:
            self._known = measured
            return measured
        if self._reference is None:
            self._reference = measured
            return None
        change = measured / self._reference
        if 1 / CHANGED < change < CHANGED:
            return None
        self._known, self._reference = self._known * change, None
        return self._known
