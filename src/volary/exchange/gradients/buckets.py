"""Buckets: what travels together. Gradients enter as backward makes them, and leave the moment the last one exists."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from volary.errors import SettingError
from volary.exchange.gradients.accumulation_hooks import when_accumulated
from volary.exchange.gradients.bucket import Bucket, Chunk, ParameterSlot
from volary.exchange.gradients.plan import BucketPlan
from volary.naming import named_parameters

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.nn import Parameter

    from volary.comm.sums.route import Memory
    from volary.exchange.gradients.factor_payload import Payload

SMALL_BYTES = 2**14  # of a gradient for which a call of its own takes longer than to copy it
MOST_TOGETHER = 64  # small gradients that wait for each other at most: they are still in the core's cache


class Buckets:
    """Parameters' places in the memory of what travels.

    all: the buckets, in the order in which backward reaches them. chunks: what is updated at once, bucket by bucket.
    parcels: how many travel. chunk_mb: of a large parameter, what travels at once.
    """

    def __init__(
        self, plans: Sequence[BucketPlan], memory: Sequence[Memory], *, chunk_mb: float, private: bool
    ) -> None:
        self.all, self.chunks = list[Bucket](), list[Chunk]()
        parcels = 0
        for index, (plan, own) in enumerate(zip(plans, memory, strict=True)):
            bucket = Bucket(index, plan, own, private)
            self.all.append(bucket)
            for number, cut in enumerate(plan.cuts(chunk_mb)):
                parcels += number == 0 or bucket.payload is None
                self.chunks.append(Chunk(len(self.chunks), parcels - 1, bucket, cut))
        self.parcels = parcels
        self.slots = [slot for bucket in self.all for slot in bucket.slots]

    def fill(self, write: Callable[[ParameterSlot], None]) -> None:
        """Let `write` put into each slot what is contributed of its parameter."""
        for bucket in self.all:
            bucket.begun = False
            bucket.begin()
        for slot in self.slots:
            write(slot)


def frozen_parameters(module: nn.Module) -> list[tuple[str, Parameter]]:
    """The parameters that are not trained now, by name."""
    return [(name, parameter) for name, parameter in named_parameters(module) if not parameter.requires_grad]


class Gradients(Buckets):
    """Takes gradients into buckets as backward makes them, and tells when a chunk is whole.

    in_backward: the step's last backward pass is under way, so what a layer writes in place is its gradient. frozen:
    parameters that are not trained. passes: backward passes a step (gradient accumulation). ready: called with the
    first chunk of each parcel when its gradients exist, or the factors that they are formed of. weight: the factor of
    gradients that travel, as they enter: this rank's share of the batch, if the loss has it not.
    """

    def __init__(
        self,
        plans: Sequence[BucketPlan],
        memory: Sequence[Memory],
        frozen: list[tuple[str, Parameter]],
        *,
        chunk_mb: float,
        passes: int,
        ready: Callable[[Chunk], None],
        weight: Callable[[], float] = lambda: 1.0,
        private: bool = False,
    ) -> None:
        super().__init__(plans, memory, chunk_mb=chunk_mb, private=private)
        self.passes, self.ready, self.weight, self._frozen = passes, ready, weight, frozen
        self.in_backward = False
        self._together: list[tuple[ParameterSlot, Tensor]] = []  # small gradients of a last pass
        self._hooks = [
            when_accumulated(
                slot.parameter, self._arrival_at(slot) if bucket.payload is None else _beside(slot, bucket.payload)
            )
            for bucket in self.all
            for slot in bucket.slots
        ]
        self._taken_alone = False  # what `take` has taken, and no other gradient
        self._open()

    def close(self) -> list[ParameterSlot]:
        """Expect no more gradients in this step: what is still here leaves. Returns the slots that got none.

        They count as zero. Raises SettingError for a parameter that was frozen when the buckets were made and is not
        any more.
        """
        for name, parameter in self._frozen:
            if parameter.requires_grad:
                raise SettingError(f"{name} was frozen when training began; accepted: trainable then, frozen later")
        self._take_together()
        missing = []
        for bucket in self.all:
            if bucket.payload is not None:
                missing += self._close_factors(bucket, bucket.payload)
        for slot in [slot for slot in self.slots if slot.left and slot.chunks[0].bucket.payload is None]:
            if slot.left == self.passes and slot.parameter.grad is not None and not self._taken_alone:
                self._take(slot)
            elif slot.left == self.passes:
                bucket = slot.chunks[0].bucket
                bucket.begin()
                bucket.used[slot.number] = 0
                slot.view.zero_()
                missing.append(slot)
            self._filled(slot)
        self._open()
        self.in_backward = False
        return missing

    def forget(self) -> None:
        """Let go of all that has come of this step. Gradients that parameters have were agreed on before: they stay."""
        self._together.clear()
        for bucket in self.all:
            if bucket.payload is not None:
                bucket.payload.forget()
        self._open()
        self.in_backward = False

    def drop(self, cleared: Container[int]) -> None:
        """Let go of what earlier passes of this step left of parameters with these ids. Raises SettingError."""
        self._take_together()
        for bucket in self.all:
            own = [slot for slot in bucket.slots if id(slot.parameter) in cleared]
            if own and bucket.payload is not None:
                if len(own) < len(bucket.slots):
                    raise SettingError(
                        f"{own[0].name}: its gradient was cleared between two backward passes of a step, and the rest "
                        "of its layer's was not; accepted: all of the layer's, or another codec than factors for it"
                    )
                bucket.payload.drop()
            for slot in own:
                slot.left = self.passes

    def wait(self) -> None:
        """Let gradients stay with their parameters, none of which is part of factors, until `take` takes them."""
        self.remove()
        self._taken_alone = True
        self.passes += 1  # more than there are: what was taken leaves with `close`
        self._open()

    def take(self, ids: Container[int]) -> None:
        """Take the gradients of parameters with these ids, which `wait`."""
        for slot in self.slots:
            if id(slot.parameter) in ids and slot.left == self.passes and slot.parameter.grad is not None:
                self._take(slot)
                slot.left -= 1

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
        chunk.unfilled -= 1
        if not chunk.unfilled:
            self._whole(chunk)

    def form_one_by_one(self) -> None:
        """A reader of what is formed of factors reads each chunk before the next: they share memory in the cache."""
        formed = [chunk for chunk in self.chunks if chunk.bucket.payload is not None]
        largest = max((chunk.size_bytes for chunk in formed), default=0)
        devices = {chunk.bucket.contribution.device for chunk in formed}
        scratch = {device: torch.empty(largest, dtype=torch.uint8, device=device) for device in devices}
        for chunk in formed:
            values = chunk.bucket.contribution
            chunk.form_in(scratch[values.device][: chunk.size_bytes].view(values.dtype))

    def passed(self, bucket: Bucket) -> None:
        """A backward pass is through with the layer whose factors travel for `bucket`. Raises SettingError."""
        assert bucket.payload is not None
        self._expect(bucket.slots[0])
        bucket.payload.passed()
        for slot in bucket.slots:
            slot.left -= 1
        if not bucket.slots[0].left:
            bucket.payload.seal()
            self.ready(bucket.chunks[0])

    def _close_factors(self, bucket: Bucket, payload: Payload) -> list[ParameterSlot]:
        for slot in bucket.slots:
            if slot.parameter.grad is not None:
                _refuse_unless_zero(slot)
                payload.used = True
        missing = [] if payload.used else bucket.slots
        if bucket.slots[0].left:
            payload.seal()
            self.ready(bucket.chunks[0])
        payload.open()
        return missing

    def _open(self) -> None:
        for bucket in self.all:
            bucket.begun = False
        for chunk in self.chunks:
            chunk.unfilled = len(chunk.slots)
        for slot in self.slots:
            slot.left = self.passes

    def _arrival_at(self, slot: ParameterSlot) -> Callable[[Tensor], None]:
        def arrived(_: Tensor) -> None:
            self._expect(slot)
            self._take(slot)
            slot.left -= 1
            if slot.left == 0:
                self._filled(slot)

        view, chunk, together = slot.view, slot.chunks[0], self._together
        if len(slot.chunks) > 1 or view.numel() * view.element_size() > SMALL_BYTES or not _travels(slot):
            return arrived

        def small_arrived(parameter: Tensor) -> None:
            gradient = parameter.grad
            in_place = slot.written or slot.alone  # by its layer
            if slot.left != 1 or gradient is None or gradient.is_sparse or in_place:
                arrived(parameter)
                return
            parameter.grad, slot.left = None, 0
            together.append((slot, gradient))
            chunk.unfilled -= 1
            if not chunk.unfilled:
                self._whole(chunk)
            elif len(together) == MOST_TOGETHER:
                self._take_together()

        return small_arrived

    def _whole(self, chunk: Chunk) -> None:
        """All values of a chunk are final: it leaves."""
        chunk.bucket.begin()
        self._take_together()
        self.ready(chunk)

    def _take_together(self) -> None:
        """Move small gradients into their slots, in one call for all. Each has had its earlier passes."""
        if not self._together:
            return
        slots, gradients = (list(one) for one in zip(*self._together, strict=True))
        self._together.clear()
        views, weight = [slot.view for slot in slots], self.weight()
        with torch.no_grad():
            if not weight:  # without anything that counts: whatever was computed, NaN too
                if self.passes == 1:
                    torch._foreach_zero_(views)
            elif self.passes > 1:
                torch._foreach_add_(views, gradients, alpha=weight)
            else:
                torch._foreach_copy_(views, gradients)
                for values in _in_one_piece(slots) if weight != 1.0 else ():
                    values.mul_(weight)

    def _expect(self, slot: ParameterSlot) -> None:
        if slot.left == 0:
            raise SettingError(
                f"{slot.name} got more than {self.passes} gradients in a step (is its layer used twice under "
                "reentrant checkpointing?); accepted: torch.utils.checkpoint with use_reentrant=False"
            )

    def _filled(self, slot: ParameterSlot) -> None:
        if slot.departed:
            slot.departed = False
            return
        for chunk in slot.chunks:
            self.part_written(chunk)

    def _take(self, slot: ParameterSlot) -> None:
        """Move the parameter's gradient into its slot: the first of a step replaces what is there, others add."""
        if slot.parameter.grad is None:
            raise SettingError(
                f"{slot.name}: a hook took its gradient away within backward (as an optimiser in backward does); "
                "accepted: optimizer.step() after backward"
            )
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
        weight = self.weight() if _travels(slot) else 1.0
        if not weight:  # without anything that counts: whatever was computed, NaN too
            gradient = torch.zeros_like(gradient)
        if slot.left < self.passes and not written:
            slot.view.add_(gradient, alpha=weight)
        elif weight == 1.0:
            slot.view.copy_(gradient)
        else:
            torch.mul(gradient, weight, out=slot.view)


def _travels(slot: ParameterSlot) -> bool:
    """Whether others add to its gradient; else it is of all ranks' samples already, each with its weight."""
    return slot.chunks[0].bucket.representation.travels


def _in_one_piece(slots: Sequence[ParameterSlot]) -> Iterator[Tensor]:
    """The contributions of slots, flat; of those that follow each other in a bucket, as they mostly come, at once."""
    first, end = slots[0], slots[0].start
    for slot in slots:
        if slot.start != end or slot.chunks[0] is not first.chunks[0]:
            yield first.chunks[0].bucket.contribution[first.start : end]
            first = slot
        end = slot.end
    yield first.chunks[0].bucket.contribution[first.start : end]


def _beside(slot: ParameterSlot, payload: Payload) -> Callable[[Tensor], None]:
    """Takes what comes to a parameter beside its layer's factors: zeros alone, which a loss without samples gives."""

    def arrived(_: Tensor) -> None:
        _refuse_unless_zero(slot)
        payload.used = True

    return arrived


def _refuse_unless_zero(slot: ParameterSlot) -> None:
    gradient, slot.parameter.grad = slot.parameter.grad, None
    if gradient is not None and gradient.count_nonzero():
        raise SettingError(
            f"{slot.name} has a gradient beside the factors of its layer (it is used elsewhere too, or under autocast, "
            "or its last gradient was not cleared); accepted: another codec than factors for it"
        )
