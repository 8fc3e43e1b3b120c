"""Promises of each representation, by listing the room: a new file is tested the moment it exists."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from volary.codec import ROOM as CODECS
from volary.exchange.choice.bucketing import plan
from volary.exchange.representations import ROOM
from volary.exchange.representations._base import Representation

LARGE = nn.Linear(40, 1200)


def made(name: str) -> Representation:
    kind = ROOM.load(name)
    needed: dict[str, Any] = {"frames": CODECS.load("onebit")(warm_up_samples=10)}
    one: Representation = kind(
        **{field.name: needed[field.name] for field in dataclasses.fields(kind) if field.name in needed}
    )
    return one


each = pytest.mark.parametrize("name", ROOM.names())


@each
def test_equal_ones_share_a_bucket_and_others_do_not(name):
    named = [(f"{number}.weight", nn.Parameter(torch.zeros(40, 30))) for number in range(2)]
    one = made(name)
    together = plan(named, 25.0, {key: made(name) for key, _ in named})
    assert len(together) == (2 if one.by_layer else 1)
    apart = plan(named, 25.0, {named[0][0]: one, named[1][0]: made("factors" if name != "factors" else "exact")})
    assert len(apart) == 2
    assert one == made(name) and hash(one) == hash(made(name))


@each
def test_it_says_what_it_is_and_what_it_costs(name):
    one = made(name)
    assert one.name and str(one) and one.at(10**9).name == one.name
    if not one.by_layer:
        assert 0 < one.wire_bytes(4096, 4) <= 4 * 4096
    assert one.whole_rows or not one.by_layer, "what is formed of a layer's rows is kept in rows"


@each
def test_values_that_are_cut_for_the_wire_are_all_of_a_bucket(name):
    named = list(LARGE.named_parameters())
    for one in plan(named, 1e-2, dict.fromkeys(dict(named), made(name))):
        cuts = one.cuts(1e-2)
        assert [cut.end for cut in cuts[:-1]] == [cut.start for cut in cuts[1:]]
        assert (cuts[0].start, cuts[-1].end) == (0, one.shape.numel)
