"""Whatever comes in which order, a shard does what one that remembers everything would do."""

from __future__ import annotations

import random
from collections import Counter
from itertools import count

import hypothesis.strategies as st
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from server._headers import BYTES, WORKERS, pull, push
from volary.server.protocol.header import Header, MessageKind
from volary.server.protocol.updates import Closing, Contribution
from volary.server.shards.actions import Apply, Forget, Give, Hold, KeepSlice, KeptAll, ReleaseSlice, Respond
from volary.server.shards.shard import Shard

SLICES, CLOCKS = range(2), range(4)
WORKER, SLICE, CLOCK = st.sampled_from(WORKERS), st.sampled_from(SLICES), st.sampled_from(CLOCKS)


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
        """Carries out an action as a host does."""
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
