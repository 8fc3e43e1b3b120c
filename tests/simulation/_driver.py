"""A simulated driver: the run's roster and its watch over processes, behind a keyed server."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any

import msgspec

from simulation._history import History
from simulation._network import Port
from simulation._processes import Process
from simulation._world import World
from volary.comm.control.service import CLOSE, Replies, Service
from volary.driver.heartbeats import HeartbeatService
from volary.server.protocol.to_members import Close, Dropped, Keep, Learn, Welcome
from volary.server.protocol.updates import Contribution

TICK_S = 0.1


class NoJournal:
    """Takes what the watch writes down, which nobody looks at."""

    fault = ""

    def note(self, **facts: Any) -> None:
        pass

    def steps(self, rows: Any) -> None:
        pass

    def events(self, found: Any, lost: Any) -> None:
        pass


class Driver:
    """Carries messages to and from roster and watch, as `volary.comm.control.server.KeyedServer` does.

    finished: by rank of all workers that are here, the first clock that the roster has not heard to be finished.
    each: ranks of a replica, all of which hear what is said to it.
    """

    def __init__(self, world: World, history: History, each: int = 1) -> None:
        self._each, self._others = each, set[int]()  # connections of ranks that are not the first of their replica
        self.process = Process(world, "driver")
        self.finished: dict[int, int] = {}
        self._world, self._history = world, history
        self._services: list[Service] = []
        self._ports: dict[int, Port] = {}
        self._ranks: dict[int, int] = {}
        self._outbox: deque[tuple[int, Any]] = deque()

    def begin(self, roster: Service, pulse: HeartbeatService) -> None:
        """Serve."""
        self._services = [roster, pulse]
        self._tick()

    def accept(self, port: Port, service: Service) -> None:
        """Somebody has connected; what comes first is its hello."""
        port.received, port.closed = partial(self._greet, port, service), lambda: None

    def say(self, replies: Replies) -> None:
        """Send what the roster has to say."""
        self._outbox.extend(replies)
        while self._outbox:
            peer, message = self._outbox.popleft()
            port = self._ports[peer]
            if port.open and message is CLOSE:
                port.end()
                port.closed()
            elif port.open:
                self._note(peer, message)
                port.send(msgspec.msgpack.encode(message))

    def _greet(self, port: Port, service: Service, data: bytes) -> None:
        peer = len(self._ports) + 1
        self._ports[peer] = port
        port.received, port.closed = partial(self._hear, peer, service), partial(self._gone, peer, service)
        hello = msgspec.msgpack.decode(data)
        if hello.get("rank", 0) % self._each:
            self._others.add(peer)
        self.say(service.opened(peer, hello, self._world.now))

    def _hear(self, peer: int, service: Service, data: bytes) -> None:
        message = msgspec.msgpack.decode(data)
        if message.get("kind") == "done":
            self.finished[self._ranks[peer]] = message["clock"] + 1
        self.say(service.received(peer, message, self._world.now))

    def _gone(self, peer: int, service: Service) -> None:
        if peer in self._ranks:
            self.finished.pop(self._ranks[peer], None)
        self.say(service.closed(peer, self._world.now))

    def _tick(self) -> None:
        for service in self._services:
            self.say(service.tick(self._world.now))
        self.process.after(TICK_S, self._tick)

    def _note(self, peer: int, message: Any) -> None:
        history = self._history
        match message:
            case Welcome(rank=rank):
                self._ranks[peer], self.finished[rank] = rank, self._history.newest
            case Learn() | Dropped() if peer in self._others:
                pass
            case Learn(clock=clock, portions=portions):
                contribution = Contribution(self._ranks[peer], clock)
                assert contribution not in history.learnt, "a clock is given twice"
                history.learnt[contribution] = tuple(portions)
            case Dropped(clock=clock):
                history.dropped.add(Contribution(self._ranks[peer], clock))
            case Close(closing=closing):
                if closing.number > history.newest:
                    history.closings.append(closing)
            case Keep(snapshot=snapshot, number=number) if peer not in self._ranks:
                history.numbers[snapshot] = number
