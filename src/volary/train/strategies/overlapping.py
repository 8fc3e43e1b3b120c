"""Communication under backward and the next forward: sums are applied as they arrive, layers wait for their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch

from volary.comm.groups.blocking import gather, take_all_from_first
from volary.comm.groups.leading import from_leader
from volary.exchange.gathering.uses import ParameterUses
from volary.exchange.gradients.bucket import ParameterGate
from volary.exchange.gradients.just_in_time import JustInTime, compiled_code_reads_past
from volary.exchange.gradients.plan import values_in
from volary.exchange.overlap.order import as_backward_ends
from volary.naming import named_parameters
from volary.server.update_rule import SliceUpdate
from volary.train.agreement.first_state import DeferredTensors, messages
from volary.train.agreement.votes import Agreed, Vote
from volary.train.replica import await_parameter
from volary.train.strategies.exchanging import Exchanging
from volary.train.strategies.profile import PROFILED_STEPS, WARM_STEPS, Profile

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.comm.groups.group import Group
    from volary.exchange.gradients.bucket import Chunk
    from volary.exchange.gradients.contributions import PushedGradients
    from volary.exchange.overlap.comm_thread import ParcelTimes
    from volary.train.recording.recorder import Recorder
    from volary.train.strategies.contribution import ContributionBuffers
    from volary.train.update.by_slices import UpdateBySlices

TINY = 1e-6  # as in torch.nn.utils.clip_grad_norm_


@dataclass(frozen=True)
class _Step:
    """The fate of a step's sums. busy: how many ranks had samples. left_out: nothing changes. scale: a factor."""

    busy: int = 0
    left_out: bool = False
    scale: float = 1.0


class Overlapping(Exchanging):
    """See `volary.train.replica.Voting`.

    The votes leave before the last backward pass and so are there before any sum: nothing is applied of a step that
    may not be. Rank 0 chooses the order in which chunks travel: after its third step, and once more after its seventh.
    """

    contribution: ContributionBuffers[PushedGradients]

    def __init__(
        self,
        contribution: ContributionBuffers[PushedGradients],
        module: nn.Module,
        recorder: Recorder,
        group: Group,
        update: UpdateBySlices,
    ) -> None:
        super().__init__(contribution, recorder)
        self._update = update
        self._group = group
        self._step = self._steps = 0  # the step whose gradients are under way, and how many there were in this attempt
        self._began = False  # whether all is there that rank 0 sends at the start
        self._began_s = 0.0
        self._busy = self._parcels_here = 0  # of this step
        self._watching = False  # this step, for the order of the next ones
        self._now = self._next = _Step()  # whose sums are applied, and of which backward is over
        chunks, slots = contribution.buckets.chunks, contribution.buckets.slots
        contribution.pushed.buckets.form_one_by_one()
        self._kept = [list(contribution.kept(chunk)) for chunk in chunks]
        slices = [{part: values_in(part, slot.parameter) for slot, part, _ in kept} for kept in self._kept]
        self._rule, self._values = update.divide(slices), [list(one.values()) for one in slices]
        self._profile = Profile(chunks, contribution.slots, contribution.links_per_s)
        self._gathered = contribution.keeper.gathered
        gathered = self._gathered.gates if self._gathered else {}
        here = [(name, one) for name, one in named_parameters(module) if id(one) not in gathered]
        alike = {id(parameter) for parameter in contribution.alike}
        self._parameters = [parameter for _, parameter in here if id(parameter) in alike]
        self._gates = {id(parameter): ParameterGate(name) for name, parameter in here}
        self._uses: ParameterUses | None = None
        self._waiting: JustInTime | ParameterUses
        if self._gathered is None:
            self._gates |= {id(slot.parameter): slot.gate for slot in slots}
            self._waiting = JustInTime(module, self._gates, self._wait_for)
        else:
            self._waiting = self._uses = ParameterUses(module, self._gathered, self._wait_for, self._gates)

    def start(self, late: DeferredTensors) -> None:
        """Start the exchange: what rank 0 has comes first, layer by layer, under the first forward."""
        send, buckets = self.contribution.keeper.broadcast, self.contribution.buckets
        if self._gathered is not None:
            self._gathered.begin(send if late.new and not late.shares else None)
        elif late.shares:  # into memory that all share
            self._parameters = [parameter for parameter in self._parameters if not parameter.requires_grad]
            self._group.bulletin.share("each has read what it keeps", 1)
        first = [partial(self._receive, together) for together in messages(self._parameters if late.new else [])]
        if not self._group.leads and late.new:
            for parameter in self._parameters:
                self._gates[id(parameter)].waits = 1
        self.contribution.start(
            first=[
                *first,
                *(partial(take_all_from_first, together, self._group, send) for together in messages(late.tensors)),
                late.on_arrival,
                self._here,
            ],
            votes_first=True,
            voted=self._take_votes,
            apply=self._apply_chunk,
            travelled=self._travelled,
            applied=self._applied,
        )
        if self.contribution.frees:
            self._reorder("freed as they leave", lambda: as_backward_ends(buckets.chunks, self.contribution.slots))
        if compiled_code_reads_past():
            self.await_all()

    def vote(self, vote: Vote) -> None:
        """Send the votes; the step before must be settled, as its buckets are filled anew."""
        self._settle_step()
        if self._watching and self._profile.ended(self._began_s, time.perf_counter()) in (1, PROFILED_STEPS):
            self._reorder(f"after {self._steps} steps", self._profile.order)
        self._steps += 1
        # in another order than backward's, gradients would wait in memory that is to be returned
        in_any_order = not (self.contribution.keeper.behind or self.contribution.frees)
        self._watching = in_any_order and 0 < self._steps - WARM_STEPS <= PROFILED_STEPS
        self._parcels_here = 0
        self._step = self._recorder.step + 1
        self._update.prepare(self._recorder.step)
        self.contribution.vote(vote)
        self.contribution.pushed.in_backward(last=True)
        self._began_s = time.perf_counter()

    def agree(self) -> Agreed:
        self.contribution.pushed.complete()
        if self._agreed is None:
            self._recorder.enter("exchange")
        agreed = self._take_agreed()
        self._busy = agreed.busy
        return agreed

    def drop(self, cleared: Container[int]) -> None:
        self.contribution.pushed.buckets.drop(cleared)

    def apply(self, scale: float = 1.0) -> None:
        """Let parameters change as their sums arrive, from now on."""
        most = self._update.most_norm
        if most is not None:
            norm = float(self.gradient_norm(2.0)) * scale
            scale *= min(1.0, most / (norm + TINY))
        self._end_backward(_Step(self._busy, scale=scale))
        if compiled_code_reads_past():
            self.await_all()

    def gradient_norm(self, kind: float) -> Tensor:
        """The norm of the sums of all chunks, a scalar, once they are here."""
        contribution = self.contribution
        self._wait(lambda: contribution.keeper.wait_for(lambda: self._parcels_here == contribution.buckets.parcels))
        norms = []
        for chunk in contribution.buckets.chunks:
            chunk.form()
            norms += [
                torch.linalg.vector_norm(gradient, kind) for slot, _, gradient in self._kept[chunk.index] if slot.users
            ]
        own = torch.linalg.vector_norm(torch.stack(norms), kind) if norms else torch.tensor(0.0)
        if contribution.owners:
            own = torch.linalg.vector_norm(gather(own.cpu(), self._group)[: contribution.owners], kind)
        return own

    def leave_out(self) -> None:
        """The sums still travel, as on all ranks, and change nothing."""
        self._end_backward(_Step(self._busy, left_out=True))

    def await_all(self) -> None:
        """Wait until all has come that rank 0 sends at the start, and what was agreed; a step behind a step before."""
        self._wait(lambda: self.contribution.keeper.wait_for(lambda: self._began))
        self._settle_step()

    def settle(self) -> None:
        """Wait until all has come that rank 0 sends at the start, and all sums are applied."""
        keeper = self.contribution.keeper
        self.await_all()
        if keeper.behind:
            self._now = self._next
            self._wait(keeper.drain)

    def gathers_anew(self) -> bool:
        if self._gathered is None or self._uses is None:
            return False
        self._uses.forget()
        self._gathered.forget()
        return True

    def close(self) -> None:
        """End the exchange and let go of the network."""
        super().close()
        self._waiting.remove()

    def _end_backward(self, step: _Step) -> None:
        self._now = self._next if self.contribution.keeper.behind else step
        self._next = step
        if self._uses is not None:
            self._uses.forget()
        self._release()

    def _wait(self, until: Callable[[], None]) -> None:
        with self._recorder.waiting():
            until()

    def _settle_step(self) -> None:
        """Wait until the sums of the step before are applied."""
        self._wait(self.contribution.keeper.settle)
        if self._steps and not self._now.left_out:
            self.contribution.name_missing(self._now.busy)

    def _receive(self, together: Sequence[Tensor]) -> None:
        """Take parameters from rank 0, on the keeper's thread, and let those pass who wait for them."""
        started_s = time.perf_counter()
        take_all_from_first(together, self._group, self.contribution.keeper.broadcast)
        gates = [self._gates[id(parameter)] for parameter in together]

        def arrived() -> None:
            for gate in gates:
                gate.waits = 0

        self.contribution.keeper.notify(arrived)
        if self._recorder.spans.recording:
            size_bytes = sum(parameter.numel() * parameter.element_size() for parameter in together)
            name, step = gates[0].name, self._recorder.step + 1
            self._recorder.spans.add(step, "broadcast", name, started_s, time.perf_counter(), size_bytes)

    def _here(self) -> None:
        def begin() -> None:
            self._began = True

        self.contribution.keeper.notify(begin)

    def _reorder(self, why: str, find: Callable[[], list[int]]) -> None:
        """Take the order that rank 0 finds."""
        topic = f"order {why}"
        order = from_leader(self._group.bulletin, topic, find)
        self.contribution.compare(self._group.bulletin, f"plan in {topic}", order)
        self.contribution.keeper.reorder(order)

    def _wait_for(self, gate: ParameterGate) -> None:
        started_s, ended_s = await_parameter(self.contribution.keeper, gate, self._recorder)
        if self._watching and self._gathered is None:
            self._profile.waited(gate, started_s, ended_s)

    def _apply_chunk(self, chunk: Chunk) -> None:
        self.contribution.keeper.left_out(chunk, all_of_it=self._now.left_out)
        if not self._now.left_out:
            sums = [gradient if slot.users else None for slot, _, gradient in self._kept[chunk.index]]
            if not sums:
                return
            self._rule.apply(chunk.index, self._values[chunk.index], SliceUpdate(sums, scale=self._now.scale))

    def _travelled(self, chunk: Chunk, travelled: ParcelTimes) -> None:
        self._moved(chunk, travelled, self._step)
        self._parcels_here += 1
        if self._parcels_here == self.contribution.buckets.parcels:
            self.contribution.keeper.notify(_nothing)  # who waits for all of them is to look
        if self._watching:
            self._profile.travelled(chunk, travelled)
        if self._recorder.spans.recording:
            self._recorder.spans.add(self._step, "ready", chunk.name, self._began_s, travelled.ready_s)

    def _applied(self, chunk: Chunk, started_s: float, ended_s: float) -> None:
        if self._watching:
            self._profile.updated(chunk, started_s, ended_s)
        if self._recorder.spans.recording:
            self._recorder.spans.add(self._step, "update", chunk.name, started_s, ended_s, chunk.size_bytes)


def _nothing() -> None:
    """Do nothing: what was waited for has been counted."""
