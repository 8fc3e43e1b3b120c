"""Chooses how each parameter's gradient travels now: it changes after a warm-up, and when links have changed."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from volary.comm.groups.leading import from_leader
from volary.consistency._base import Push
from volary.exchange.choice.choices import refuse_strangers
from volary.exchange.choice.costs import LinkCosts
from volary.exchange.choice.layers import layers
from volary.exchange.choice.rows import RowCounter, StepEstimate
from volary.exchange.choice.tables import StepFigures, Table, codecs_of, fitting, tables, worth_comparing
from volary.exchange.choice.work_times import work_times
from volary.exchange.gradients.plan import BYTES_PER_MIB
from volary.exchange.representations import representation_of
from volary.exchange.representations.exact import EXACT
from volary.run.machine.cores import own_cores
from volary.sharding.groups import leads
from volary.train.strategies import idle_settings
from volary.train.strategies.comparison import Comparison
from volary.train.strategies.profile import WARM_STEPS

if TYPE_CHECKING:
    from volary.codec._base import Codec, Layer
    from volary.comm.groups.group import Bulletin
    from volary.exchange.representations._base import Representation
    from volary.train.strategies.contribution import StrategySettings

WATCHED_STEPS = WARM_STEPS + 1  # as they are, where nobody could say before what steps will be
FOLLOW_STEPS = 20  # between two looks at the links; the first is so long after a change, which disturbs some steps
CHANGED = 2.0  # links that are faster or slower by this factor are other links


class Chooser:
    """Alike on all ranks: what is measured, rank 0 measures. samples: how many the run has seen.

    estimate: of this worker's steps, on rank 0; None if nothing is known before the first. Raises SettingError for a
    codec's pattern that matches no trained parameter.
    """

    def __init__(
        self,
        settings: StrategySettings,
        bulletin: Bulletin,
        samples: Callable[[], int],
        estimate: StepEstimate | None = None,
    ) -> None:
        self._settings, self._bulletin, self._samples = settings, bulletin, samples
        self._codec: Codec = settings.strategy.codec
        refuse_strangers(self._codec, settings.module)
        self._steps = self._asked = self._changed_at = 0
        self._ended_s = time.perf_counter()
        # a difference of parameters is no sum of products, and layers that are left as they are hand none over
        of_gradients = settings.strategy.consistency.pushes is Push.GRADIENT and not settings.at_once
        self._rows = RowCounter(settings.module) if self._codec.chooses and of_gradients else None
        self._estimate = estimate
        self._links: LinkCosts | None = None
        self._rate = _Rate()
        self._now = self._codec.at(samples())

    def representations(self) -> dict[str, Representation]:
        """The representation of each parameter that does not travel as it is, now."""
        self._now = self._codec.at(self._samples())
        found: dict[str, Representation] = {}
        for layer in self._layers(dict.fromkeys(self._counted)):
            representation = self._representation(self._now.of(layer.names[0]), layer)
            if representation != EXACT:
                found |= dict.fromkeys(layer.names, representation)
        return found

    def offered(self) -> Iterator[Representation]:
        """Yield what any layer may travel by, once a warm-up is over and products are counted."""
        for layer in self._layers(dict.fromkeys(self._counted, 1.0)):
            yield from map(representation_of, fitting(self._codec.of(layer.names[0]), layer))

    def finish(self) -> None:
        """Training is over: say so if the codec's warm-up is not."""
        text = idle_settings.of_warm_up(self._codec, self._samples())
        if leads(self._bulletin.rank) and text and self._has_a_choice:
            self._settings.recorder.event("warning", text=text)

    def choose_first(self, estimate: StepEstimate | None = None) -> None:
        """Choose before the first step, unless a checkpoint holds the choice. A collective call.

        estimate: of this worker's steps, if it was not known before.
        """
        self._estimate = estimate or self._estimate
        if self._rows is not None:
            self._rows.seen()  # a trial's are no step's
        if self._codec.chooses and not self._nothing_travels and not self._settings.state.representations:
            self._agree(lambda: self._decided(self._estimate))

    def changed(self, sent_bytes_per_s: Callable[[], float | None]) -> bool:
        """A step is over: whether `representations` are others from now on. At some steps a collective call.

        sent_bytes_per_s: that this rank sent while anything was on the wire, of late; None if nothing was.
        """
        self._steps += 1
        began_s, self._ended_s = self._ended_s, time.perf_counter()
        warmed = self._codec.at(self._samples()) != self._now
        if self._settings.state.comparison is not None:
            changed = self._compared(self._settings.state.comparison, self._ended_s - began_s) or warmed
        else:
            changed = self._chosen_anew(sent_bytes_per_s) or warmed
        if changed:
            self._changed_at = self._steps
        return changed

    @property
    def settled(self) -> bool:
        """Whether nothing is being compared, so that representations stay for a while."""
        return self._settings.state.comparison is None

    def close(self) -> None:
        """Stop watching steps; harmless when repeated."""
        if self._rows is not None:
            self._rows.remove()

    def _chosen_anew(self, sent_bytes_per_s: Callable[[], float | None]) -> bool:
        if not self._codec.chooses or self._nothing_travels:
            return False
        if not self._settings.state.representations:
            return self._steps >= WATCHED_STEPS and self._agree(lambda: self._decided(self._counted_rows()))
        if not self._codec.follows or (self._steps - self._changed_at) % FOLLOW_STEPS:
            return False
        return self._agree(lambda: self._decided(self._counted_rows()) if self._others(sent_bytes_per_s()) else None)

    def _compared(self, comparison: Comparison, step_s: float) -> bool:
        state, before = self._settings.state, comparison.now
        comparison.add(step_s)
        if comparison.asks:
            comparison.take(from_leader(self._bulletin, f"better {self._steps}", lambda: self._verdict(comparison)))
        state.representations = comparison.representations[comparison.now]
        if comparison.over:
            state.comparison = None
        return comparison.now != before

    @property
    def _nothing_travels(self) -> bool:
        """Ranks add in shared memory, and the codec does not insist on anything else."""
        return self._codec.follows and self._settings.comm_setup.shared

    @property
    def _counted(self) -> list[str]:
        """Weights whose gradients may be sums of products, and whose codec wants to know."""
        names = self._rows.names if self._rows is not None else []
        return [name for name in names if self._codec.of(name).chooses]

    def _layers(self, products: Mapping[str, float | None]) -> list[Layer]:
        return layers(self._settings.module, products)

    def _representation(self, codec: Codec, layer: Layer) -> Representation:
        """The representation that was chosen, if there is a choice; until then as it is."""
        offered = codec.leaves() if codec.chooses else fitting(codec, layer)
        representations = [representation_of(leaf) for leaf in offered]
        chosen = self._settings.state.representations.get(layer.names[0])
        return next((one for one in representations if one.name == chosen), representations[0])

    def _agree(self, decide: Callable[[], dict[str, Any] | None]) -> bool:
        """Take the representations that rank 0 decides on, and those to compare with; whether they have changed."""
        topic, before = f"representations {self._steps}", self.representations()
        if self._codec.follows and self._links is None:
            comm_setup = self._settings.comm_setup
            self._links = comm_setup.links.costs(levels=comm_setup.levels)
        found: dict[str, Any] | None = from_leader(self._bulletin, topic, decide)
        if found is None:
            return False
        self._settings.state.representations = found["representations"][0]
        self._settings.state.comparison = Comparison(**found) if len(found["representations"]) > 1 else None
        chosen = set(self._settings.state.representations.values())
        if leads(self._bulletin.rank) and not self._codec.follows and chosen <= {EXACT.name} and self._has_a_choice:
            self._settings.recorder.event("warning", text=idle_settings.of_choice(self._codec))
        return self.representations() != before

    @property
    def _has_a_choice(self) -> bool:
        """Whether any layer can travel otherwise than as it is."""
        return any(one != EXACT for one in self.offered())

    def _decided(self, step: StepEstimate | None) -> dict[str, Any] | None:
        """The names of parameters' representations, and those to be compared with them, as `Comparison` takes them."""
        if step is None:
            return None
        links = self._links or LinkCosts(len(self._settings.comm_setup.links.topology.order), 1, math.inf, levels=False)
        cores = own_cores()
        seen = StepFigures(
            self._layers({name: step.rows.get(name, 0.0) for name in self._counted}),
            links,
            work_times(codecs_of(self._codec)),
            step.compute_s / min(1.0, cores),
            cores,
            self._settings.strategy.bucket_mb * BYTES_PER_MIB,
        )
        worth = worth_comparing(tables(self._codec, seen), seen.layers)
        if worth[0].representations != self._settings.state.representations:
            self._tell(_rows(worth[0]))
        return {
            "representations": [one.representations for one in worth],
            "rows": [_rows(one) for one in worth],
            "expected_s": [one.seconds for one in worth],
        }

    def _counted_rows(self) -> StepEstimate:
        """An estimate from the steps since the last call."""
        rows, steps = self._rows.seen() if self._rows is not None else {}, self._steps - self._asked
        self._asked = self._steps
        known = self._estimate.compute_s if self._estimate is not None else 0.0
        return StepEstimate(rows={name: count / steps for name, count in rows.items()}, compute_s=known)

    def _others(self, sent_bytes_per_s: float | None) -> bool:
        """Whether links are others than when they were last looked at."""
        change = self._rate.change(sent_bytes_per_s)
        if change is not None and self._links is not None:
            self._links = replace(self._links, bytes_per_s=change * self._links.bytes_per_s)
        return change is not None

    def _verdict(self, comparison: Comparison) -> int | None:
        """Which representation stays, if that is clear by now; says so."""
        stays = comparison.verdict()
        medians_s = [statistics.median(each) for each in comparison.counted() if each]
        if stays is not None and len(medians_s) > 1:
            self._settings.recorder.event("compared", step_s=medians_s, stays=stays)
            if stays:
                self._tell(comparison.rows[stays])
        return stays

    def _tell(self, rows: Sequence[Sequence[Any]]) -> None:
        known = self._links.bytes_per_s if self._links is not None else 0
        self._settings.recorder.event("ways", bytes_per_s=round(known), table=list(rows))


def _rows(table: Table) -> list[list[Any]]:
    """Rows for people: of each layer its first parameter, representation, bytes, seconds, and why."""
    return [
        [one.names[0], one.representation, round(one.link_bytes), round(one.seconds, 6), one.why]
        for one in table.decisions
    ]


class _Rate:
    """How much faster or slower a link has become.

    Encoded values and factors load a link otherwise than what its speed was measured with, so what is sent is only
    compared with itself.
    """

    def __init__(self) -> None:
        self._reference: float | None = None

    def change(self, measured: float | None) -> float | None:
        """The factor by which the link's speed has changed, now that so much was `measured`; None if it has not."""
        if measured is None:
            return None
        if self._reference is None:
            self._reference = measured
            return None
        change = measured / self._reference
        if 1 / CHANGED < change < CHANGED:
            return None
        self._reference = None
        return change
