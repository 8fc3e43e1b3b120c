"""How each parameter's gradient travels now: it changes when a warm-up ends, and when links are known or others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from volary.consistency._base import Push
from volary.exchange.choice.choices import decided, fitting, refuse_strangers
from volary.exchange.choice.costs import LinkCosts
from volary.exchange.choice.layers import layers
from volary.exchange.choice.measurements import Measurements
from volary.exchange.choice.rows import RowCounter
from volary.exchange.representations import representation_of
from volary.exchange.representations.exact import EXACT
from volary.train.strategies.profile import WARM_STEPS

if TYPE_CHECKING:
    from volary.codec._base import Codec, Layer
    from volary.comm.groups.group import Bulletin
    from volary.exchange.representations._base import Representation
    from volary.train.strategies.contribution import ContributionBuffers, StrategySettings

WATCHED_STEPS = WARM_STEPS + 1
FOLLOW_STEPS = 20  # between two looks at the links
CHANGED = 2.0  # links that are faster or slower by this factor are other links


class Chooser:
    """Alike on all ranks: what is measured, rank 0 measures. samples: how many the run has seen.

    Raises SettingError for a codec's pattern that matches no trained parameter.
    """

    def __init__(self, terms: StrategySettings, bulletin: Bulletin, samples: Callable[[], int]) -> None:
        self._terms, self._bulletin, self._samples = terms, bulletin, samples
        self._codec: Codec = terms.settings.codec
        refuse_strangers(self._codec, terms.module)
        self._steps = self._asked = 0
        # a difference of parameters is no sum of products
        of_gradients = terms.settings.consistency.pushes is Push.GRADIENT
        self._rows = RowCounter(terms.module) if self._codec.chooses and of_gradients else None
        self._rate = _Rate()
        self._now = self._codec.at(samples())

    def ways(self) -> dict[str, Representation]:
        """The representation of each parameter that does not travel as it is, now."""
        self._now = self._codec.at(self._samples())
        found: dict[str, Representation] = {}
        for layer in self._layers(dict.fromkeys(self._counted)):
            way = self._way(self._now.of(layer.names[0]), layer)
            if way != EXACT:
                found |= dict.fromkeys(layer.names, way)
        return found

    def changed(self, contribution: ContributionBuffers) -> bool:
        """A step is over: whether `ways` are others from now on. At some steps a collective call."""
        self._steps += 1
        warmed = self._codec.at(self._samples()) != self._now
        return self._chosen_anew(contribution) or warmed

    def _chosen_anew(self, contribution: ContributionBuffers) -> bool:
        if not self._codec.chooses:
            return False
        if self._codec.follows and not contribution.keeper.sent_bytes:
            return False  # in shared memory, where nothing travels
        if not self._terms.carried.ways:
            return self._steps >= WATCHED_STEPS and self._agree(contribution)
        return self._codec.follows and self._steps % FOLLOW_STEPS == 0 and self._agree(contribution)

    @property
    def _counted(self) -> list[str]:
        """Weights whose gradients may be sums of products, and whose codec wants to know."""
        gradients = self._terms.settings.consistency.pushes is Push.GRADIENT
        names = self._rows.names if self._rows is not None and gradients else []
        return [name for name in names if self._codec.of(name).chooses]

    def _layers(self, products: Mapping[str, float | None]) -> list[Layer]:
        return layers(self._terms.module, products)

    def _way(self, codec: Codec, layer: Layer) -> Representation:
        """By what was chosen, if there is a choice; until then as it is."""
        offered = codec.leaves() if codec.chooses else fitting(codec, layer)
        ways = [representation_of(leaf) for leaf in offered]
        chosen = self._terms.carried.ways.get(layer.names[0])
        return next((way for way in ways if way.name == chosen), ways[0])

    def close(self) -> None:
        """Watch no longer."""
        if self._rows is not None:
            self._rows.remove()

    def _agree(self, contribution: ContributionBuffers) -> bool:
        """Take what rank 0 decides; whether it differs from what was."""
        topic, before = f"ways {self._steps}", self.ways()
        if self._bulletin.rank == 0:
            self._bulletin.post(topic, self._decided(contribution))
        ways: dict[str, str] | None = self._bulletin.read(topic, 0)
        if ways is None:
            return False
        self._terms.carried.ways = ways
        return self.ways() != before

    def _decided(self, contribution: ContributionBuffers) -> dict[str, str] | None:
        """The name of each parameter's way, and for people why; None where links are as they were."""
        bytes_per_s = self._rate.of(contribution.sent_bytes_per_s())
        if bytes_per_s is None and self._codec.follows:
            return None
        rows = self._rows.seen() if self._rows is not None else {}
        products = {name: rows[name] / (self._steps - self._asked) for name in self._counted}
        self._asked = self._steps
        seen = Measurements(self._layers(products), self._links(bytes_per_s or math.inf))
        decisions = decided(self._codec, seen)
        ways = {name: decision.way for decision in decisions for name in decision.names}
        if ways != self._terms.carried.ways:
            table = [
                [one.names[0], one.way, round(one.link_bytes), round(one.seconds, 6), one.why] for one in decisions
            ]
            self._terms.recorder.event("ways", bytes_per_s=round(bytes_per_s or 0), table=table)
        return ways

    def _links(self, bytes_per_s: float) -> LinkCosts:
        nodes = self._terms.ground.topology.nodes
        local = max(len(ranks) for ranks in nodes) if len(nodes) > 1 else 1
        return LinkCosts(len(self._terms.ground.topology.order), local, local * bytes_per_s, self._terms.ground.levels)


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
