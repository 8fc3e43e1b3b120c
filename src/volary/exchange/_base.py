"""What every exchange does: push a contribution, pull what was agreed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from volary.exchange._buckets import Bucket


class Exchange(Protocol):
    """Carries contributions to whoever keeps the parameters, and brings back what was agreed.

    sent_bytes and received_bytes count what this process put on and took off the wire since it started.
    """

    sent_bytes: int
    received_bytes: int

    def push(self, bucket: Bucket) -> None:
        """Let the contribution in `bucket` leave; returns at once."""
        ...

    def pull(self, bucket: Bucket) -> None:
        """Wait until `bucket` holds what was agreed. Raises PeerLost if a peer went away."""
        ...
