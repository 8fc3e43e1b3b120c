"""A worker's copy of the network in a served run: gradients leave as they are made, values come as they are needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from volary.codec import ROOM as CODECS
from volary.comm.routes._base import Memory
from volary.exchange._buckets import Buckets
from volary.exchange._encoding import Encoding
from volary.exchange._factors import factor_memory
from volary.exchange._just_in_time import JustInTime
from volary.exchange._outer import send_factors
from volary.exchange._pushed import as_bytes
from volary.exchange._row_blocks import write_as_usual, write_in_place
from volary.exchange._served import Served
from volary.exchange._way import Factors
from volary.train.served.shelves import Shelves, Statistics

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.comm.transports._base import Transport
    from volary.exchange._bucket import Chunk, Gate, Slot
    from volary.exchange._plan import Plan
    from volary.server.link import Link
    from volary.server.messages import Learn
    from volary.session.spec import Session
    from volary.train.recorder import Recorder
    from volary.train.served.layout import Layout


class Replica:
    """Of `module`, cut as `layout` says. transport: whose memory gradients are written to.

    held: told of each contribution that all servers hold, and of the seconds that it waited for parameters.
    """

    def __init__(
        self,
        session: Session,
        module: nn.Module,
        layout: Layout,
        recorder: Recorder,
        link: Link,
        transport: Transport,
        held: Callable[[int, float], None],
    ) -> None:
        strategy, self._recorder = session.strategy, recorder
        self._fetch_every = strategy.consistency.fetch_every
        self._asks_ahead = strategy.consistency.asks_ahead
        memory = [_memory(plan, transport) for plan in layout.plans]
        self._buckets = Buckets(
            layout.plans,
            memory,
            [(name, parameter) for name, parameter in module.named_parameters() if not parameter.requires_grad],
            chunk_mb=layout.chunk_mb,
            private=False,
            passes=session.train.accumulate * strategy.consistency.push_every,
            ready=self._ready,
            weight=lambda: 1.0,
        )
        warn = self._warn if session.train.on_nonfinite == "skip" else None
        self._encoding = Encoding(strategy.codec, layout.plans, warn)
        self._statistics = [Statistics(layout, number) for number in layout.buffer_chunks]
        pulls = strategy.exchange.pulls
        codec = None if pulls == "none" else CODECS.load(pulls)()
        self._shelves = Shelves(layout, module, self._buckets, self._statistics, self._encoding, codec)
        behind, slots = self._shelves.behind(), self._buckets.slots
        gates = {id(slot.gate): (slot.gate, behind[id(slot.parameter)]) for slot in slots}
        self._exchange = Served(
            link,
            self._shelves.all,
            gates,
            lambda clock: held(clock, self._waited_s.pop(clock, 0.0)),
            recorder.moved,
        )
        self._just_in_time = JustInTime(module, {id(slot.parameter): slot.gate for slot in slots}, self._wait_for)
        self._changed = [*write_in_place(module, self._buckets), *send_factors(module, self._buckets)]
        self._scripted = any(isinstance(part, torch.jit.ScriptModule) for part in module.modules())
        self._clock, self._learnt = 0, 0
        self._waited_s: dict[int, float] = {}  # by clock
        self._pushing, self._aside = True, False
        self._cut: tuple[int, dict[int, Tensor]] = (0, {})
        self._named: set[str] = set()

    @property
    def sent_bytes(self) -> int:
        """Bytes that this worker put on the wire since it started."""
        return self._exchange.sent_bytes

    @property
    def received_bytes(self) -> int:
        """Bytes that this worker took off the wire since it started."""
        return self._exchange.received_bytes

    def begin(self, task: Learn) -> None:
        """A contribution begins: from now on parameters are read that are as new as the model wants."""
        self._clock, self._cut = task.clock, (0, {})
        self._encoding.at(task.samples)
        self._exchange.need(task.oldest)
        self._wait(lambda: self._exchange.pull_rest(self._shelves.buffers))
        if self._scripted:  # it reads its parameters where nobody can wait for them
            for slot in self._buckets.slots:
                self._wait_for(slot.gate)

    def before_backward(self, *, last: bool) -> None:
        """Wait until buckets may change. last: of the contribution's passes, in which its gradients leave."""
        self._wait(self._exchange.await_memory)
        self._buckets.in_backward = last
        if last and self._asks_ahead:
            self._exchange.ask_ahead()
        for one in self._statistics if last else ():
            one.take()
            self._exchange.push(one.chunk, self._clock)

    def step(self, oldest: int) -> None:
        """Backward is over: the contribution is complete, and what the next is computed with is on its way.

        oldest: the least update that it will need, as far as that is known.
        """
        self._name_missing(self._buckets.close())
        self._learnt += 1
        if self._learnt % self._fetch_every == 0:
            self._exchange.refresh(oldest)

    def leave_out(self, oldest: int) -> None:
        """There is no contribution: what was computed of it is forgotten."""
        self._wait(self._exchange.await_memory)
        self._pushing = False
        self._buckets.close()
        self._pushing = True
        self._exchange.refresh(oldest)

    def settle(self) -> None:
        """Wait until all that was pushed is held."""
        self._wait(self._exchange.await_memory)

    @contextmanager
    def as_of(self, cut: int) -> Iterator[bool]:
        """Let the network have the state that is kept under `cut` for a while; False: it is not kept any more."""
        kept = self._wait_for_cut(cut)
        shelves = self._exchange.shelves
        own = {number: shelf.pulled.taken_from_network() for number, shelf in shelves.items()} if kept else {}
        self._aside = True
        try:
            for number, values in self._cut[1].items() if kept else ():
                shelves[number].pulled.install(values)
            yield kept
        finally:
            for number, values in own.items():
                shelves[number].pulled.install(values)
            self._aside = False

    def close(self) -> None:
        """Let go of the network."""
        self._buckets.remove()
        self._just_in_time.remove()
        write_as_usual(self._changed)

    def _name_missing(self, missing: Sequence[Slot]) -> None:
        """Say once of each parameter that it got no gradient: servers leave it as it is, unless others have one."""
        for slot in missing:
            if slot.name not in self._named:
                self._named.add(slot.name)
                self._warn(f"{slot.name} had no gradient on rank {self._recorder.rank}; it counted as zero there")

    def _wait_for_cut(self, cut: int) -> bool:
        if self._cut[0] == cut:
            return True
        values = {number: torch.empty_like(shelf.pulled.values) for number, shelf in self._exchange.shelves.items()}
        self._recorder.enter("exchange")
        if not self._exchange.pull_cut(cut, {number: as_bytes(one) for number, one in values.items()}):
            return False
        self._cut = cut, values
        return True

    def _ready(self, chunk: Chunk) -> None:
        factors = self._shelves.factors.get(chunk.bucket.index)
        if factors is not None:
            factors.take()
        for one in [chunk] if factors is None else chunk.bucket.chunks:
            if self._pushing:
                self._exchange.push(one.index, self._clock)

    def _wait_for(self, gate: Gate) -> None:
        if self._aside:
            return
        started_s = time.perf_counter()
        self._wait(lambda: self._exchange.pull(gate))
        self._waited_s[self._clock] = self._waited_s.get(self._clock, 0.0) + time.perf_counter() - started_s
        if self._recorder.spans.recording:
            self._recorder.spans.add(self._recorder.step + 1, "wait", gate.name, started_s, time.perf_counter())

    def _wait(self, until: Callable[[], None]) -> None:
        with self._recorder.waiting():
            until()

    def _warn(self, text: str) -> None:
        self._recorder.event("warning", text=text)


def _memory(plan: Plan, transport: Transport) -> Memory:
    """For a bucket, from where it leaves without a copy if that can be."""
    if isinstance(plan.way, Factors):
        return factor_memory(plan)
    if plan.device.type != "cpu":
        values = torch.zeros(plan.shape.numel, dtype=plan.dtype, device=plan.device)
    else:
        values = torch.frombuffer(transport.memory(plan.shape.numel * plan.dtype.itemsize), dtype=plan.dtype)
    return Memory(values, values)
