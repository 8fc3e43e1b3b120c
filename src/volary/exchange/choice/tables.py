"""Tables of how each layer travels, and what a step is expected to take with each of them: the quickest is chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from volary.codec._base import Option
from volary.codec.none import FullPrecision
from volary.exchange.choice.costs import WorkTimes, step_s
from volary.exchange.gradients.plan import BYTES_PER_MIB
from volary.exchange.representations import representation_of
from volary.exchange.representations._base import VALUE_BYTES
from volary.exchange.representations.exact import EXACT

if TYPE_CHECKING:
    from volary.codec._base import Codec, FrameCodec, Layer
    from volary.exchange.choice.costs import LinkCosts
    from volary.exchange.representations._base import Representation

PRICES = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0)  # of a second of work, in seconds of wire
CLEARLY = 0.97  # of a step without loss: with loss it must take less than that
CLOSE = 1.25  # times the best one's expected seconds: a slower one is not worth its steps to be compared
BESIDE = 0.01  # of a step is what a further representation must save: its messages are its own
OTHER = 0.25  # of all values must travel otherwise, for a comparison to tell anything


@dataclass(frozen=True)
class StepFigures:
    """Figures of a worker and a step, by which representations are chosen.

    cores: that the worker has, less than one if it shares one. compute_s: of forward and backward on these. work:
    seconds of work of the codecs by name. bucket_bytes: of values that travel together.
    """

    layers: Sequence[Layer]
    links: LinkCosts
    work: WorkTimes
    compute_s: float = 0.0
    cores: float = 1.0
    bucket_bytes: float = BYTES_PER_MIB


@dataclass(frozen=True)
class Decision:
    """How a layer travels from now on, as plain values.

    representation: its name. seconds: of wire and work together.
    """

    names: tuple[str, ...]
    representation: str
    link_bytes: float
    seconds: float
    why: str


@dataclass(frozen=True)
class Table:
    """A decision for each layer. seconds: that a step is expected to take. lossless: but for rounding."""

    decisions: Sequence[Decision]
    seconds: float
    lossless: bool

    @property
    def representations(self) -> dict[str, str]:
        """The name of each parameter's representation."""
        return {name: one.representation for one in self.decisions for name in one.names}


def worth_comparing(ranked: Sequence[Table], layers: Sequence[Layer]) -> list[Table]:
    """The best one, and if there is one the next that differs in much of the network: in truth it could be quicker."""
    best, *others = ranked
    least = OTHER * sum(layer.values for layer in layers)
    return [best, *[one for one in others if _otherwise(one, best, layers) >= least][:1]]


def _otherwise(table: Table, other: Table, layers: Sequence[Layer]) -> int:
    """How many values travel in one of the tables otherwise than in the other."""
    pairs = zip(layers, table.decisions, other.decisions, strict=True)
    return sum(layer.values for layer, one, another in pairs if one.representation != another.representation)


@dataclass(frozen=True)
class _Offer:
    """The options that one layer may travel by."""

    layer: Layer
    codec: Codec
    options: Sequence[Option]

    def pick(self, seconds: Callable[[Option], float]) -> tuple[Option, str]:
        """Let its codec pick among `options`, if each takes so long."""
        rated = [replace(option, seconds=seconds(option)) for option in self.options]
        best, why = self.codec.pick(self.layer, rated)
        return self.options[rated.index(best)], why


def fitting(codec: Codec, layer: Layer) -> Sequence[Codec]:
    """The codecs that the layer may travel by: all those of `codec` that fit, else as it is."""
    return [one for one in codec.leaves() if one.fits(layer)] or [FullPrecision()]


def tables(codec: Codec, seen: StepFigures) -> list[Table]:
    """Tables for workers that send each other gradients, the best first.

    The best is the quickest, but that loss must make a step clearly quicker. Of what `codec` leaves free, layer by
    layer, each option's share of wire and work is weighed at several prices of work; one representation for all is
    among them too. The quickest is then changed layer by layer while that makes it quicker.
    """
    offers = [_Offer(layer, codec.of(layer.names[0]), _options(codec, layer, seen)) for layer in seen.layers]
    names = dict.fromkeys(option.name for offer in offers for option in offer.options)
    rates = [*(_at_price(price) for price in PRICES), *(_favouring(name) for name in names)]
    picked = {tuple(one.pick(rate)[0] for one in offers) for rate in rates}
    for lossless in (False, True):
        some = [one for one in picked if not lossless or _lossless(one)]
        if some:
            quickest = min(some, key=lambda one: _seconds(one, seen))
            picked.add(_improved(offers, quickest, seen, lossless=lossless))
    return _ranked([_table(offers, one, seen) for one in picked])


def _options(codec: Codec, layer: Layer, seen: StepFigures) -> list[Option]:
    found = []
    for leaf in fitting(codec.of(layer.names[0]), layer):
        representation = representation_of(leaf)
        link_bytes = representation.link_bytes(layer, seen.links)
        wire_s = link_bytes / seen.links.bytes_per_s + _messages(representation, layer, seen) * seen.links.message_s
        work_s = representation.work_s(layer, seen.links, seen.work) + link_bytes / seen.links.local * seen.work.byte
        found.append(Option(leaf, representation.name, link_bytes, wire_s + work_s, wire_s, work_s))
    return found


def _messages(representation: Representation, layer: Layer, seen: StepFigures) -> float:
    """The layer's part of the messages that wait for each other: small layers travel together, but as factors."""
    if representation == EXACT:
        return 0.0
    alone = representation.by_layer or VALUE_BYTES * layer.values >= seen.bucket_bytes
    return representation.messages * (1.0 if alone else VALUE_BYTES * layer.values / seen.bucket_bytes)


def _at_price(price: float) -> Callable[[Option], float]:
    return lambda option: option.wire_s + price * option.work_s


def _favouring(name: str) -> Callable[[Option], float]:
    return lambda option: 0.0 if option.name == name else option.wire_s + option.work_s


def _busy_and_wire_s(picked: Iterable[Option], seen: StepFigures) -> tuple[float, float]:
    busy_s, wire_s = seen.compute_s, 0.0
    for option in picked:
        busy_s += option.work_s / seen.cores
        wire_s += option.wire_s
    return busy_s, wire_s


def _seconds(picked: Iterable[Option], seen: StepFigures) -> float:
    return step_s(*_busy_and_wire_s(picked, seen))


def _lossless(picked: Iterable[Option]) -> bool:
    return all(one.codec.lossless for one in picked)


def _improved(
    offers: Sequence[_Offer], picked: Sequence[Option], seen: StepFigures, *, lossless: bool
) -> tuple[Option, ...]:
    """Improve a table: of all layers that one changes whose other way makes the step quickest, while that helps."""
    now, (busy_s, wire_s) = list(picked), _busy_and_wire_s(picked, seen)
    changes = [
        (place, option)
        for place, offer in enumerate(offers)
        if offer.codec.follows
        for option in offer.options
        if not lossless or _lossless([option])
    ]
    while True:
        found = [
            (
                busy_s + (option.work_s - now[place].work_s) / seen.cores,
                wire_s + option.wire_s - now[place].wire_s,
            )
            for place, option in changes
        ]
        best = min(range(len(changes)), key=lambda one: step_s(*found[one]), default=None)
        if best is None or step_s(*found[best]) >= (1 - 1e-9) * step_s(busy_s, wire_s):
            return tuple(now)
        place, option = changes[best]
        now[place] = option
        busy_s, wire_s = found[best]


def _table(offers: Sequence[_Offer], picked: Sequence[Option], seen: StepFigures) -> Table:
    decisions = []
    for offer, option in zip(offers, picked, strict=True):
        _, why = offer.pick(_favouring(option.name))
        decisions.append(
            Decision(offer.layer.names, option.name, option.link_bytes, option.wire_s + option.work_s, why)
        )
    return Table(decisions, _seconds(picked, seen), _lossless(picked))


def _ranked(found: list[Table]) -> list[Table]:
    found.sort(key=lambda one: (_with_others(one), not one.lossless))
    best = next((one for one in found if one.lossless), found[0])
    if found[0].seconds > CLEARLY * best.seconds:
        found.remove(best)
        found.insert(0, best)
    return found


def _with_others(table: Table) -> float:
    """The table's seconds, if each further representation has a price."""
    kinds = {one.representation for one in table.decisions}
    return table.seconds * (1 + BESIDE * (len(kinds) - 1))


def codecs_of(codec: Codec) -> Mapping[str, FrameCodec]:
    """The codecs that encode, by name: their cost has to be known."""
    representations = [representation_of(one) for one in codec.leaves()]
    return {one.name: one.frames for one in representations if one.frames is not None}
