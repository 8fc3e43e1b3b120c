"""A bucket: gradients that travel together, each parameter's place in it, and what is updated at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from volary.exchange.gradients.factor_sums import FactorMemory
from volary.exchange.gradients.plan import (
    BucketPlan,
    ChunkPlan,
    laid_out_as,
    row_values,
    values_in,
)

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

    from volary.comm.sums.route import Memory
    from volary.sharding.ranges import Range


class ParameterGate:
    """A gate before a parameter's use. waits: how much must arrive before it may be read; 0: it is open."""

    __slots__ = ("name", "waits")

    def __init__(self, name: str) -> None:
        self.name, self.waits = name, 0


class ParameterSlot:
    """One parameter's place in a bucket: `view` for what it contributes, `agreed` for what comes back, in its shape.

    start, end: the places of its values in the bucket. chunks: what its values travel in. left: backward passes of this
    step that have not reached it yet. users: how many ranks had a gradient for it, once that is agreed. written: its
    layer wrote this pass's gradient in place, on top of earlier passes'. alone: so it was in the last step, and nothing
    was added to it. departed: its chunks left while backward wrote them.
    """

    __slots__ = (
        "agreed",
        "alone",
        "chunks",
        "departed",
        "end",
        "gate",
        "left",
        "name",
        "number",
        "parameter",
        "start",
        "users",
        "view",
        "written",
    )

    def __init__(self, name: str, number: int, parameter: Parameter, view: Tensor, agreed: Tensor, start: int) -> None:
        self.name, self.number, self.parameter, self.view, self.agreed = name, number, parameter, view, agreed
        self.start, self.end = start, start + view.numel()
        self.chunks: list[Chunk] = []
        self.gate = ParameterGate(name)
        self.left = self.users = 0
        self.written = self.alone = self.departed = False


class Chunk:
    """The values `start` to `end` of a bucket, which are updated at once.

    parcel: the number of the parcel that they travel in; if they are formed of factors, it holds the bucket's other
    chunks too. gradients: by part, where its agreed gradient is to be read, flat. unfilled: parameters whose values
    have yet to arrive.
    """

    __slots__ = ("bucket", "end", "gradients", "index", "name", "parcel", "parts", "slots", "start", "unfilled")

    def __init__(self, index: int, parcel: int, bucket: Bucket, cut: ChunkPlan) -> None:
        self.index, self.parcel, self.bucket = index, parcel, bucket
        self.start, self.end, self.parts = cut.start, cut.end, cut.parts
        slots = {slot.name: slot for slot in bucket.slots}
        self.slots = [slots[part.name] for part in cut.parts]
        self.gradients = [values_in(part, slot.agreed) for slot, part in zip(self.slots, self.parts, strict=True)]
        self.name = _name(self.slots, cut.parts)
        self.unfilled = len(self.slots)
        bucket.chunks.append(self)
        for slot in self.slots:
            slot.chunks.append(self)
            if len(self.slots) > 1:
                slot.gate.name = self.name  # who waits for one waits for all that travel with it

    @property
    def size_bytes(self) -> int:
        """The bytes of its values."""
        return (self.end - self.start) * self.bucket.contribution.element_size()

    @property
    def wire_bytes(self) -> int:
        """Bytes that its values take while they travel, and those of the chunks with it."""
        payload = self.bucket.payload
        if payload is not None:
            return payload.rows.numel() * payload.rows.element_size()
        return self.bucket.representation.wire_bytes(self.end - self.start, self.bucket.contribution.element_size())

    @property
    def load(self) -> int:
        """The load of its parcel on a link, in the same unit for all: sums pass a link twice, factors once."""
        return self.wire_bytes if self.bucket.payload is not None else 2 * self.wire_bytes

    def form(self) -> None:
        """Make its gradients, where it was factors that came."""
        payload = self.bucket.payload
        if payload is None:
            return
        for slot, part, into in zip(self.slots, self.parts, self.gradients, strict=True):
            if slot.parameter.dim() == 1:
                payload.form_bias(part.start, part.end, into)
            else:
                row = row_values(slot.parameter)
                payload.form(part.start // row, part.end // row, into.view(-1, row))

    def form_in(self, scratch: Tensor) -> None:
        """Form gradients in `scratch` from now on, (numel,), which holds them until another chunk is formed there."""
        at = 0
        for number, part in enumerate(self.parts):
            self.gradients[number] = scratch[at : at + part.size]
            at += part.size


class Bucket:
    """A flat tensor of the gradients of some parameters, in the memory that the exchange gave.

    representation: of what travels. private: what was agreed is copied to where only this rank sees it, since it may be
    changed in place. payload: the factors that travel instead of its values, if they do.
    """

    def __init__(self, index: int, plan: BucketPlan, memory: Memory, private: bool) -> None:
        self.index, self.representation = index, plan.representation
        self.contribution, self.agreed = memory.contribution, memory.agreed
        self._copied = private and memory.agreed is not memory.contribution
        self.payload = memory.payload if isinstance(memory, FactorMemory) else None
        self.used, views = plan.pieces(memory.contribution)
        self._users, results = plan.pieces(memory.agreed)
        if memory.head is not None:
            self._users = memory.head[: len(plan.parameters)]
        starts = accumulate((view.numel() for view in views[:-1]), initial=plan.head)
        self.slots = [
            ParameterSlot(name, number, parameter, laid_out_as(parameter, view), laid_out_as(parameter, result), start)
            for number, ((name, parameter), view, result, start) in enumerate(
                zip(plan.parameters, views, results, starts, strict=True)
            )
        ]
        self.chunks: list[Chunk] = []
        self._found: list[float] = []  # each slot's users in the newest step
        self.begun = False

    def begin(self) -> None:
        """A gradient of this step is about to enter: every parameter counts as used until the step says otherwise."""
        if not self.begun:
            self.begun = True
            self.used.fill_(1)

    def arrived(self) -> None:
        """Note that its head is agreed: each slot knows its users."""
        found = self._users.real.tolist()
        if found != self._found:
            self._found = found
            for slot, users in zip(self.slots, found, strict=True):
                slot.users = round(users)

    def deliver(self) -> None:
        """Give each parameter the gradient that was agreed; none to one that no rank used, as on one device."""
        if self._copied:
            self.contribution.copy_(self.agreed)
        for slot in self.slots:
            agreed = slot.view if self._copied else slot.agreed
            slot.parameter.grad = agreed if slot.users else None


def _name(slots: Sequence[ParameterSlot], parts: Sequence[Range]) -> str:
    if len(slots) > 1:
        return f"{slots[-1].name} .. {slots[0].name}"  # in the network's order
    rows = slots[0].parameter.shape[0] if slots[0].parameter.dim() else 1
    each = max(1, slots[0].parameter.numel() // rows)
    whole = parts[0].size == slots[0].parameter.numel()
    return slots[0].name if whole else f"{slots[0].name}[{parts[0].start // each}:{parts[0].end // each}]"
