"""Codecs by the names of parameters: `codec: {"fc*": factors, "conv*": onebit}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain

from volary.codec._base import Codec
from volary.codec.none import FullPrecision


@dataclass(frozen=True)
class Patterns(Codec):
    """A parameter travels by the first codec whose pattern matches its name; as it is if there is none."""

    parts: Mapping[str, Codec]

    @property
    def name(self) -> str:
        """The name of the mixture, in tables and messages."""
        return "several by pattern"

    @property
    def chooses(self) -> bool:
        return any(one.chooses for one in self.parts.values())

    @property
    def follows(self) -> bool:
        return any(one.follows for one in self.parts.values())

    @property
    def equal(self) -> bool:
        return all(one.equal for one in self.parts.values())

    @property
    def needs_gradients(self) -> bool:
        return any(one.needs_gradients for one in self.parts.values())

    @property
    def feedback(self) -> bool:
        return any(one.feedback for one in self.parts.values())

    def at(self, samples: int) -> Patterns:
        """The same patterns, with each codec as of the stage that `samples` have reached."""
        return Patterns({pattern: one.at(samples) for pattern, one in self.parts.items()})

    def of(self, parameter: str) -> Codec:
        """The codec of the first pattern that matches the parameter's name; none if no pattern does."""
        matching = (one for pattern, one in self.parts.items() if fnmatchcase(parameter, pattern))
        return next(matching, FullPrecision())

    def leaves(self) -> Sequence[Codec]:
        """Every codec that some pattern can choose, once."""
        return tuple(dict.fromkeys(chain.from_iterable(one.leaves() for one in self.parts.values())))

    def patterns(self) -> Iterable[str]:
        """The patterns of parameters' names, in their order."""
        return self.parts
