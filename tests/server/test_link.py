"""How long a worker waits for what its servers send."""

from __future__ import annotations

import itertools

import pytest

from volary.errors import PeerLost
from volary.server.client import link as waiting
from volary.server.client.client import Client
from volary.server.client.link import Link


def test_what_comes_slowly_is_waited_for_as_long_as_anything_comes_and_what_does_not_for_its_bound(monkeypatch):
    monkeypatch.setattr(waiting, "WAIT_S", 0.01)
    link = Link(Client([], 0), connect=lambda *_: pytest.fail("there are no servers"), unreachable=lambda _: None)
    looks = itertools.count()

    def is_here() -> bool:
        link._past[1] += 1  # another byte
        return next(looks) == 20

    link.wait_for(is_here, lambda: "slice 3")
    with pytest.raises(PeerLost, match="slice 3 did not come within"):
        link.wait_for(lambda: False, lambda: "slice 3")
