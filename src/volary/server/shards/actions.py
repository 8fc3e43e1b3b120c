"""Actions that a shard decides on, for whoever moves bytes and has the tensors, in this order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from volary.server.protocol.header import Header
from volary.server.protocol.updates import Contribution
from volary.server.protocol.vectors import Asked, Combine, FoundProducts


@dataclass(frozen=True)
class Respond:
    """Send a header to the worker `peer`, behind it nothing but the sentence of a refusal."""

    peer: int
    header: Header
    sentence: str = ""


@dataclass(frozen=True)
class Give:
    """Send the worker `peer` the slice's values as they are now, or as they were kept for the header's snapshot.

    form and length of the header are the host's to fill in.
    """

    peer: int
    header: Header


@dataclass(frozen=True)
class Hold:
    """Keep the payload that has just arrived, as this contribution to the slice."""

    slice: int
    contribution: Contribution


@dataclass(frozen=True)
class Apply:
    """Change the slice by `scale` times the sum of these contributions, then call `applied`; they are not needed after.

    samples, rates: see `volary.server.protocol.updates.Closing`. clip: factor of the sum, once its values are clipped.
    commands: what is done with vectors, if they are what the update is made of.
    """

    slice: int
    number: int
    contributions: tuple[Contribution, ...]
    scale: float
    samples: int
    rates: tuple[float, ...] = ()
    clip: float = 1.0
    commands: tuple[Combine, ...] = ()


@dataclass(frozen=True)
class FindNorm:
    """Find the norm, of `kind`, of the slice's gradient: `scale` times the sum of these; then call `measured`."""

    slice: int
    number: int
    contributions: tuple[Contribution, ...]
    scale: float
    kind: float


@dataclass(frozen=True)
class FindProducts:
    """Find what is asked for, of the slice's gradient, `scale` times the sum of these, and of vectors that are kept;
    then call `measured`.
    """

    slice: int
    number: int
    contributions: tuple[Contribution, ...]
    scale: float
    samples: int
    asked: Asked


@dataclass(frozen=True)
class NormsFound:
    """The norm of an update's gradient is found. norms: by shard, of all its slices here."""

    number: int
    norms: dict[int, float]


@dataclass(frozen=True)
class ProductsFound:
    """The answer to an update is complete. found: by shard, of all its slices here."""

    number: int
    found: dict[int, FoundProducts]


@dataclass(frozen=True)
class Forget:
    """Forget what was held as this contribution: it is in no update."""

    slice: int
    contribution: Contribution


@dataclass(frozen=True)
class SetValues:
    """The payload that has just arrived is the slice's first values."""

    slice: int


@dataclass(frozen=True)
class KeepSlice:
    """Keep the slice's values and what its rule remembers as they are now, under the snapshot's name."""

    slice: int
    snapshot: int


@dataclass(frozen=True)
class ReleaseSlice:
    """Release what was kept of the slice for the snapshot: nobody needs it any more."""

    slice: int
    snapshot: int


@dataclass(frozen=True)
class KeptAll:
    """All slices are kept for the snapshot."""

    snapshot: int


Measurement: TypeAlias = FindNorm | FindProducts
Action: TypeAlias = (
    Respond
    | Give
    | Hold
    | Apply
    | Measurement
    | NormsFound
    | ProductsFound
    | Forget
    | SetValues
    | KeepSlice
    | ReleaseSlice
    | KeptAll
)
