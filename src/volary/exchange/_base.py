"""What every exchange does: push a contribution, pull what was agreed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from volary.exchange._buckets import Bucket


class Bulletin(Protocol):
    """How ranks tell each other small values before the first step."""

    rank: int
    world_size: int

    def post(self, topic: str, value: Any) -> None:
        """Post this rank's value under `topic`."""
        ...

    def read(self, topic: str, rank: int) -> Any:
        """What `rank` posts under `topic`; waits for it."""
        ...

    def share(self, topic: str, value: Any) -> list[Any]:
        """Post a value and read everybody's, by rank."""
        ...


@dataclass(frozen=True)
class Shape:
    """What a bucket needs memory for: `numel` values of `dtype` on `device`."""

    numel: int
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True)
class Memory:
    """A bucket's values, (numel,) each: what this rank contributes, and what was agreed. They may be the same.

    Where they are not, others read `agreed` too: it must not be written.
    """

    contribution: Tensor
    agreed: Tensor


class Exchange(Protocol):
    """Carries contributions to whoever keeps the parameters, and brings back what was agreed.

    route: how, and why so, in a sentence. sent_bytes and received_bytes count what this process put on and took off the
    wire since it started.
    """

    route: str
    sent_bytes: int
    received_bytes: int

    @property
    def memory(self) -> Sequence[Memory]:
        """Each bucket's, in their order."""
        ...

    def push(self, bucket: Bucket) -> None:
        """Let the contribution in `bucket` leave; returns at once."""
        ...

    def pull(self, bucket: Bucket) -> None:
        """Wait until `bucket` holds what was agreed. Raises PeerLost if a peer went away."""
        ...
