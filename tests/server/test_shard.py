"""A shard keeps its word: what is acknowledged is used, once; updates come in order; no pull is answered too early."""

from __future__ import annotations

import pytest

from server._headers import BYTES, WORKERS, pull, push
from volary.server.protocol.header import Form, Header, MessageKind
from volary.server.protocol.updates import Closing, Contribution
from volary.server.shard_rule import AllOf, EachAlone
from volary.server.shards.actions import Apply, FindNorm, Forget, Give, KeptAll, NormsFound, Respond, SetValues
from volary.server.shards.shard import UNSET, Shard


def test_a_restored_shard_goes_on_from_its_update():
    shard = Shard({0: BYTES}, applied=7)
    assert shard.version(0) == shard.oldest == 7
    assert shard.close(Closing(7, (), 1.0, 70)) == []
    shard.arrived(1, push(1, 0, 7, version=7))
    assert shard.close(Closing(8, (Contribution(1, 7),), 1.0, 80)) == [Apply(0, 8, (Contribution(1, 7),), 1.0, 80)]


def test_a_shard_without_slices_keeps_up():
    shard = Shard({})
    assert shard.close(Closing(1, (Contribution(0, 0),), 1.0, 10)) == []
    assert shard.oldest == 1
    assert shard.keep(4, 1) == [KeptAll(4)]


def test_of_a_worker_that_has_gone_only_what_an_update_has_is_used():
    shard = Shard({0: BYTES})
    for worker, clock in [(0, 0), (0, 1)]:
        shard.arrived(worker, push(worker, 0, clock))
    both = (Contribution(0, 0), Contribution(1, 0))
    shard.close(Closing(1, both, 1.0, 10))
    assert shard.gone(0) == [Forget(0, Contribution(0, 1))]
    assert not shard.wants(0, push(0, 0, 2))
    assert applied(shard.arrived(1, push(1, 0, 0))) == [Apply(0, 1, both, 1.0, 10)]


def test_staleness_is_how_many_updates_lay_between():
    shard = Shard({0: BYTES}, applied=5)
    for worker, version in [(0, 5), (1, 2), (2, 6)]:
        shard.arrived(worker, push(worker, 0, 0, version))
    shard.close(Closing(6, tuple(Contribution(worker, 0) for worker in WORKERS), 1.0, 10))
    assert shard.staleness == {(0, 0): 1, (1, 3): 1, (2, 0): 1}


def test_values_are_not_given_while_they_change_but_right_after():
    shard = Shard({0: BYTES})
    shard.arrived(0, push(0, 0, 0))
    shard.close(Closing(1, (Contribution(0, 0),), 1.0, 1))
    assert shard.arrived(1, pull(1, 0, request=3)) == []
    assert shard.applied(0, 1) == [Give(1, Header(MessageKind.VALUES, 0, 1, 3, 1))]


def test_a_second_pull_takes_the_place_of_one_that_waits_but_not_an_older_one():
    shard = Shard({0: BYTES})
    for request in (2, 3, 1):
        assert shard.arrived(0, pull(0, 0, request, at_least=1)) == []
    assert shard.close(Closing(1, (), 1.0, 1)) == [Give(0, Header(MessageKind.VALUES, 0, 0, 3, 1))]


def test_what_is_settled_is_remembered_in_few_bytes_however_long_the_run():
    shard = Shard({0: BYTES})
    for clock in range(500):
        for worker in WORKERS:
            shard.arrived(worker, push(worker, 0, clock))
        used = tuple(Contribution(worker, clock) for worker in WORKERS if worker != clock % 3)
        shard.close(Closing(clock + 1, used, 1.0, clock, (Contribution(clock % 3, clock),)))
        shard.applied(0, clock + 1)
    update_log = shard._update_log
    assert not update_log._closings and not update_log._numbers and not shard._slices[0].held
    assert [clocks.runs for clocks in update_log._settled.values()] == [1, 1, 1]
    for clock in range(500):
        assert not shard.wants(0, push(0, 0, clock))


def test_local_slices_begin_with_the_first_values_that_come():
    shard = Shard({}, local=EachAlone())
    first, held = Header(MessageKind.SET, 5, 1, length=BYTES), Header(MessageKind.HELD, 5, 1, length=0)
    assert shard.version(5) == UNSET
    assert shard.wants(1, first)
    assert shard.arrived(1, first) == [SetValues(5), Respond(1, held)]
    again = first._replace(worker=2)
    assert not shard.wants(2, again)
    assert shard.arrived(2, again) == [Respond(2, held._replace(worker=2))]
    assert shard.arrived(2, pull(2, 5)) == [Give(2, Header(MessageKind.VALUES, 5, 2, 0, 0))]


def test_a_local_slice_that_was_dropped_can_begin_anew():
    shard = Shard({}, local=EachAlone())
    first = Header(MessageKind.SET, 5, 1, length=BYTES)
    shard.arrived(1, first)
    shard.drop(5)
    assert shard.version(5) == UNSET
    assert SetValues(5) in shard.arrived(1, first._replace(length=2 * BYTES))


@pytest.mark.parametrize("header", [push(1, 5, 0), pull(1, 5)])
def test_local_slices_without_values_are_refused(header):
    (answer,) = Shard({}, local=EachAlone()).arrived(1, header)
    assert answer.sentence == "slice 5 has no values yet"


def test_asynchronous_contributions_are_each_an_update_and_none_twice():
    shard = Shard({}, local=EachAlone())
    shard.arrived(0, Header(MessageKind.SET, 0, 0, length=BYTES))
    assert applied(shard.arrived(0, push(0, 0, 0))) == [Apply(0, 1, (Contribution(0, 0),), 1.0, 1)]
    assert applied(shard.arrived(1, push(1, 0, 0))) == []
    assert applied(shard.applied(0, 1)) == [Apply(0, 2, (Contribution(1, 0),), 1.0, 2)]
    assert applied(shard.arrived(0, push(0, 0, 0))) == []
    assert applied(shard.applied(0, 2)) == []
    assert shard.version(0) == 2


def test_synchronous_contributions_wait_for_one_of_each():
    shard = Shard({}, local=AllOf(2))
    shard.arrived(0, Header(MessageKind.SET, 0, 0, length=BYTES))
    for clock in (0, 1):
        assert applied(shard.arrived(1, push(1, 0, clock))) == []
    (update,) = applied(shard.arrived(0, push(0, 0, 0)))
    assert update.contributions == (Contribution(0, 0), Contribution(1, 0))
    assert applied(shard.applied(0, 1)) == []
    (update,) = applied(shard.arrived(0, push(0, 0, 1)))
    assert update.contributions == (Contribution(0, 1), Contribution(1, 1))


@pytest.mark.parametrize(
    "header, sentence",
    [
        (push(2, 0, 0), "worker 1 speaks as 2"),
        (push(1, 9, 0), "slice 9 is not kept here"),
        (push(1, 0, 0, length=9), "slice 0 has 8 bytes, not 9"),
        (push(1, 0, 0)._replace(form=Form.DIFFERENCE), "PUSH does not come as DIFFERENCE"),
        (pull(1, 0)._replace(length=1), "PULL takes no payload, but 1 bytes follow"),
        (Header(MessageKind.SET, 0, 1, length=BYTES), "slice 0 is not set by workers"),
        (Header(MessageKind.VALUES, 0, 1), "a server does not take VALUES"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence_and_changes_nothing(header, sentence):
    shard = Shard({0: BYTES})
    (answer,) = shard.arrived(1, header)
    assert answer.sentence == sentence
    assert (answer.header.kind, answer.header.version) == (MessageKind.REFUSED, header.kind)
    assert not shard.wants(1, header)
    assert applied(shard.close(Closing(1, (Contribution(header.worker, 0),), 1.0, 1))) == []


def applied(actions):
    return [action for action in actions if isinstance(action, Apply)]


def closed(number, contributions, norm=2.0):
    return Closing(number, tuple(contributions), 1.0, number, norm=norm)


def measures(actions):
    return [(one.slice, one.number) for one in actions if isinstance(one, FindNorm)]


def applies(actions):
    return [(one.slice, one.number, one.clip) for one in actions if isinstance(one, Apply)]


@pytest.fixture
def of_two_shards():
    """A server of slice 0 of shard 4 and slices 1 and 2 of shard 5, which holds worker 0's first contribution."""
    shard = Shard(dict.fromkeys(range(3), BYTES), shards={0: 4, 1: 5, 2: 5})
    shard.close(closed(1, [Contribution(0, 0)]))
    actions = [action for number in range(3) for action in shard.arrived(0, push(0, number, 0))]
    assert measures(actions) == [(0, 1), (1, 1), (2, 1)]
    assert not applies(actions)
    return shard


def test_an_update_whose_norm_is_wanted_waits_for_its_factor_once_it_is_measured_by_shard(of_two_shards):
    shard = of_two_shards
    assert shard.measured(2, 1, 4.0) == shard.measured(0, 1, 12.0) == []
    assert shard.measured(1, 1, 3.0) == [NormsFound(1, {4: 12.0, 5: 5.0})]
    assert shard.version(0) == 0
    assert applies(shard.clip(1, 0.5)) == [(0, 1, 0.5), (1, 1, 0.5), (2, 1, 0.5)]
    assert shard.clip(1, 0.5) == []


def test_a_factor_that_comes_early_is_applied_once_what_is_being_measured_is(of_two_shards):
    shard = of_two_shards
    shard.measured(0, 1, 1.0)
    assert applies(shard.clip(1, 0.5)) == [(0, 1, 0.5)]
    assert applies(shard.measured(1, 1, 1.0)) == [(1, 1, 0.5)]
    assert applies(shard.measured(2, 1, 1.0)) == [(2, 1, 0.5)]


def test_the_next_update_is_measured_when_the_one_before_is_applied(of_two_shards):
    shard = of_two_shards
    shard.close(closed(2, [Contribution(0, 1)]))
    assert measures(shard.arrived(0, push(0, 0, 1))) == []
    shard.measured(0, 1, 1.0)
    assert applies(shard.clip(1, 0.5)) == [(0, 1, 0.5)]
    assert measures(shard.applied(0, 1)) == [(0, 2)]


def test_updates_without_a_norm_and_factors_for_them_change_nothing():
    shard = Shard({0: BYTES})
    shard.close(closed(1, [Contribution(0, 0)], norm=None))
    assert shard.clip(1, 0.5) == shard.clip(7, 0.5) == []
    assert applies(shard.arrived(0, push(0, 0, 0))) == [(0, 1, 1.0)]


def test_a_server_without_slices_has_nothing_to_measure():
    assert Shard({}).close(closed(1, [Contribution(0, 0)])) == [NormsFound(1, {})]
