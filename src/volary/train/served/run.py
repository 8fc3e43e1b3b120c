"""A worker's job in a run with parameter servers: build, be admitted, connect to the servers, train."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from typing import TYPE_CHECKING

import msgspec
import torch

from volary.comm.transports import ROOM as TRANSPORTS
from volary.comm.transports._base import Credentials
from volary.comm.wire import Connection
from volary.data.feed import Feed
from volary.data.stream import Stream
from volary.exchange.server import COLOCATED
from volary.server.client import Client
from volary.server.link import Link
from volary.server.messages import WorkerHello
from volary.train.agreed_plan import describe
from volary.train.assemble import build_model, choose_device, readable, update_rule
from volary.train.compare import code_facts, compare_with_first, setting_facts, shape_facts, user_objects
from volary.train.corrupt import teller
from volary.train.precision import Precision, check_precision
from volary.train.seeds import seed_all
from volary.train.served.colocated import server_beside
from volary.train.served.layout import lay_out
from volary.train.served.loop import Learning, Served, train
from volary.train.served.replica import Replica
from volary.train.served.work import Work
from volary.train.trial import try_first

if TYPE_CHECKING:
    from volary.comm.transports._base import Channel, Transport
    from volary.data._base import Samples
    from volary.session.spec import Session
    from volary.train.assemble import Model
    from volary.train.compare import Facts
    from volary.train.loop import Outcome
    from volary.train.process import Membership
    from volary.train.pulse import Pulse
    from volary.train.recorder import Recorder
    from volary.train.served.layout import Layout

CONNECT_TIMEOUT_S = 10.0


def run_served(session: Session, member: Membership, recorder: Recorder, pulse: Pulse) -> Outcome:
    """Train as one of a run's workers. Raises what the user's code raises, and VolaryError."""
    place, strategy = member.place, session.strategy
    beside = strategy.exchange.servers == COLOCATED and place.rank < strategy.workers
    with server_beside(member) if beside else nullcontext():
        device = choose_device(session.train.device, place.local_rank, place.world_size)
        check_precision(session.train.precision, device)
        recorder.starting("building the network")
        seed_all(session.train.seed)
        model = build_model(session, device)
        try_first(session, model, device, place, recorder)
        layout = lay_out(session, model.module, strategy.exchange.count(strategy.workers))
        seed_all(session.train.seed + 1 + place.rank)
        samples, held_back = _indexed(session, model.samples, teller(recorder, "train")), None
        if session.evaluate.every.unit != "never":
            held_back = _indexed(session, model.held_back, teller(recorder, "test"))
        facts = _facts(member, session, model, layout)
        recorder.starting("waiting for the servers")
        recorder.enter("exchange")
        with _admitted(member, _hello(member, model, facts, samples, held_back), lambda: pulse.asked_to_end) as work:
            welcome = work.welcome()
            if welcome is None:
                return work.outcome
            compare_with_first(welcome.facts, facts, place.rank)
            return _train(session, member, recorder, device, model, layout, samples, held_back, work)


def _train(
    session: Session,
    member: Membership,
    recorder: Recorder,
    device: torch.device,
    model: Model,
    layout: Layout,
    samples: Samples,
    held_back: Samples | None,
    work: Work,
) -> Outcome:
    rank = member.place.rank
    transport = TRANSPORTS.load(session.strategy.exchange.transport)()
    link = Link(Client(layout.slices, rank), _connect(session, member, transport), work.unreachable)
    feed = Feed(samples, session.data.batch_size, shuffle=session.data.shuffle)
    steps = session.train.steps or feed.steps_in(session.train.epochs or 0)
    recorder.spans.follow(session.train.trace, feed.steps_per_epoch or steps)
    if rank == 0:
        facts = {"steps_planned": steps, "steps_per_epoch": feed.steps_per_epoch or steps, "device": device}
        recorder.note(**facts, **model.facts())
    replica = Replica(session, model.module, layout, recorder, link, transport, work.done)
    recorder.starting("doing the first step")
    with closing(link), closing(replica):
        work.start(link.view, link.fail)
        return train(
            Served(
                session=session,
                device=device,
                flow=model.flow("train"),
                evaluating=model.flow("evaluate"),
                samples=Learning(samples, session),
                held_back=held_back,
                precision=Precision(session.train.precision, device),
                replica=replica,
                recorder=recorder,
                work=work,
                steps=steps,
                base_lr=_base_lr(session),
            )
        )


@contextmanager
def _admitted(member: Membership, hello: WorkerHello, leaving: Callable[[], bool]) -> Iterator[Work]:
    """Be known to the run's roster for a while."""
    key, said = member.directory.key(), msgspec.to_builtins(hello)
    connection = Connection.open(member.host, member.port, key, "roster", said, member.server_life, CONNECT_TIMEOUT_S)
    with closing(Work(connection, leaving)) as work:
        yield work


def _hello(member: Membership, model: Model, facts: Facts, samples: Samples, held_back: Samples | None) -> WorkerHello:
    return WorkerHello(
        rank=member.place.rank,
        facts=facts,
        samples=len(samples),
        held_back=0 if held_back is None else len(held_back),
        metric=model.criterion.metric,
        higher_is_better=model.criterion.higher_is_better,
    )


def _facts(member: Membership, session: Session, model: Model, layout: Layout) -> Facts:
    """What all workers of the run must agree on."""
    plan = {f"plan, number {place}": chunk for place, chunk in enumerate(describe(layout.plans, layout.chunk_mb))}
    settings = setting_facts((member.session or session).settings())
    return code_facts(user_objects(session)) | settings | shape_facts(model.module) | plan


def _connect(session: Session, member: Membership, transport: Transport) -> Callable[[int, tuple[str, int]], Channel]:
    key, hello = member.directory.key(), {"worker": member.place.rank}

    def connect(server: int, address: tuple[str, int]) -> Channel:
        wanted = Credentials(key, member.server_life, server, session.strategy.security)
        return transport.connect(address, wanted, hello, CONNECT_TIMEOUT_S)

    return connect


def _indexed(session: Session, samples: Samples | Stream, told: Callable[[int, str], None]) -> Samples:
    samples = readable(session, samples, told)
    assert not isinstance(samples, Stream)  # open_data refuses it
    return samples


def _base_lr(session: Session) -> float:
    """The learning rate that the schedule's factors are of."""
    build, _ = update_rule(session)
    return float(build([torch.zeros(1, requires_grad=True)]).param_groups[0]["lr"])
