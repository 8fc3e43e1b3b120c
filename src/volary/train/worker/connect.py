"""How a worker meets the others of its run, its roster and its servers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch.distributed import HashStore  # type: ignore[attr-defined]  # torch exports it untyped
from torch.distributed.distributed_c10d import PrefixStore

from volary.comm.channels.channel import Credentials
from volary.comm.control.connection import Connection
from volary.comm.groups.group import LAST_RESORT_S, Group, cut, join, leave
from volary.comm.relay.forwarder import reachable
from volary.comm.transports import ROOM as TRANSPORTS
from volary.errors import PeerLost, VolaryError
from volary.exchange.server import COLOCATED
from volary.run.launch.assignment import Assignment
from volary.server.client.client import Client
from volary.server.client.link import Link
from volary.sharding.groups import LEADER
from volary.train.member.bulletin import BoardBulletin
from volary.train.member.compare import compare, compare_with_first
from volary.train.recovery.pausing import MembersChange
from volary.train.served.roster_client import RosterClient

if TYPE_CHECKING:
    from volary.comm.channels.channel import Channel
    from volary.comm.transports._base import Transport
    from volary.server.protocol.hello import WorkerHello
    from volary.server.protocol.to_members import Welcome
    from volary.session.spec import Strategy
    from volary.train.member.compare import Facts
    from volary.train.member.process import Membership
    from volary.train.recording.recorder import Recorder
    from volary.train.recovery.member_news import MemberNews
    from volary.train.served.layout import Layout

Interrupting = Callable[[Callable[[], object]], AbstractContextManager[None]]

CONNECT_TIMEOUT_S = 10.0
END_WITHIN_S = 10.0  # a server beside a worker, after the run: servers write and say goodbye themselves


@contextmanager
def joined(
    member: Membership,
    recorder: Recorder,
    device: torch.device,
    backend: str = "auto",
    facts: Mapping[str, Facts] | None = None,
    change: int = 0,
    interrupting: Interrupting = lambda _: nullcontext(),
    part: str = "",
) -> Iterator[Group]:
    """Be in the run's group, of all its workers, for a while. facts: those that all ranks must have alike, by topic,
    under which rank 0 posts them for workers that join.

    change: the number of the change of members that made the group, which meets apart from those before. part: what the
    group is of, if it is not of all workers: those of each part meet apart from others. interrupting:
    is around all of it, and may call what it is given, from any thread, to end all waits for others. The recorder's
    phase is `exchange` from here on, as what comes first waits for the other ranks.

    Raises PeerLost, and RanksDiffer unless all have the same facts.
    """
    place, ahead, paused = member.place, member.next_group.taken(), False
    at, store = member.driver.board(member.directory.key(), LAST_RESORT_S)
    try:
        recorder.starting("meeting the other workers")
        recorder.enter("exchange")
        part = _part(change) or part
        bulletin = BoardBulletin(store, place.rank, place.world_size, at.attempt, part, recorder.waiting)

        def interrupt() -> None:
            store.close()
            cut()

        try:
            with interrupting(interrupt):
                meets_at = PrefixStore(part, store) if part else store
                with store.writing_later():
                    group = join(meets_at, bulletin, device, LAST_RESORT_S, place.address, backend, ahead)
                if facts is not None:
                    with store.writing_later():
                        _compare(group, facts)
                yield group
        except VolaryError as error:
            paused = isinstance(error, MembersChange)
            raise
        except RuntimeError as error:
            # torch names no peer; a rank whose own code failed says so itself
            if "gloo" in str(error).lower():
                raise PeerLost(f"the exchange broke: {str(error).splitlines()[0]}") from error
            raise
    finally:
        leave()
        if ahead is not None:
            ahead.give_up()
        if paused:
            member.driver.keep_board(at, store)
        else:
            store.close()


def _compare(group: Group, facts: Mapping[str, Facts]) -> None:
    for topic, some in facts.items() if group.leads else ():
        group.bulletin.post(topic, some)
    compare(group.bulletin, " and ".join(facts), {name: fact for some in facts.values() for name, fact in some.items()})


def gathered(
    member: Membership, recorder: Recorder, change: int, topic: str, value: Any, interrupting: Interrupting
) -> list[Any]:
    """Post a value before the group of this change of members meets, and read those of all its ranks, in their order.

    interrupting: as of `joined`. Raises VolaryError.
    """
    (at, store), place = member.driver.board(member.directory.key(), LAST_RESORT_S), member.place
    bulletin = BoardBulletin(store, place.rank, place.world_size, at.attempt, _part(change), recorder.waiting)
    try:
        with interrupting(store.close):
            found = bulletin.share(topic, value)
    except BaseException:
        store.close()
        raise
    member.driver.keep_board(at, store)
    return found


def facts_of_first(member: Membership, recorder: Recorder, news: MemberNews, topics: Sequence[str]) -> Facts:
    """Facts that rank 0 of the group which trains now has posted under these topics, or posts.

    Raises VolaryError.
    """
    while True:
        now = news.newest
        at, store = member.driver.board(member.directory.key(), LAST_RESORT_S)
        try:
            with news.interrupting(now, store.close):
                bulletin = BoardBulletin(store, member.place.rank, 1, at.attempt, _part(now.number), recorder.waiting)
                facts: list[Facts] = [bulletin.read(topic, LEADER) for topic in topics]
        except VolaryError:
            store.close()
            if news.newest.number == now.number:
                raise
        else:
            member.driver.keep_board(at, store)
            return {name: fact for some in facts for name, fact in some.items()}


def alone() -> Group:
    """The group of this worker by itself."""
    return Group(BoardBulletin(HashStore(), 0, 1, 0))


def _part(change: int) -> str:
    return f"/change {change}" if change else ""


@contextmanager
def admitted(
    member: Membership, hello: WorkerHello, leaving: Callable[[], bool], *, leads: bool = True
) -> Iterator[tuple[RosterClient, Welcome | None]]:
    """Be known to the run's roster for a while; no welcome: the run is over, and the roster's `outcome` says how.

    leaving: whether this worker was asked to go. leads: as of `RosterClient`. Raises PeerLost, and RanksDiffer unless
    all workers are alike.
    """
    key, plain, meets = member.directory.key(), msgspec.to_builtins(hello), member.meeting
    connection = Connection.open(meets.host, meets.port, key, "roster", plain, meets.attempt_id, CONNECT_TIMEOUT_S)
    with closing(RosterClient(connection, leaving, leads=leads)) as work:
        welcome = work.welcome()
        if welcome is not None:
            compare_with_first(welcome.facts, hello.facts, hello.rank)
        yield work, welcome


def linked(strategy: Strategy, member: Membership, layout: Layout, work: RosterClient) -> tuple[Transport, Link]:
    """The worker's link to the servers of its run, over the transport that the strategy names."""
    transport = TRANSPORTS.load(strategy.exchange.transport)()
    key, hello = member.directory.key(), {"worker": member.place.rank}

    def connect(server: int, address: tuple[str, int]) -> Channel:
        wanted = Credentials(key, member.meeting.attempt_id, server, strategy.security)
        channel: Channel = transport.connect(reachable(address), wanted, hello, CONNECT_TIMEOUT_S)
        return channel

    return transport, Link(Client(layout.slices, member.place.rank), connect, work.unreachable)


@contextmanager
def server_beside(member: Membership, strategy: Strategy) -> Iterator[None]:
    """Start server number `rank` as a child of this worker, if it is to have one, and see it end.

    From the main thread: the child dies with the thread it came from.
    """
    place = member.place
    if strategy.exchange.servers != COLOCATED or place.rank >= strategy.workers:
        yield
        return
    assignment = Assignment(directory=member.directory.path, meeting=member.meeting)
    if member.remote is not None:
        assignment = replace(member.remote.assignment, job="")
    settings = assignment.variables() | {"VOLARY_SERVER": str(place.rank), "VOLARY_DRIVER": str(os.getpid())}
    command = [sys.executable, "-m", "volary.serving"]
    child = subprocess.Popen(command, env=os.environ | settings, stdin=subprocess.DEVNULL)
    try:
        yield
        child.wait(END_WITHIN_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        child.kill()
        child.wait()
