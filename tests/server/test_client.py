"""A client keeps its word whatever becomes of servers: held means held by all, awaited means asked of one, once."""

from __future__ import annotations

from collections import deque

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from volary.server.client.client import NONE_YET, Client, Held, HeldAll, Installed, RequestRefused, SendToServer
from volary.server.protocol.header import Form, Header, MessageKind
from volary.server.protocol.slices import Slice
from volary.server.protocol.to_members import View
from volary.sharding.ranges import Range

SERVERS, SHARDS = range(3), [[0, 1], [1, 2]]
SLICES = [Slice(number, number % 2, 0, (Range(str(number), 0, 2),)) for number in range(3)]
SERVER, NUMBER = st.sampled_from(SERVERS), st.sampled_from(range(3))


def client():
    return Client(SLICES, worker=7)


def view(number, shards):
    return View(number, shards, {})


def push(one, number, clock):
    return one.push(number, clock, 0, 3, Form.EXACT, 8)


class Servers(RuleBasedStateMachine):
    """Servers that hold what they are sent, answer in their own time and go; connections break and come back.

    What is under way on a connection comes in order, or is lost with it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.client = client()
        self.view, self.views = [list[int]() for _ in SHARDS], 0
        self.dead: set[int] = set()
        self.connections: dict[int, deque[Header]] = {}  # what goes to each server
        self.answers: dict[int, deque[Header]] = {}
        self.holds: dict[int, set[tuple[int, int]]] = {server: set() for server in SERVERS}
        self.versions = {(server, one.number): 0 for server in SERVERS for one in SLICES}
        self.waiting: dict[int, dict[int, Header]] = {server: {} for server in SERVERS}
        self.pushed: dict[tuple[int, int], bool] = {}
        self.whole: set[int] = set()
        self.clocks = dict.fromkeys(range(3), 0)
        self.wanted: dict[int, int] = {}
        self.received = dict.fromkeys(range(3), NONE_YET)

    def do(self, actions):
        for action in actions:
            match action:
                case SendToServer(server, header):
                    assert server in self.view[SLICES[header.slice].shard]
                    self.connections[server].append(header)
                case Held(number, clock):
                    servers = self.view[SLICES[number].shard]
                    assert servers and all((number, clock) in self.holds[server] for server in servers)
                    assert not self.pushed[number, clock]
                    self.pushed[number, clock] = True
                case HeldAll(clock):
                    assert all(self.pushed.get((number, clock)) for number in range(3))
                    assert clock not in self.whole
                    self.whole.add(clock)
                case Installed(number, version, 0):
                    assert version >= self.received[number]
                    self.received[number] = version
                    if version >= self.wanted.get(number, version + 1):
                        del self.wanted[number]
                case _:
                    raise AssertionError(action)

    @rule(number=NUMBER)
    def push(self, number):
        clock = self.clocks[number]
        self.clocks[number] += 1
        self.pushed[number, clock] = False
        self.do(push(self.client, number, clock))

    @rule(number=NUMBER, ahead=st.integers(-2, 2))
    def pull(self, number, ahead):
        at_least = max(0, self.received[number] + ahead)
        self.wanted[number] = max(self.wanted.get(number, 0), at_least)
        self.do(self.client.pull(number, at_least))

    @rule(data=st.data())
    def change_view(self, data):
        """Once there are servers, they only go."""
        if self.views:
            self.dead.update(data.draw(st.sets(SERVER, max_size=1)) if len(self.dead) < 2 else ())
        self.views += 1
        self.view = [[one for one in servers if one not in self.dead] for servers in SHARDS]
        news = view(self.views, self.view)
        self.do(self.client.view(news))
        assert self.client.view(news) == []
        for server in self.dead & set(self.connections):
            self.lose(server)

    @rule(server=SERVER)
    def connect(self, server):
        if server not in self.connections and server not in self.dead:
            self.connections[server], self.answers[server] = deque(), deque()
            self.do(self.client.connected(server))

    @precondition(lambda self: self.connections)
    @rule(data=st.data())
    def connection_breaks(self, data):
        self.lose(data.draw(st.sampled_from(sorted(self.connections))))

    def lose(self, server):
        del self.connections[server], self.answers[server]
        self.waiting[server].clear()
        self.do(self.client.lost(server))

    @rule(server=SERVER, number=NUMBER)
    def server_applies(self, server, number):
        self.versions[server, number] += 1

    @rule(server=SERVER, messages=st.integers(1, 4), twice=st.booleans())
    def server_works(self, server, messages, twice):
        for _ in range(messages):
            if self.connections.get(server):
                self.serve(server, self.connections[server].popleft(), twice)
        self.give(server)

    def serve(self, server, header, twice=False):
        if header.kind == MessageKind.PULL:
            self.waiting[server][header.slice] = header
            return
        assert (header.worker, header.used, header.length) == (7, 3, 8)
        self.holds[server].add((header.slice, header.clock))
        self.answers[server].extend([Header(MessageKind.HELD, header.slice, 7, header.clock)] * (1 + twice))

    def give(self, server):
        for number, header in list(self.waiting[server].items()):
            version = self.versions[server, number]
            if header.version <= version:
                del self.waiting[server][number]
                self.answers[server].append(Header(MessageKind.VALUES, number, 7, header.clock, version, length=8))

    @rule(server=SERVER, messages=st.integers(1, 4))
    def worker_hears(self, server, messages):
        for _ in range(messages):
            if self.answers.get(server):
                self.hear(server, self.answers[server].popleft())

    def hear(self, server, header):
        if header.kind == MessageKind.VALUES:
            assert self.client.awaits(server, header)
        self.do(self.client.received(server, header))
        assert not self.client.awaits(server, header)

    @invariant()
    def nobody_else_is_asked_while_an_answer_may_come(self):
        for number in range(3):
            asked = [
                header
                for server in self.connections
                for header in [*self.connections[server], *self.waiting[server].values(), *self.answers[server]]
                if header.slice == number and header.kind in (MessageKind.PULL, MessageKind.VALUES)
            ]
            assert len(asked) <= 1

    @invariant()
    def what_is_held_and_open_is_known(self):
        for clock in range(max(self.clocks.values())):
            there = [self.pushed.get((number, clock)) for number in range(3)]
            assert self.client.held(clock) == all(there)
        for number in range(3):
            assert self.client.pulling(number) == (number in self.wanted)
            assert self.client.version(number) == self.received[number]

    def teardown(self):
        """Once the rest stays and answers, all is held and all pulls are answered."""
        self.change_view_to_the_rest()
        for server in SERVERS:
            self.connect(server)
        newest = max([*self.wanted.values(), *self.versions.values()])
        self.versions = dict.fromkeys(self.versions, newest)
        while any([*self.connections.values(), *self.answers.values(), *self.waiting.values()]):
            for server in self.connections:
                while self.connections[server]:
                    self.serve(server, self.connections[server].popleft())
                self.give(server)
                while self.answers[server]:
                    self.hear(server, self.answers[server].popleft())
        served = {one.number for one in SLICES if self.view[one.shard]}
        assert not any(number in served and not held for (number, _), held in self.pushed.items())
        assert not served & set(self.wanted)

    def change_view_to_the_rest(self):
        self.views += 1
        self.view = [[one for one in servers if one not in self.dead] for servers in SHARDS]
        self.do(self.client.view(view(self.views, self.view)))


Servers.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestWhateverBecomesOfServers = Servers.TestCase


@pytest.fixture
def served():
    """A client that is connected to all servers of two replicas a shard."""
    one = client()
    one.view(view(0, SHARDS))
    for server in SERVERS:
        one.connected(server)
    return one


def held(number, clock):
    return Header(MessageKind.HELD, number, 7, clock)


def values(number, sent, version, snapshot=0):
    return Header(MessageKind.VALUES, number, 7, sent.header.clock, version, snapshot=snapshot, length=8)


def test_a_push_goes_to_all_replicas_and_is_held_once_all_say_so(served):
    header = Header(MessageKind.PUSH, 0, 7, 5, 4, Form.ENCODED, used=1, length=3)
    assert served.push(0, 5, 4, 1, Form.ENCODED, 3) == [SendToServer(0, header), SendToServer(1, header)]
    assert served.received(0, held(0, 5)) == served.received(0, held(0, 5)) == []
    assert served.received(1, held(0, 5)) == [Held(0, 5)]


def test_a_contribution_is_held_once_all_its_slices_are(served):
    for number in range(3):
        push(served, number, 0)
    heard = [served.received(server, held(one.number, 0)) for one in SLICES for server in SHARDS[one.shard]]
    assert heard == [[], [Held(0, 0)], [], [Held(1, 0)], [], [Held(2, 0), HeldAll(0)]]
    assert served.held(0)


def test_the_death_of_the_replica_that_has_not_answered_makes_a_push_held(served):
    push(served, 0, 0)
    served.received(1, held(0, 0))
    assert served.view(view(1, [[1], [1, 2]])) == [Held(0, 0)]


def test_a_push_is_not_held_while_nobody_serves_its_shard(served):
    push(served, 0, 0)
    assert served.view(view(1, [[], [1, 2]])) == []
    assert not served.held(0)


def test_a_connection_that_comes_back_is_sent_again_what_it_has_not_acknowledged(served):
    first, second = push(served, 0, 0)[0], push(served, 0, 1)[0]
    served.received(0, held(0, 0))
    served.lost(0)
    assert served.connected(0) == [second]
    assert first.server == second.server == 0


def test_a_pull_is_asked_of_the_next_replica_only_when_nothing_more_comes_from_the_first(served):
    (asked,) = served.pull(0, at_least=2)
    assert served.view(view(1, [[1], [1, 2]])) == []
    assert served.awaits(0, values(0, asked, 2))
    assert not served.awaits(1, values(0, asked, 2))
    (again,) = served.lost(0)
    assert (again.server, again.header.version) == (1, 2)
    assert not served.awaits(0, values(0, asked, 2))
    assert served.received(0, values(0, asked, 2)) == []
    assert served.received(1, values(0, again, 3)) == [Installed(0, 3, 0, 8)]


def test_a_pull_that_is_out_is_not_asked_twice_but_again_if_it_turns_out_too_old(served):
    (asked,) = served.pull(0, at_least=1)
    assert served.pull(0, at_least=3) == []
    installed, again = served.received(0, values(0, asked, 1))
    assert installed == Installed(0, 1, 0, 8)
    assert again.header.version == 3


def test_values_never_go_back_even_when_a_replica_is_behind(served):
    (asked,) = served.pull(0, at_least=0)
    served.received(0, values(0, asked, 9))
    served.lost(0)
    (asked,) = served.pull(0, at_least=0)
    assert (asked.server, asked.header.version) == (1, 9)
    assert not served.awaits(1, values(0, asked, 8))


def test_differences_are_taken_only_to_what_the_same_connection_brought_last(served):
    def asked_next(actions):
        (asked,) = actions
        return asked, (asked.server, asked.header.form)

    asked, first = asked_next(served.pull(0, at_least=0))
    served.received(0, values(0, asked, 1))
    asked, second = asked_next(served.pull(0, at_least=2))
    assert (first, second) == ((0, Form.EXACT), (0, Form.DIFFERENCE))

    asked, elsewhere = asked_next(served.lost(0))
    served.received(1, values(0, asked, 2))
    served.connected(0)
    asked, again = asked_next(served.pull(0, at_least=3))
    assert (elsewhere, again) == ((1, Form.EXACT), (0, Form.EXACT))
    asked, torn = asked_next(served.lost(0))  # half of its answer lies over what server 1 gave
    assert torn == (1, Form.EXACT)


def test_kept_values_are_asked_for_beside_the_newest_and_change_no_version(served):
    served.pull(0, at_least=0)
    (asked,) = served.pull(0, at_least=0, snapshot=4)
    assert (asked.header.snapshot, asked.header.version) == (4, 0)
    assert served.received(0, values(0, asked, 6, snapshot=4)) == [Installed(0, 6, 4, 8)]
    assert served.version(0) == NONE_YET
    assert served.pulling(0)


def test_a_refused_pull_is_over_and_told_with_what_was_refused(served):
    (asked,) = served.pull(0, at_least=0, snapshot=4)
    refused = Header(MessageKind.REFUSED, 0, 7, asked.header.clock, version=MessageKind.PULL, snapshot=4, length=20)
    assert served.received(1, refused) == []
    assert served.received(0, refused) == [RequestRefused(0, MessageKind.PULL, 0, asked.header.clock, 4)]
    assert not served.pulling(0, snapshot=4)


@pytest.mark.parametrize("kind", MessageKind)
@pytest.mark.parametrize("number, version", [(0, MessageKind.PULL), (0, 77), (99, MessageKind.PUSH)])
def test_what_was_not_asked_for_says_nothing(served, kind, number, version):
    header = Header(kind, number, 7, 3, version=version)
    assert not served.awaits(0, header)
    assert served.received(0, header) == []
