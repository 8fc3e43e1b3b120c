"""The way that is expected to be quickest, layer by layer (Poseidon's hybrid communication, Zhang et al., ATC 2017).

The first steps travel as they are, and show how fast the links are and what each layer would send.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from volary.codec import ROOM as CODECS
from volary.errors import SettingError
from volary.exchange._routed import Routed

if TYPE_CHECKING:
    from torch.nn import Parameter

    from volary.codec._base import Codec
    from volary.exchange._layers import Layer
    from volary.exchange._options import Option, Work
    from volary.exchange._seen import Decision, Seen
    from volary.exchange._way import Way

CLEARLY = 0.9  # another way than as it is must need less than this share of the time


@dataclass(frozen=True, kw_only=True)
class Auto(Routed):
    """Chooses by shape, batch, workers and measured links; again when the links change. Exact, unless allowed."""

    allow: tuple[str, ...] = ()  # codecs that may be chosen too, with their default settings
    equal: ClassVar[bool] = True
    decides: ClassVar[bool] = True
    follows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.allow:
            try:
                CODECS.load(name)
            except SettingError as error:
                raise SettingError(f"allow: {error}") from None

    @cached_property
    def _codecs(self) -> dict[str, Any]:
        return {name: CODECS.load(name)() for name in self.allow if not CODECS.load(name).lossless}

    def why_not(self, codec: Codec) -> str:
        """Why it does not go with `codec`; empty if it does."""
        if not codec.lossless:
            return "auto chooses the codec itself; nearest: codec=none, with the codec's name in exchange.allow"
        return "" if self.route != "shared" else "in shared memory there is no choice; nearest: route=auto"

    def ways(self, codec: Codec, parameters: Mapping[str, Parameter]) -> dict[str, Way]:
        """Nothing is known yet: all as it is."""
        return {}

    def named(self, way: str) -> Way:
        """The way called so."""
        from volary.exchange._way import EXACT, Encoded, Factors

        if way in self._codecs:
            return Encoded(self._codecs[way])
        return Factors() if way == Factors.name else EXACT

    def decide(self, seen: Seen) -> list[Decision]:
        """The quickest way of each layer, as far as can be told."""
        from volary.exchange._seen import Decision

        work = seen.work(self._codecs)
        decisions = []
        for layer in seen.layers:
            plain, *others = self._options(layer, seen, work)
            best = min([plain, *others], key=lambda option: option.seconds)
            if best.seconds > CLEARLY * plain.seconds:
                best = plain
            decisions.append(Decision(layer.names, best.way.name, best.link_bytes, best.seconds, _why(best, others)))
        return decisions

    def _options(self, layer: Layer, seen: Seen, work: Work) -> list[Option]:
        from volary.exchange._options import as_factors, as_it_is, encoded
        from volary.exchange._way import Factors

        options = [as_it_is(layer, seen.links)]
        if layer.products:
            options.append(as_factors(layer, Factors(), seen.links, work))
        if layer.encodable:
            options += [encoded(layer, codec, name, seen.links, work) for name, codec in self._codecs.items()]
        return options


def _why(best: Option, others: list[Option]) -> str:
    from volary.exchange._way import Exact

    rest = [option for option in others if option is not best]
    if isinstance(best.way, Exact):
        return _named("not clearly quicker", rest) if rest else "nothing else takes it"
    return _named("quicker than as it is, and than", rest) if rest else "quicker than as it is"


def _named(what: str, options: list[Option]) -> str:
    return f"{what}: " + ", ".join(f"{option.way.name} {1e3 * option.seconds:.3g} ms" for option in options)


EXCHANGE = Auto
