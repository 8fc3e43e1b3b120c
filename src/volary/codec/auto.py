"""For each layer what is expected to be quickest (Poseidon's hybrid communication, Zhang et al., ATC 2017).

Among workers the first steps travel as they are, and show how fast the links are and what each layer would send. To
servers the choice is made before the first step, by bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from volary.codec._base import Codec, Layer, Option
from volary.codec.factors import SufficientFactors
from volary.codec.none import FullPrecision
from volary.errors import SettingError

CLEARLY = 0.9  # another way than as it is must need less than this share of the time


@dataclass(frozen=True, kw_only=True)
class AutoCodec(Codec):
    """Chooses by shape, batch, workers and measured links; again when the links change. Exact, unless allowed."""

    follows = True

    allow: tuple[str, ...] = ()  # codecs that may be chosen too, with their default settings

    def __post_init__(self) -> None:
        for name in self.allow:
            try:
                found = _loaded(name)
            except SettingError as error:
                raise SettingError(f"allow: {error}") from None
            if found.chooses:
                raise SettingError(f"allow: {name!r} chooses itself; accepted: codecs that encode, as onebit")

    @property
    def feedback(self) -> bool:
        """Of what is allowed."""
        return any(one.feedback for one in self.leaves())

    def leaves(self) -> Sequence[Codec]:
        """As it is, as factors, by what is allowed."""
        return self._leaves

    @cached_property
    def _leaves(self) -> Sequence[Codec]:
        allowed = [_loaded(name) for name in self.allow]
        return (FullPrecision(), SufficientFactors(), *(one for one in allowed if not one.exact))

    def pick(self, layer: Layer, options: Sequence[Option]) -> tuple[Option, str]:
        """The quickest, as far as can be told."""
        plain, *others = options
        best = min(options, key=lambda option: option.seconds)
        if best.seconds > CLEARLY * plain.seconds:
            best = plain
        return best, _why(best, plain, others)


def _loaded(name: str) -> Any:
    from volary.codec import ROOM

    return ROOM.load(name)()


def _why(best: Option, plain: Option, others: Sequence[Option]) -> str:
    rest = [option for option in others if option is not best]
    if best is plain:
        return _named("not clearly quicker", rest) if rest else "nothing else takes it"
    return _named("quicker than as it is, and than", rest) if rest else "quicker than as it is"


def _named(what: str, options: Sequence[Option]) -> str:
    return f"{what}: " + ", ".join(f"{option.name} {1e3 * option.seconds:.3g} ms" for option in options)


CODEC = AutoCodec
