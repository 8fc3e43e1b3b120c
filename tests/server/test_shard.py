"""A shard keeps its word: what is acknowledged is used, once; updates come in order; no pull is answered too early."""

from __future__ import annotations

import random
from collections import Counter
from itertools import count

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from volary.server.protocol.header import Form, Header, MessageKind
from volary.server.protocol.updates import Closing, Contribution
from volary.server.shard_rule import AllOf, EachAlone
from volary.server.shards.shard import (
    UNSET,
    Apply,
    FindNorm,
    Forget,
    Give,
    Hold,
    KeepSlice,
    KeptAll,
    NormsFound,
    ReleaseSlice,
    Respond,
    SetValues,
    Shard,
)

WORKERS, SLICES, CLOCKS, BYTES = range(3), range(2), range(4), 8
WORKER, SLICE, CLOCK = st.sampled_from(WORKERS), st.sampled_from(SLICES), st.sampled_from(CLOCKS)


def push(worker, number, clock, version=0, length=BYTES):
    return Header(MessageKind.PUSH, number, worker, clock, version, length=length)


def pull(worker, number, request=0, at_least=0, snapshot=0):
    return Header(MessageKind.PULL, number, worker, request, at_least, snapshot=snapshot)


class Naive(RuleBasedStateMachine):
    """A host that does what it is told, and remembers all that was ever said."""

    def __init__(self) -> None:
        super().__init__()
        self.shard = Shard(dict.fromkeys(SLICES, BYTES))
        self.closings: list[Closing] = []
        self.payloads: set[tuple[int, Contribution]] = set()
        self.acknowledged: set[tuple[int, Contribution]] = set()
        self.used: dict[int, list[Contribution]] = {number: [] for number in SLICES}
        self.busy: dict[int, Apply] = {}
        self.versions = dict.fromkeys(SLICES, 0)
        self.pulls: dict[tuple[int, int, bool], Header] = {}
        self.requests = 0
        self.snapshots: dict[int, int] = {}
        self.kept: set[tuple[int, int]] = set()
        self.kept_all: list[int] = []
        self.released: set[int] = set()
        self.gone: set[int] = set()

    @property
    def settled(self):
        return {one for closing in self.closings for one in closing.contributions + closing.dropped}

    @property
    def named(self):
        return {one for closing in self.closings for one in closing.contributions}

    def do(self, actions):
        """What a host does, as it is told."""
        for action in actions:
            match action:
                case Hold(number, contribution):
                    assert (number, contribution) not in self.payloads
                    assert contribution not in self.used[number]
                    self.payloads.add((number, contribution))
                case Forget(number, contribution):
                    assert contribution not in self.named
                    self.payloads.remove((number, contribution))
                case Apply(number, update):
                    assert number not in self.busy
                    self.pass_empty(number, update - 1)
                    closing = self.closings[update - 1]
                    assert action.contributions == closing.contributions
                    assert (action.scale, action.samples) == (closing.scale, closing.samples)
                    self.busy[number] = action
                    for one in action.contributions:
                        self.payloads.remove((number, one))
                        assert one not in self.used[number]
                        self.used[number].append(one)
                case KeepSlice(number, snapshot):
                    assert (number, snapshot) not in self.kept
                    self.pass_empty(number, self.snapshots[snapshot])
                    self.kept.add((number, snapshot))
                case ReleaseSlice(number, snapshot):
                    self.kept.remove((number, snapshot))
                case KeptAll(snapshot):
                    assert all((number, snapshot) in self.kept for number in SLICES)
                    self.kept_all.append(snapshot)
                case Give(peer, header):
                    asked = self.pulls.pop((peer, header.slice, header.snapshot > 0))
                    assert (header.clock, header.snapshot) == (asked.clock, asked.snapshot)
                    if header.snapshot:
                        assert (header.slice, header.snapshot) in self.kept
                        assert header.version == self.snapshots[header.snapshot]
                    else:
                        self.pass_empty(header.slice, header.version)
                        assert header.slice not in self.busy and header.version >= asked.version
                case Respond(peer, header, sentence):
                    assert header.length == len(sentence.encode())

    def pass_empty(self, number, update):
        """Come to `update` from where the slice is, with nothing between but updates of nothing."""
        assert number not in self.busy or update == self.versions[number]
        between = self.closings[self.versions[number] : update]
        assert len(between) == update - self.versions[number]
        assert not any(closing.contributions for closing in between)
        self.versions[number] = update

    @rule(worker=WORKER, number=SLICE, clock=CLOCK, version=st.integers(0, 3))
    def push(self, worker, number, clock, version):
        header = push(worker, number, clock, version)
        contribution = Contribution(worker, clock)
        wanted, late = self.shard.wants(worker, header), self.shard.late[worker]
        in_time = (number, contribution) in self.payloads
        closed = contribution in self.settled or worker in self.gone
        waited_for = contribution in self.named and contribution not in self.used[number]
        assert wanted == (not in_time and (waited_for or not closed))
        actions = self.shard.arrived(worker, header)
        self.do(actions)
        held = [action for action in actions if isinstance(action, Respond)]
        assert [(one.peer, one.header.kind, one.header.clock) for one in held] == [(worker, MessageKind.HELD, clock)]
        assert wanted == any(isinstance(action, Hold) for action in actions)
        assert self.shard.late[worker] == late + (not in_time and not wanted)
        self.acknowledged.update([(number, contribution)] if wanted else [])

    @rule(data=st.data())
    def close(self, data):
        free = [
            one
            for one in (Contribution(worker, clock) for worker in WORKERS for clock in CLOCKS)
            if one not in self.settled and one.worker not in self.gone
        ]
        chosen = data.draw(st.lists(st.sampled_from(free), unique=True, max_size=3)) if free else []
        dropped = data.draw(st.integers(0, len(chosen)))
        number = len(self.closings) + 1
        closing = Closing(number, tuple(chosen[dropped:]), 1 / number, 10 * number, tuple(chosen[:dropped]))
        self.closings.append(closing)
        self.do(self.shard.close(closing))
        assert self.shard.close(closing) == []

    @precondition(lambda self: self.busy)
    @rule(data=st.data())
    def finish(self, data):
        number = data.draw(st.sampled_from(sorted(self.busy)))
        update = self.busy.pop(number).number
        self.versions[number] = update
        self.do(self.shard.applied(number, update))

    @rule(worker=WORKER, number=SLICE, at_least=st.integers(0, 5))
    def pull(self, worker, number, at_least):
        self.requests += 1
        header = pull(worker, number, self.requests, at_least)
        self.pulls[worker, number, False] = header
        assert not self.shard.wants(worker, header)
        self.do(self.shard.arrived(worker, header))

    @rule(worker=WORKER, number=SLICE, snapshot=st.integers(1, 3))
    def pull_kept(self, worker, number, snapshot):
        self.requests += 1
        header = pull(worker, number, self.requests, snapshot=snapshot)
        if snapshot in self.released:
            (answer,) = self.shard.arrived(worker, header)
            assert (answer.header.kind, answer.header.version, answer.header.snapshot) == (
                MessageKind.REFUSED,
                MessageKind.PULL,
                snapshot,
            )
        else:
            self.pulls[worker, number, True] = header
            self.do(self.shard.arrived(worker, header))

    @rule(ahead=st.integers(0, 1))
    def keep(self, ahead):
        snapshot = next(snapshot for snapshot in count(1) if snapshot not in self.snapshots)
        update = len(self.closings) + ahead
        if snapshot in self.released:
            assert self.shard.keep(snapshot, update) == []
        self.snapshots[snapshot] = update
        self.do(self.shard.keep(snapshot, update))
        assert self.shard.keep(snapshot, update) == []

    @rule(snapshot=st.integers(1, 3))
    def release(self, snapshot):
        self.released.add(snapshot)
        actions = self.shard.release(snapshot)
        waited = {key for key, header in self.pulls.items() if header.snapshot == snapshot}
        assert {(a.peer, a.header.slice, True) for a in actions if isinstance(a, Respond)} == waited
        for key in waited:
            del self.pulls[key]
        self.do(actions)
        assert not any(kept == snapshot for _, kept in self.kept)

    @rule(worker=WORKER)
    def left(self, worker):
        self.do(self.shard.left(worker))
        self.pulls = {key: header for key, header in self.pulls.items() if key[0] != worker}

    @precondition(lambda self: len(self.gone) < 2)
    @rule(worker=WORKER)
    def worker_goes(self, worker):
        self.do(self.shard.gone(worker))
        self.gone.add(worker)
        self.pulls = {key: header for key, header in self.pulls.items() if key[0] != worker}
        assert not any(one.worker == worker and one not in self.named for _, one in self.payloads)

    @rule(worker=WORKER, other=WORKER, kind=st.sampled_from(MessageKind), number=st.integers(0, 3))
    def nonsense(self, worker, other, kind, number):
        strange = Header(kind, number, other, length=BYTES + 1)
        refused = self.shard.refused[worker]
        assert not self.shard.wants(worker, strange)
        actions = self.shard.arrived(worker, strange)
        assert self.shard.refused[worker] == refused + 1
        assert [action.header.kind for action in actions] == [MessageKind.REFUSED] * (kind != MessageKind.REFUSED)
        assert all(action.sentence and action.peer == worker for action in actions)

    @invariant()
    def every_update_begins_as_soon_as_it_can(self):
        for number in SLICES:
            self.pass_empty(number, self.shard.version(number))
            if number not in self.busy and len(self.closings) > self.versions[number]:
                needed = self.closings[self.versions[number]].contributions
                assert any((number, one) not in self.payloads for one in needed)
        assert self.shard.oldest == min(self.versions.values())

    @invariant()
    def nothing_acknowledged_is_lost(self):
        for number, one in self.acknowledged:
            there = (number, one) in self.payloads or one in self.used[number]
            assert there or (one not in self.named and (one in self.settled or one.worker in self.gone))

    @invariant()
    def every_pull_is_answered_as_soon_as_it_can(self):
        for (_, number, kept), header in self.pulls.items():
            if kept:
                assert (number, header.snapshot) not in self.kept
            else:
                assert number in self.busy or header.version > self.versions[number]

    @invariant()
    def cuts_are_kept_as_of_their_update(self):
        for snapshot, update in self.snapshots.items():
            here = {number for number in SLICES if self.versions[number] >= update}
            if snapshot not in self.released:
                assert {number for number, kept in self.kept if kept == snapshot} == here
                assert self.kept_all.count(snapshot) == (here == set(SLICES))

    @invariant()
    def each_use_counts_its_staleness(self):
        used = Counter(one.worker for ones in self.used.values() for one in ones)
        counted: Counter[int] = Counter()
        for (worker, _), times in self.shard.staleness.items():
            counted[worker] += times
        assert counted == used


Naive.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestAgainstANaiveModel = Naive.TestCase


@given(st.integers(0, 2**32 - 1))
def test_replicas_that_hear_the_same_in_other_orders_apply_the_same(seed):
    order = random.Random(seed)
    pushes = [push(worker, number, clock) for clock in CLOCKS for number in SLICES for worker in WORKERS]
    closings = [
        Closing(clock + 1, tuple(Contribution(worker, clock) for worker in WORKERS), 0.5, clock) for clock in CLOCKS
    ]
    assert heard(order, pushes, closings) == heard(order, pushes, closings)


def heard(order: random.Random, pushes: list[Header], closings: list[Closing]) -> dict[int, list[Apply]]:
    """Updates in the order in which a shard has them done, by slice; `closings` come in order between the pushes."""
    shard = Shard(dict.fromkeys(SLICES, BYTES))
    news = [*order.sample(pushes, len(pushes)), *closings]
    places = sorted(order.sample(range(len(news)), len(closings)))
    for place, closing in zip(places, closings, strict=True):
        news.remove(closing)
        news.insert(place, closing)
    out: list[Apply] = []
    done: dict[int, list[Apply]] = {number: [] for number in SLICES}
    while news or out:
        if news and (not out or order.random() < 0.5):
            one = news.pop(0)
            actions = shard.close(one) if isinstance(one, Closing) else shard.arrived(one.worker, one)
        else:
            apply = out.pop(order.randrange(len(out)))
            done[apply.slice].append(apply)
            actions = shard.applied(apply.slice, apply.number)
        out += [action for action in actions if isinstance(action, Apply)]
    return done


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
