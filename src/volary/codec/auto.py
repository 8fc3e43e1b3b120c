"""Chooses for each layer what is expected to be quickest (Poseidon's hybrid communication, Zhang et al., ATC 2017).

The choice is made before the first step: among workers by what links and codecs were measured to take
(volary.exchange.choice), to servers by bytes.
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
        """Whether any codec that is allowed has error feedback."""
        return any(one.feedback for one in self.leaves())

    def leaves(self) -> Sequence[Codec]:
        """As it is, as factors, or by any codec that is allowed."""
        return self._leaves

    @cached_property
    def _leaves(self) -> Sequence[Codec]:
        allowed = [_loaded(name) for name in self.allow]
        return (FullPrecision(), SufficientFactors(), *(one for one in allowed if not one.exact))

    def pick(self, layer: Layer, options: Sequence[Option]) -> tuple[Option, str]:
        """Choose what takes least of the step; of equals the first."""
        best = min(options, key=lambda option: option.seconds)
        return best, _why(best, options)


def _loaded(name: str) -> Any:
    from volary.codec import ROOM

    return ROOM.load(name)()


def _why(best: Option, options: Sequence[Option]) -> str:
    others = [option for option in options if option is not best]
    if not others:
        return "nothing else takes it"
    return "rather than " + ", ".join(f"{one.name} {1e3 * (one.wire_s + one.work_s):.3g} ms" for one in others)


CODEC = AutoCodec
