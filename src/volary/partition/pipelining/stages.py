"""A worker's stages of a pipeline: a batch passes them in micro-batches, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from volary.comm.groups.layer_group import NARROW, WIDE
from volary.partition.pipelining.schedules import StagePass, StageSchedule, timetable

if TYPE_CHECKING:
    from volary.comm.groups.tensor_messages import TensorMessages
    from volary.partition._base import Passes

Handed = Literal["values", "gradients", "evaluated", "shared"]
_TAGS: Mapping[Handed, int] = {"values": 0, "gradients": 1, "evaluated": 2, "shared": 3}


@dataclass
class Stage:
    """Links that run one after another. first: the number of the first of them among all links of the network."""

    links: Sequence[nn.Module]
    first: int


class Stages:
    """This worker's stages, by number, of `total`; stage s is on worker s modulo the workers.

    messages: among the workers that hold the same replica. micro_batches: of a batch; one of fewer samples is cut into
    these. narrow: the type of 16 bits, one of `NARROW`, in which what is handed over travels; empty: as it is.
    """

    def __init__(
        self,
        own: Mapping[int, Stage],
        total: int,
        schedule: StageSchedule,
        micro_batches: int,
        messages: TensorMessages,
        narrow: str = "",
    ) -> None:
        self.own, self.schedule = own, schedule
        self._total, self._micro_batches, self._messages, self._narrow = total, micro_batches, messages, narrow
        self._rank, self._workers = messages.rank, messages.size
        self._here: dict[tuple[Handed, int], list[Tensor]] = {}  # from one stage of this worker to another

    def learn(self, passes: Passes) -> bool:
        """See `volary.partition._base.Part`: gradients reach the parameters once all micro-batches have passed."""
        parts = passes.cut(self._micro_batches)
        table = timetable(self.schedule, self._workers, len(parts))
        with _draws_apart() as seed:
            batch = _Batch(self, parts, seed)
            for action in table.actions[self._rank]:
                batch.do(action)
        with passes.waiting():
            loss = self._for_all(None if batch.loss is None else batch.loss / passes.share)
        wanted = passes.computed(loss)
        if wanted:
            passes.add_gradients(batch.gradients)
        return wanted

    def evaluate(self, inputs: Tensor) -> Tensor:
        """Return the network's outputs for `inputs` (samples, ...), on all workers, all of which make this call."""
        output = None
        for number, stage in sorted(self.own.items()):
            x = inputs if number == 0 else self.take("evaluated", number, number - 1)
            for link in stage.links:
                x = link(x)
            if self.is_last(number):
                output = x
            else:
                self.hand(x, "evaluated", number + 1)
        return self._for_all(output)

    def is_last(self, number: int) -> bool:
        """Whether what a stage gives is the network's output."""
        return number == self._total - 1

    def hand(self, values: Tensor, what: Handed, stage: int) -> None:
        """Give `values`, of any shape, to the worker of `stage`; returns at once."""
        if stage % self._workers == self._rank:
            self._here.setdefault((what, stage), []).append(values.detach())
        elif self._narrow and values.dtype in WIDE:
            about = 1 + WIDE.index(values.dtype)
            self._messages.send(values.to(NARROW[self._narrow]), stage % self._workers, _tag(what, stage), about)
        else:
            self._messages.send(values, stage % self._workers, _tag(what, stage))

    def take(self, what: Handed, stage: int, source: int) -> Tensor:
        """Wait for what stage `source` gives `stage`, of any shape."""
        if source % self._workers == self._rank:
            return self._here[what, stage].pop(0)
        values, about = self._messages.receive(source % self._workers, _tag(what, stage))
        return values.to(WIDE[about - 1]) if about else values

    def _for_all(self, values: Tensor | None) -> Tensor:
        """On all workers what the one with the last stage has."""
        if values is None:
            return self._messages.receive((self._total - 1) % self._workers, _tag("shared", 0))[0]
        for other in range(self._workers):
            if other != self._rank:
                self._messages.send(values, other, _tag("shared", 0))
        return values


def _tag(what: Handed, stage: int) -> int:
    return len(_TAGS) * stage + _TAGS[what]


@contextmanager
def _draws_apart() -> Iterator[int]:
    """Draw a number, the same on all workers that hold one replica; what is drawn meanwhile leaves no trace."""
    seed = int(torch.randint(2**31, ()))
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        yield seed


@dataclass
class _Segment:
    """The tensors of a micro-batch in links that are passed backward at once. gradient: of y, once it is known."""

    x: Tensor
    y: Tensor
    trained: Sequence[nn.Parameter]
    gradient: Tensor | None = None


@dataclass
class _Batch:
    """A batch on its way. loss: the shares of the micro-batches that have passed the last stage, if it is here.

    gradients: the sums of those that have passed a stage backward.
    """

    stages: Stages
    parts: Sequence[Passes]
    seed: int
    loss: Tensor | None = None
    gradients: dict[nn.Parameter, Tensor] = field(default_factory=dict)
    _passed: dict[tuple[int, int], list[_Segment]] = field(default_factory=dict)
    _summed: set[nn.Parameter] = field(default_factory=set)  # whose gradient is a sum, which nobody else has

    def do(self, action: StagePass) -> None:
        """Carry out what the schedule says is next."""
        if action.work != "forward":
            self.parts[action.micro_batch].turn_back()
        match action.work:
            case "forward":
                self._forward(action.stage, action.micro_batch)
            case "weights":
                for segment in self._passed.pop((action.stage, action.micro_batch)):
                    self._add(segment, [])
            case "backward":
                for segment in reversed(self._passed.pop((action.stage, action.micro_batch))):
                    segment.gradient = self._output_gradient(segment, action)
                    self._hand_back(self._add(segment, [segment.x] if action.stage else []), action)
            case "inputs":
                self._to_inputs(self._passed[action.stage, action.micro_batch], action)

    def _forward(self, number: int, micro_batch: int) -> None:
        stage, stages, part = self.stages.own[number], self.stages, self.parts[micro_batch]
        x = part.inputs if number == 0 else self._taken("values", number, number - 1).requires_grad_()
        segments = self._passed[number, micro_batch] = list[_Segment]()
        whole = [range(len(stage.links))]
        for places in [range(at, at + 1) for at in whole[0]] if stages.schedule.split else whole:
            y = x
            for at in places:
                # drawn for each link, so it is the same wherever stages begin
                torch.manual_seed(self.seed * 2**24 + (stage.first + at) * 2**12 + micro_batch)
                y = part.through(stage.links[at], y)
            every = (one for at in places for one in stage.links[at].parameters() if one.requires_grad)
            trained = list(dict.fromkeys(every))  # each once, however many links read it
            segments.append(_Segment(x, y, trained))
            x = y.detach().requires_grad_(y.is_floating_point())
        if not stages.is_last(number):
            stages.hand(x, "values", number + 1)
            return
        loss, segments[-1].gradient = part.loss_of(x)
        self.loss = loss * part.share if self.loss is None else self.loss + loss * part.share

    def _to_inputs(self, segments: Sequence[_Segment], action: StagePass) -> None:
        """Find the gradients of all inputs; those of parameters come later, from what is kept."""
        gradient = self._output_gradient(segments[-1], action)
        for at in reversed(range(len(segments))):
            segment = segments[at]
            segment.gradient = gradient
            if segment.x.requires_grad:
                keeps = bool(segment.trained)
                (gradient,) = torch.autograd.grad(segment.y, [segment.x], gradient, retain_graph=keeps)
        self._hand_back([gradient] if action.stage else [], action)

    def _output_gradient(self, segment: _Segment, action: StagePass) -> Tensor:
        if segment.gradient is not None:
            return segment.gradient
        return self._taken("gradients", action.stage, action.stage + 1)

    def _taken(self, what: Handed, stage: int, source: int) -> Tensor:
        with self.parts[0].waiting():
            return self.stages.take(what, stage, source)

    def _hand_back(self, gradients: Sequence[Tensor], action: StagePass) -> None:
        for gradient in gradients:
            self.stages.hand(gradient, "gradients", action.stage - 1)

    def _add(self, segment: _Segment, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Add the gradients of what the segment trains to the sums; return those of `inputs`."""
        if not segment.y.requires_grad or not (inputs or segment.trained):
            return []
        found = torch.autograd.grad(segment.y, [*inputs, *segment.trained], segment.gradient, allow_unused=True)
        for parameter, gradient in zip(segment.trained, found[len(inputs) :], strict=True):
            if gradient is not None:
                self._sum(parameter, gradient)
        return [torch.zeros_like(one) if of is None else of for one, of in zip(inputs, found, strict=False)]

    def _sum(self, parameter: nn.Parameter, gradient: Tensor) -> None:
        known = self.gradients.get(parameter)
        if known is None:
            self.gradients[parameter] = gradient  # may be a view of what is not ours to change
        elif parameter in self._summed:
            known.add_(gradient)
        else:
            self.gradients[parameter] = known + gradient
            self._summed.add(parameter)
