"""A worker's copy of the network in a served run: gradients leave as they are made, values come as they are needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch

from volary.codec import ROOM as CODECS
from volary.comm.sums.route import Memory
from volary.exchange.gradients.buckets import Gradients
from volary.exchange.gradients.just_in_time import JustInTime, compiled_code_reads_past
from volary.exchange.representations import representation_in
from volary.exchange.servers.keeper import ServerKeeper
from volary.exchange.servers.transfer_times import TransferTimes
from volary.server.protocol.header import AVERAGED, NEWEST
from volary.train.replica import await_parameter
from volary.train.served.worker_slices import Statistics, WorkerSlices
from volary.train.strategies import idle_settings
from volary.train.strategies.contribution import missing_text

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.comm.transports._base import Transport
    from volary.exchange._base import Keeper
    from volary.exchange.gradients.bucket import Chunk, ParameterGate, ParameterSlot
    from volary.exchange.gradients.plan import BucketPlan
    from volary.run.database.traffic import Traffic
    from volary.server.client.link import Link
    from volary.session.spec import Strategy
    from volary.train.coordinator import LearnTask
    from volary.train.recording.recorder import Recorder
    from volary.train.served.layout import Layout
    from volary.train.served.push_settings import PushSettings
    from volary.train.served.residuals import Residuals


class ServedReplica:
    """See `volary.train.replica.Replica`. Of `module`, cut as `layout` says. link: to the servers, over a transport
    whose memory gradients fill.

    residuals: what codecs leave out, made of the keeper. held: called with each contribution that all servers hold, and
    the seconds that it waited for parameters.
    """

    def __init__(
        self,
        strategy: Strategy,
        module: nn.Module,
        layout: Layout,
        recorder: Recorder,
        link: tuple[Transport, Link],
        pushes: PushSettings,
        residuals: Callable[[Keeper], Residuals],
        held: Callable[[int, float], None],
    ) -> None:
        self._recorder, self._update, self._takes = recorder, pushes.update, pushes.wait
        self._centre, self._in_turn, self._parts = pushes.centre, strategy.consistency.in_turn, pushes.parts
        self._fetch_every = strategy.consistency.fetch_every
        self._asks_ahead = strategy.consistency.asks_ahead
        memory, made = [_memory(plan, link[0]) for plan in layout.plans], pushes.made
        self._contributions = made(strategy.consistency, module, layout)(memory, self._leave)
        buckets = self._contributions.buckets
        if self._takes and isinstance(buckets, Gradients):
            buckets.wait()
        self._encoding = pushes.encoding(layout, self._warn)
        self._statistics = [Statistics(layout, number) for number in layout.buffer_chunks]
        pulls = strategy.exchange.pulls
        codec = None if pulls == "none" else CODECS.load(pulls)()
        self._slices = WorkerSlices(layout, module, buckets, self._statistics, self._encoding, codec)
        behind, slots = self._slices.behind(), buckets.slots
        gates = {id(slot.gate): (slot.gate, behind[id(slot.parameter)]) for slot in slots}
        self._keeper = ServerKeeper(
            link[1],
            self._slices.all,
            gates,
            self._encoding,
            self._is_held,
            recorder.moved,
            TransferTimes(recorder.spans, {one.number: self._name(one.chunk) for one in layout.slices}),
        )
        self.residuals = residuals(self._keeper)
        self._held = held
        self._just_in_time = JustInTime(module, {id(slot.parameter): slot.gate for slot in slots}, self._wait_for)
        scripted = any(isinstance(part, torch.jit.ScriptModule) for part in module.modules())
        # TorchScript reads its parameters where nobody can wait for them
        together = scripted or not self._contributions.lazy
        shared = () if self._parts is None else self._parts.shared_ids  # which others wait for, too
        self._awaited = [slot.gate for slot in slots if together or id(slot.parameter) in shared]
        self._clock, self._learnt, self._samples = 0, 0, 0
        self._slots = slots
        self._backward_s = 0.0  # when the newest began, of time.perf_counter
        self._waited_s: dict[int, float] = {}  # by clock
        self._aside = False  # the network has another state's values
        self._leaves = False  # the newest contribution does
        self._snapshot: tuple[int, dict[int, Tensor]] = (0, {})
        self._named: set[str] = set()
        text = idle_settings.of_layers(strategy.codec, map(representation_in, layout.plans))
        if text and recorder.leads:
            self._warn(text)

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """The bytes sent and received, by codec: to and from servers, and between the workers of a replica."""
        return self._keeper.traffic + (self._parts.traffic if self._parts else ())

    def begin(self, task: LearnTask, *, computed: bool = False) -> None:
        """A contribution begins: from now on parameters are read that are as new as the model wants.

        computed: its forward is over, which has changed buffers.
        """
        self._clock, self._snapshot, self._samples = task.clock, (0, {}), task.samples
        self._leaves = False
        self._keeper.begin(task.clock, task.oldest)
        if not computed:
            self._wait(lambda: self._keeper.pull_rest(self._slices.buffers))
        for gate in self._awaited:
            self._wait_for(gate)
        if self._parts is not None:
            self._wait(self._parts.pass_on)
        if compiled_code_reads_past():
            self.await_all()
        if not self._contributions.lazy:  # it is about to change more than its gradients
            self._wait(self._keeper.settle)
            if self._centre is not None:
                self._centre.arrived()
            self.residuals.begin(self._clock)
        self._contributions.begin()
        if self._update is not None:
            self._update.begin(task.samples)

    def computed(self, loss: float) -> None:
        """The loss of a part is known. Raises RanksDiffer if those that hold this replica have another one."""
        if self._parts is not None:
            self._parts.compare(loss)

    def before_backward(self, *, last: bool, counted: float) -> None:
        """Wait until buckets may change. last: of the contribution's passes, in which its gradients leave.

        counted: what counts of the contribution so far.
        """
        self._wait(self._keeper.settle)
        self._encoding.empty = not counted
        self._encoding.at(self._samples)  # now: nothing of the contribution before is on its way
        self._contributions.in_backward(last=last)
        self._backward_s = time.perf_counter()
        if last:
            self._begin_to_leave()

    def take(self, ids: Container[int]) -> None:
        """Let the gradients of parameters with these ids be in the contribution, where they stay until then."""
        buckets = self._contributions.buckets
        assert isinstance(buckets, Gradients)
        buckets.take(ids)

    def update(self) -> None:
        """Update this worker's own parameters, if contributions are what that changes."""
        if self._update is not None:
            self._update.step()
            self.updated()

    def updated(self) -> None:
        """This worker's own parameters are updated, by `update` or by a user's own step."""
        self._contributions.updated()

    def update_own(self, gradients: Mapping[nn.Parameter, Tensor], scale: float) -> None:
        raise AssertionError("servers update all parameters")

    def step(self, oldest: int, share: float) -> None:
        """Backward is over: the contribution is complete, and what the next is computed with is on its way.

        oldest: the least update that it will need, as far as that is known. share: of the samples of an update.
        """
        if not self._leaves:  # a user's own step, of fewer passes than announced
            self._begin_to_leave()
        missing = self._contributions.complete(share)
        self._name_missing(missing if share else ())
        self._learnt += 1
        if self._learnt % self._fetch_every == 0 and not self._in_turn:
            self._keeper.release(oldest)

    def postpone(self, oldest: int) -> None:
        """Send no contribution: gradients of its backward stay here, for a later one. oldest: as of `step`."""
        self.residuals.held(self._clock)
        self._keeper.release(oldest)

    def leave_out(self) -> None:
        """Send no contribution: gradients that backward makes of it from now on do not leave."""
        self._wait(self._keeper.settle)
        if self._contributions.lazy:
            self._contributions.forget()
        self.residuals.held(self._clock)  # there is nothing to wait for

    def forget(self, oldest: int) -> None:
        """Forget what was left out, of which no more will be computed: parameters may change. oldest: as of `step`."""
        if not self._contributions.lazy:
            self._contributions.forget()
        if self._update is not None:
            self._update.forget()
        self._keeper.release(oldest)

    def settle(self) -> None:
        """Wait until all that was pushed is held."""
        self._wait(self._keeper.settle)

    @contextmanager
    def as_of(self, snapshot: int) -> Iterator[bool]:
        """Let the network have the state that is kept as `snapshot` for a while; False: it is not kept any more."""
        kept = self._wait_for_snapshot(snapshot)
        kept = kept if self._parts is None else self._parts.agree(kept)
        slices = self._keeper.slices
        own = {number: one.pulled.taken_from_network() for number, one in slices.items()} if kept else {}
        self._aside = True
        try:
            for number, values in self._snapshot[1].items() if kept else ():
                slices[number].pulled.install(values)
            if kept and self._parts is not None:  # each step begins so, too
                self._parts.pass_on()
            with nullcontext() if self._centre is None else self._centre.lent():
                yield kept
        finally:
            for number, values in own.items():
                slices[number].pulled.install(values)
            self._aside = False

    @contextmanager
    def newest(self, oldest: int, *, averaged: bool) -> Iterator[list[tuple[Tensor, Tensor]]]:
        """Give the network's tensors and what servers have for them, both (...), as of update `oldest` or a newer one.

        averaged: the averages of those that servers keep one of. Up to the end no other values come to the network.
        """
        with self._recorder.waiting():
            values = self._keeper.pull_snapshot(AVERAGED if averaged else NEWEST, oldest)
        assert values is not None
        found = self._slices.by_tensor(values)
        self._aside = True
        try:
            yield found if self._centre is None else self._centre.in_network(found)
        finally:
            self._aside = False

    @contextmanager
    def newest_lent(self) -> Iterator[None]:
        """Let the network have the newest centre for a while, and then its own again."""
        assert self._centre is not None
        self.settle()
        with self.newest(0, averaged=False) as found, self._centre.lent_as(found):
            yield

    def close(self) -> None:
        """Let go of the network and of the servers."""
        self._contributions.close()
        self._just_in_time.remove()
        self._keeper.close()

    def _begin_to_leave(self) -> None:
        self._leaves = True
        if self._contributions.lazy:
            self.residuals.begin(self._clock)
        if self._asks_ahead:
            self._keeper.ask_ahead()
        for one in self._statistics:
            one.take()
            self._keeper.push(one.chunk)

    def _name_missing(self, missing: Sequence[ParameterSlot]) -> None:
        """Say once of parameters that they got no gradient: servers leave them as they are, unless others have one."""
        if names := [slot.name for slot in missing if slot.name not in self._named and not self._takes]:
            self._named.update(names)
            self._warn(missing_text(names, f"on rank {self._recorder.rank}; counted as zero there"))

    def _wait_for_snapshot(self, snapshot: int) -> bool:
        if self._snapshot[0] == snapshot:
            return True
        self._recorder.enter("exchange")
        if (values := self._keeper.pull_snapshot(snapshot)) is None:
            return False
        self._snapshot = snapshot, values
        return True

    def _is_held(self, clock: int) -> None:
        self.residuals.held(clock)
        self._held(clock, self._waited_s.pop(clock, 0.0))

    def await_all(self) -> None:
        for slot in self._slots:
            self._wait_for(slot.gate)

    def _name(self, chunk: int) -> str:
        chunks = self._contributions.buckets.chunks
        return chunks[chunk].name if chunk < len(chunks) else "buffers"

    def _leave(self, chunk: Chunk) -> None:
        if self._recorder.spans.recording:
            self._recorder.spans.add(self._clock + 1, "ready", chunk.name, self._backward_s, time.perf_counter())
        factors = self._slices.factors.get(chunk.bucket.index)
        if factors is not None:
            factors.take()
        for one in [chunk] if factors is None else chunk.bucket.chunks:
            self._keeper.push(one.index)

    def _wait_for(self, gate: ParameterGate) -> None:
        if self._aside:
            return
        started_s, ended_s = await_parameter(self._keeper, gate, self._recorder)
        self._waited_s[self._clock] = self._waited_s.get(self._clock, 0.0) + ended_s - started_s

    def _wait(self, until: Callable[[], None]) -> None:
        with self._recorder.waiting():
            until()

    def _warn(self, text: str) -> None:
        self._recorder.event("warning", text=text)


def _memory(plan: BucketPlan, transport: Transport) -> Memory:
    """Memory for a bucket, which leaves from there without a copy if that is possible."""
    if (own := representation_in(plan).memory(plan)) is not None:
        return own
    if plan.device.type != "cpu":
        values = torch.zeros(plan.shape.numel, dtype=plan.dtype, device=plan.device)
    else:
        values = torch.frombuffer(transport.memory(plan.shape.numel * plan.dtype.itemsize), dtype=plan.dtype)
    return Memory(values, values)
