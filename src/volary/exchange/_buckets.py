"""Buckets: gradients that travel together enter as backward makes them, and leave the moment the last one exists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from volary.errors import SettingError
from volary.exchange._plan import Cut, Part, Plan, laid_out_as

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter
    from torch.utils.hooks import RemovableHandle

    from volary.comm.routes._base import Memory


class Gate:
    """Before a parameter's use: waits: how much must come before it may be read; 0 lets everybody through."""

    __slots__ = ("name", "waits")

    def __init__(self, name: str) -> None:
        self.name, self.waits = name, 0


class Slot:
    """One parameter's place in a bucket: `view` for what it contributes, `agreed` for what comes back, in its shape.

    chunks: what its values travel in. left: backward passes of this step that have not reached it yet. users: how many
    ranks had a gradient for it, once that is agreed. written: its layer wrote this pass's gradient in place, on top of
    earlier passes'. alone: so it was in the last step, and nothing was added to it. departed: its chunks left while
    backward wrote them.
    """

    __slots__ = (
        "agreed",
        "alone",
        "chunks",
        "departed",
        "gate",
        "left",
        "name",
        "number",
        "parameter",
        "users",
        "view",
        "written",
    )

    def __init__(self, name: str, number: int, parameter: Parameter, view: Tensor, agreed: Tensor) -> None:
        self.name, self.number, self.parameter, self.view, self.agreed = name, number, parameter, view, agreed
        self.chunks: list[Chunk] = []
        self.gate = Gate(name)
        self.left = self.users = 0
        self.written = self.alone = self.departed = False


class Chunk:
    """What travels at once: values `start` to `end` of a bucket. unfilled: parameters whose values are yet to come."""

    __slots__ = ("bucket", "end", "index", "name", "parts", "slots", "start", "unfilled")

    def __init__(self, index: int, bucket: Bucket, cut: Cut) -> None:
        self.index, self.bucket, self.start, self.end, self.parts = index, bucket, cut.start, cut.end, cut.parts
        self.slots = [bucket.slots[part.parameter] for part in cut.parts]
        self.name = _name(self.slots, cut.parts)
        self.unfilled = len(self.slots)
        for slot in self.slots:
            slot.chunks.append(self)
            if len(self.slots) > 1:
                slot.gate.name = self.name  # who waits for one waits for all that travel with it

    @property
    def size_bytes(self) -> int:
        """Bytes of its values."""
        return (self.end - self.start) * self.bucket.contribution.element_size()


class Bucket:
    """A flat tensor of the gradients of some parameters, in the memory that the exchange gave.

    private: what was agreed is copied to where only this rank sees it, since it may be changed in place.
    """

    def __init__(self, index: int, plan: Plan, memory: Memory, private: bool) -> None:
        self.index = index
        self.contribution, self._agreed = memory.contribution, memory.agreed
        self._copied = private and memory.agreed is not memory.contribution
        self.used, views = plan.pieces(memory.contribution)
        self._users, results = plan.pieces(memory.agreed)
        self.slots = [
            Slot(name, number, parameter, laid_out_as(parameter, view), laid_out_as(parameter, result))
            for number, ((name, parameter), view, result) in enumerate(
                zip(plan.parameters, views, results, strict=True)
            )
        ]
        self.begun = False

    def begin(self) -> None:
        """A gradient of this step is about to enter: every parameter counts as used until the step says otherwise."""
        if not self.begun:
            self.begun = True
            self.used.fill_(1)

    def arrived(self) -> None:
        """Its head is agreed: each slot knows its users."""
        for slot, users in zip(self.slots, self._users.real.tolist(), strict=True):
            slot.users = round(users)

    def deliver(self) -> None:
        """Give each parameter the gradient that was agreed; none to one that no rank used, as on one device."""
        if self._copied:
            self.contribution.copy_(self._agreed)
        for slot in self.slots:
            agreed = slot.view if self._copied else slot.agreed
            slot.parameter.grad = agreed if slot.users else None


class Buckets:
    """Takes gradients into buckets as backward makes them, and tells when a chunk is whole.

    in_backward: the step's last backward pass is under way, so what a layer writes in place is its gradient. all: the
    buckets, in the order in which backward reaches them. chunks: what travels, bucket by bucket. frozen: parameters
    that are not trained. chunk_mb: of a large parameter, what travels at once. passes: backward passes a step (gradient
    accumulation). ready: called with each chunk when its gradients exist. weight: the factor of gradients as they
    enter: this rank's share of the batch, if the loss has it not.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        memory: Sequence[Memory],
        frozen: list[tuple[str, Parameter]],
        *,
        chunk_mb: float,
        private: bool,
        passes: int,
        ready: Callable[[Chunk], None],
        weight: Callable[[], float],
    ) -> None:
        self.passes, self._ready, self._weight, self._frozen = passes, ready, weight, frozen
        self.in_backward = False
        self.all, self.chunks = [], list[Chunk]()
        for index, (plan, own) in enumerate(zip(plans, memory, strict=True)):
            bucket = Bucket(index, plan, own, private)
            self.all.append(bucket)
            for cut in plan.cuts(chunk_mb):
                self.chunks.append(Chunk(len(self.chunks), bucket, cut))
        self.slots = [slot for bucket in self.all for slot in bucket.slots]
        self._hooks = [_when_accumulated(slot.parameter, self._arrival_at(slot)) for slot in self.slots]
        self._open()

    def close(self) -> list[Slot]:
        """Expect no more gradients in this step: what is still here leaves. Returns the slots that got none.

        They count as zero. Raises SettingError for a parameter that was frozen when the buckets were made and is not
        any more.
        """
        for name, parameter in self._frozen:
            if parameter.requires_grad:
                raise SettingError(f"{name} was frozen when training began; accepted: trainable then, frozen later")
        missing = []
        for slot in self.slots:
            if slot.left == self.passes and slot.parameter.grad is not None:
                self._take(slot)
            elif slot.left == self.passes:
                bucket = slot.chunks[0].bucket
                bucket.begin()
                bucket.used[slot.number] = 0
                slot.view.zero_()
                missing.append(slot)
            if slot.left:
                self._filled(slot)
        self._open()
        self.in_backward = False
        return missing

    def deliver(self) -> None:
        """Give every parameter what was agreed."""
        for bucket in self.all:
            bucket.deliver()

    def remove(self) -> None:
        """Let go of the parameters: their gradients no longer enter these buckets."""
        for hook in self._hooks:
            hook.remove()

    def part_written(self, chunk: Chunk) -> None:
        """One parameter's values in `chunk` are final, written where they travel from."""
        chunk.bucket.begin()
        chunk.unfilled -= 1
        if not chunk.unfilled:
            self._ready(chunk)

    def _open(self) -> None:
        for bucket in self.all:
            bucket.begun = False
        for chunk in self.chunks:
            chunk.unfilled = len(chunk.slots)
        for slot in self.slots:
            slot.left = self.passes

    def _arrival_at(self, slot: Slot) -> Callable[[Tensor], None]:
        def arrived(_: Tensor) -> None:
            if slot.left == 0:
                raise SettingError(
                    f"{slot.name} got more than {self.passes} gradients in a step (is its layer used twice under "
                    "reentrant checkpointing?); accepted: torch.utils.checkpoint with use_reentrant=False"
                )
            self._take(slot)
            slot.left -= 1
            if slot.left == 0:
                self._filled(slot)

        return arrived

    def _filled(self, slot: Slot) -> None:
        if slot.departed:
            slot.departed = False
            return
        for chunk in slot.chunks:
            self.part_written(chunk)

    def _take(self, slot: Slot) -> None:
        """Move the parameter's gradient into its slot: the first of a step replaces what is there, others add."""
        assert slot.parameter.grad is not None
        gradient, slot.parameter.grad = slot.parameter.grad.detach(), None
        written, slot.written = slot.written, False
        in_place = written and gradient.data_ptr() == slot.view.data_ptr()
        if self.in_backward:
            slot.alone = in_place
        if in_place:
            return
        if slot.departed:
            raise SettingError(
                f"{slot.name} was used outside its layer for the first time in this step; accepted: such a use "
                "from the first step on, or a parameter of its own"
            )
        if gradient.is_sparse:
            gradient = gradient.to_dense()
        weight = self._weight()
        if slot.left < self.passes and not written:
            slot.view.add_(gradient, alpha=weight)
        elif weight == 1.0:
            slot.view.copy_(gradient)
        else:
            torch.mul(gradient, weight, out=slot.view)


def _when_accumulated(parameter: Parameter, call: Callable[[Tensor], None]) -> RemovableHandle:
    handle: RemovableHandle = parameter.register_post_accumulate_grad_hook(call)  # type: ignore[no-untyped-call]
    return handle


def _name(slots: Sequence[Slot], parts: Sequence[Part]) -> str:
    if len(slots) > 1:
        return f"{slots[-1].name} .. {slots[0].name}"  # in the network's order
    rows = slots[0].parameter.shape[0] if slots[0].parameter.dim() else 1
    each = max(1, slots[0].parameter.numel() // rows)
    whole = parts[0].end - parts[0].start == slots[0].parameter.numel()
    return slots[0].name if whole else f"{slots[0].name}[{parts[0].start // each}:{parts[0].end // each}]"
