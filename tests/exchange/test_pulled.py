"""A worker's copies of a slice: what forward reads is as new as it must be, whatever arrives meanwhile."""

from __future__ import annotations

import pytest
import torch

from volary.comm.control.errors import BadFrame
from volary.exchange.servers.pulled import Pulled
from volary.exchange.servers.pushed import as_bytes
from volary.server.protocol.header import Form, Header, MessageKind

SIZE = 4


def values(version: int, length: int = 4 * SIZE) -> Header:
    return Header(MessageKind.VALUES, 0, version=version, form=Form.EXACT, length=length)


def arrive(pulled: Pulled, version: int) -> None:
    """All values are `version`, in memory that is lent."""
    pulled.room(values(version))
    pulled.take(values(version), as_bytes(torch.full((SIZE,), float(version))))


@pytest.fixture
def slice_and_network():
    network = torch.zeros(SIZE)
    return Pulled([network], None), network


def test_what_is_read_stays_until_the_next_backward(slice_and_network):
    pulled, network = slice_and_network
    arrive(pulled, 1)
    assert pulled.read(1) and network.unique().tolist() == [1.0]
    arrive(pulled, 2)
    assert pulled.read(1) and network.unique().tolist() == [1.0]
    pulled.in_use = False
    assert pulled.read(1) and network.unique().tolist() == [2.0]


def test_values_that_newer_ones_begin_to_overwrite_before_they_are_read_are_waited_for_again(slice_and_network):
    pulled, network = slice_and_network
    arrive(pulled, 1)
    assert pulled.is_new_enough(1)
    pulled.room(values(2))  # the first bytes lie over those of version 1
    assert not pulled.read(1) and network.unique().tolist() == [0.0]
    assert not pulled.is_new_enough(1)
    pulled.take(values(2), as_bytes(torch.full((SIZE,), 2.0)))
    assert pulled.is_new_enough(1) and pulled.read(1)
    assert network.unique().tolist() == [2.0]


def test_what_does_not_fit_is_refused_before_anything_is_received(slice_and_network):
    pulled, _ = slice_and_network
    arrive(pulled, 1)
    with pytest.raises(BadFrame, match="came for a slice of 16"):
        pulled.room(values(2, length=12))
    assert pulled.read(1)
