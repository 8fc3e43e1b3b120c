"""The roster asks servers for the norm of an update's gradient, and tells all of them by what it is clipped."""

from __future__ import annotations

from math import inf, isnan, nan

import pytest

from server._play import FIRST_SERVER, Play
from volary.comm.control.errors import BadMessage
from volary.server.protocol.from_members import Computed, Done, PartialNorms
from volary.server.protocol.norms import ClipNorm, combined
from volary.server.protocol.to_members import Clip, Clipped, Close, Learn


def begun(**more):
    """Two workers that have been given their first contribution, on three servers of which each has two shards."""
    play = Play("bsp", workers=2, servers=3, replicas=2, **more)
    for rank in (0, 1):
        play.ask(rank)
    return play


def closings(play, server=0):
    return [said.closing for said in play.heard(FIRST_SERVER + server, Close)]


def computed(play, **more):
    for rank in (0, 1):
        play.say(rank, Computed(0, 1.0, True, **more))


def test_all_servers_are_told_one_factor_once_every_shard_is_measured():
    play = begun(clip_norm=6.5)
    computed(play)
    assert [one.norm for one in closings(play)] == [2.0]
    play.say(FIRST_SERVER, PartialNorms(1, {0: 3.0, 2: 12.0}))
    play.say(FIRST_SERVER, PartialNorms(1, {0: 99.0, 2: 99.0}))  # what is known is known
    assert play.heard(FIRST_SERVER, Clip) == []
    play.say(FIRST_SERVER + 1, PartialNorms(1, {0: 77.0, 1: 4.0}))
    for server in range(3):
        (said,) = play.heard(FIRST_SERVER + server, Clip)
        assert (said.number, said.factor) == (1, pytest.approx(6.5 / 13.0))
    play.say(FIRST_SERVER + 2, PartialNorms(1, {1: 55.0, 2: 55.0}))
    assert len(play.heard(FIRST_SERVER, Clip)) == 1
    assert not play.heard(0, Clipped)


def test_a_shard_without_slices_has_no_norm():
    play = begun(clip_norm=1.0)
    computed(play)
    play.say(FIRST_SERVER, PartialNorms(1, {}))
    play.say(FIRST_SERVER + 1, PartialNorms(1, {1: 0.5}))
    assert [said.factor for said in play.heard(FIRST_SERVER, Clip)] == [1.0]


def test_what_the_partner_of_a_lost_server_has_measured_is_enough():
    play = begun(clip_norm=1.0)
    computed(play)
    play.cut_off(FIRST_SERVER + 1)
    play.say(FIRST_SERVER, PartialNorms(1, {0: 3.0, 2: 0.0}))
    play.say(FIRST_SERVER + 2, PartialNorms(1, {1: 4.0, 2: 0.0}))
    assert [said.factor for said in play.heard(FIRST_SERVER, Clip)] == [pytest.approx(0.2)]


def test_nothing_is_measured_without_a_bound():
    play = begun()
    computed(play)
    assert [one.norm for one in closings(play)] == [None]
    with pytest.raises(BadMessage, match="was not asked to"):
        play.say(FIRST_SERVER, PartialNorms(2, {}))


def test_loops_that_clip_are_waited_for_and_told_the_norm():
    play = begun()
    computed(play, waits=True)
    assert closings(play) == []
    play.say(0, Done(0, clip=ClipNorm(10.0, inf)))
    assert closings(play) == []
    play.say(1, Done(0, clip=ClipNorm(10.0, inf)))
    assert [one.norm for one in closings(play)] == [inf]
    for server, norms in enumerate(({0: 3.0, 2: 5.0}, {0: 3.0, 1: 4.0})):
        play.say(FIRST_SERVER + server, PartialNorms(1, norms))
    assert [said.factor for said in play.heard(FIRST_SERVER, Clip)] == [1.0]
    assert play.heard(0, Clipped) == play.heard(1, Clipped) == [Clipped(0, 5.0)]


def test_loops_that_might_have_clipped_and_did_not_are_applied_as_they_are():
    play = begun()
    computed(play, waits=True)
    for rank in (0, 1):
        play.say(rank, Done(0))
    assert [one.norm for one in closings(play)] == [None]


def test_of_a_step_of_which_nothing_counts_the_norm_is_0():
    play = begun()
    computed(play, waits=True, counted=0.0)
    for rank in (0, 1):
        play.say(rank, Done(0, clip=ClipNorm(1.0)))
    assert [(one.norm, one.contributions) for one in closings(play)] == [(None, ())]
    assert play.heard(0, Clipped) == [Clipped(0, 0.0)]


def test_who_has_not_said_so_before_does_not_clip():
    play = begun()
    play.say(0, Computed(0, 1.0, True))
    with pytest.raises(BadMessage, match="did not say so before"):
        play.say(0, Done(0, clip=ClipNorm(1.0)))
    assert len(play.heard(0, Learn)) == 1


@pytest.mark.parametrize(
    ("pieces", "kind", "norm"),
    [([3.0, 4.0], 2.0, 5.0), ([3.0, 4.0], inf, 4.0), ([3.0, 4.0], 1.0, 7.0), ([], 2.0, 0.0), ([0.0], 3.0, 0.0),
     ([1e300, 1e300], 2.0, 2**0.5 * 1e300), ([1.0, inf], 2.0, inf)],
)  # fmt: skip
def test_pieces_have_the_norm_of_the_whole(pieces, kind, norm):
    assert combined(pieces, kind) == pytest.approx(norm)


def test_a_norm_that_is_no_number_clips_to_what_is_none():
    assert isnan(combined([1.0, nan, 2.0], 2.0))
    assert isnan(ClipNorm(1.0).factor(nan))
    assert ClipNorm(1.0).factor(inf) == 0.0
