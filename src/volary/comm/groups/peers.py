"""Turns the failure of a collective whose peer went away into PeerLost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from volary.errors import PeerLost


@contextmanager
def peers_needed() -> Iterator[None]:
    """Turn the RuntimeError of a collective, which names nobody, into PeerLost."""
    try:
        yield
    except RuntimeError as error:
        raise PeerLost(f"the exchange broke: {str(error).splitlines()[0]}") from error
