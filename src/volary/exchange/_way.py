"""The way in which a parameter's gradient travels: as it is, encoded, or as the factors that it is a product of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from volary.codec._base import Codec


@dataclass(frozen=True)
class Exact:
    """Values as they are, over a route."""

    name: ClassVar[str] = "exact"

    def __str__(self) -> str:
        return "as it is"


@dataclass(frozen=True)
class Encoded:
    """Frames of a codec, to the owner of each slice and back."""

    codec: Codec

    @property
    def name(self) -> str:
        """The codec's."""
        return type(self.codec).__module__.rpartition(".")[2]

    def __str__(self) -> str:
        return f"by codec {self.codec}"


@dataclass(frozen=True)
class Factors:
    """The vectors whose products the gradient is the sum of, from everybody to everybody.

    neighbours: how many others get them; None: all.
    """

    neighbours: int | None = None
    name: ClassVar[str] = "factors"

    def __str__(self) -> str:
        return "as factors" if self.neighbours is None else f"as factors, to {self.neighbours} others"


Way = Exact | Encoded | Factors
EXACT = Exact()
