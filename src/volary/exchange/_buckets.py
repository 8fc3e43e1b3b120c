"""Buckets: parameters whose gradients travel together, leaving the moment the last of them exists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from volary.errors import SettingError
from volary.exchange._base import Memory, Shape

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter
    from torch.utils.hooks import RemovableHandle

BYTES_PER_MIB = 2**20
LAST_BYTES = BYTES_PER_MIB  # nothing hides the last bucket's exchange: of several, it is no larger


@dataclass(frozen=True)
class Plan:
    """Which parameters travel together. extra: values at their end that are summed with them."""

    parameters: list[tuple[str, Parameter]]
    extra: int
    dtype: torch.dtype
    device: torch.device

    @property
    def shape(self) -> Shape:
        """What memory it needs."""
        return Shape(sum(p.numel() for _, p in self.parameters) + self.extra, self.dtype, self.device)

    def pieces(self, flat: Tensor) -> tuple[list[Tensor], Tensor]:
        """`flat` (numel,) cut up: a view in each parameter's shape, and the extra values."""
        *own, extra = torch.split(flat, [*(p.numel() for _, p in self.parameters), self.extra])
        return [_laid_out_as(p, piece) for (_, p), piece in zip(self.parameters, own, strict=True)], extra


class Slot:
    """One parameter's place in a bucket: `view` for what it contributes, `agreed` for what comes back.

    left: backward passes of this step that have not reached it yet.
    """

    __slots__ = ("agreed", "bucket", "left", "name", "parameter", "view")

    def __init__(self, name: str, parameter: Parameter, bucket: Bucket, view: Tensor, agreed: Tensor) -> None:
        self.name, self.parameter, self.bucket, self.view, self.agreed = name, parameter, bucket, view, agreed
        self.left = 0


class Bucket:
    """A flat tensor of the gradients of some parameters, in the memory that the exchange gave.

    private: what was agreed is copied to where only this rank sees it, since it may be changed in place.
    """

    def __init__(self, index: int, plan: Plan, memory: Memory, private: bool) -> None:
        self.index = index
        self.contribution, self._agreed = memory.contribution, memory.agreed
        self._copied = private and memory.agreed is not memory.contribution
        views, self.extra = plan.pieces(memory.contribution)
        results, self.agreed_extra = plan.pieces(memory.agreed)
        if self._copied:
            results = views
        self.slots = [
            Slot(name, parameter, self, view, result)
            for (name, parameter), view, result in zip(plan.parameters, views, results, strict=True)
        ]
        self.unfilled = 0

    def deliver(self) -> None:
        """Give each parameter the gradient that was agreed."""
        if self._copied:
            self.contribution.copy_(self._agreed)
        for slot in self.slots:
            slot.parameter.grad = slot.agreed


class Buckets:
    """Takes gradients into buckets as backward makes them, and tells when one is ready.

    all: the buckets, in the order in which backward reaches them. frozen: parameters that are not trained.
    passes: backward passes a step (gradient accumulation). ready: called with each bucket when its gradients exist, in
    the same order on every rank. weight: the factor of gradients as they enter: this rank's share of the batch, if the
    loss has it not.
    """

    def __init__(
        self,
        buckets: list[Bucket],
        frozen: list[tuple[str, Parameter]],
        *,
        passes: int,
        ready: Callable[[Bucket], None],
        weight: Callable[[], float],
    ) -> None:
        self._passes, self._ready, self._weight = passes, ready, weight
        self.all, self._frozen = buckets, frozen
        self.extra = self.all[-1].extra
        self.slots = [slot for bucket in self.all for slot in bucket.slots]
        self._next = 0
        self._hooks = [_when_accumulated(slot.parameter, self._arrival_at(slot)) for slot in self.slots]
        self.open()

    def open(self) -> None:
        """Expect the next step's gradients."""
        self._next = 0
        for bucket in self.all:
            bucket.unfilled = len(bucket.slots)
        for slot in self.slots:
            slot.left = self._passes

    def close(self) -> list[Slot]:
        """Expect no more gradients. Returns the slots that got none: they count as zero.

        Raises SettingError for a parameter that was frozen when the buckets were made and is not any more.
        """
        for name, parameter in self._frozen:
            if parameter.requires_grad:
                raise SettingError(f"{name} was frozen when training began; accepted: trainable then, frozen later")
        missing = []
        for slot in self.slots:
            if slot.left == self._passes:
                if slot.parameter.grad is None:
                    slot.view.zero_()
                    missing.append(slot)
                else:
                    self._take(slot)
        return missing

    def depart(self) -> None:
        """Push the buckets that are still here, in order; after `close` and once `extra` is set."""
        for bucket in self.all[self._next :]:
            self._ready(bucket)
        self._next = len(self.all)

    def deliver(self) -> Tensor:
        """Give every parameter what was agreed; returns what was agreed of the extra values."""
        for bucket in self.all:
            bucket.deliver()
        return self.all[-1].agreed_extra

    def remove(self) -> None:
        """Let go of the parameters: their gradients no longer enter these buckets."""
        for hook in self._hooks:
            hook.remove()

    def _arrival_at(self, slot: Slot) -> Callable[[Tensor], None]:
        def arrived(_: Tensor) -> None:
            if slot.left == 0:
                raise SettingError(
                    f"{slot.name} got more than {self._passes} gradients in a step (is its layer used twice under "
                    "reentrant checkpointing?); accepted: torch.utils.checkpoint with use_reentrant=False"
                )
            self._take(slot)
            slot.left -= 1
            if slot.left == 0:
                slot.bucket.unfilled -= 1
                self._leave_in_order()

        return arrived

    def _take(self, slot: Slot) -> None:
        """Move the parameter's gradient into its slot: the first of a step replaces what is there, others add."""
        gradient = slot.parameter.grad
        assert gradient is not None
        if gradient.is_sparse:
            gradient = gradient.to_dense()
        weight = self._weight()
        if slot.left < self._passes:
            slot.view.add_(gradient, alpha=weight)
        elif weight == 1.0:
            slot.view.copy_(gradient)
        else:
            torch.mul(gradient, weight, out=slot.view)
        slot.parameter.grad = None

    def _leave_in_order(self) -> None:
        # the last bucket waits for `extra`, which is known only when backward is over
        while self._next < len(self.all) - 1 and self.all[self._next].unfilled == 0:
            self._ready(self.all[self._next])
            self._next += 1


def _when_accumulated(parameter: Parameter, call: Callable[[Tensor], None]) -> RemovableHandle:
    handle: RemovableHandle = parameter.register_post_accumulate_grad_hook(call)  # type: ignore[no-untyped-call]
    return handle


def _laid_out_as(parameter: Parameter, piece: Tensor) -> Tensor:
    """`piece` (numel,) in the parameter's shape and order in memory: fused updates read both as one flat run."""
    return piece.as_strided(parameter.shape, torch.empty_like(parameter, device="meta").stride())


def plan(named: list[tuple[str, Parameter]], bucket_mb: float, extra: int) -> list[Plan]:
    """Cut parameters, given in the network's order, into buckets in the order in which backward reaches them.

    bucket_mb: size in MiB at which a bucket is closed. extra: float32 values that travel with the last one.
    """
    bucket_bytes = bucket_mb * BYTES_PER_MIB
    groups: list[list[tuple[str, Parameter]]] = []
    filled = 0.0
    for name, parameter in reversed(named):
        like = groups[-1][-1][1] if groups else None
        alike = like is not None and like.dtype == parameter.dtype and like.device == parameter.device
        if not alike or filled >= bucket_bytes:
            groups.append([])
            filled = 0
        groups[-1].append((name, parameter))
        filled += _bytes(parameter)
    if len(groups) > 1:
        groups[-1:] = _split_last(groups[-1])
    if not groups or groups[-1][-1][1].dtype != torch.float32:
        # the extra values are read as float32: they need a bucket of their own
        groups.append([])
    device = named[0][1].device if named else torch.device("cpu")
    plans = [Plan(group, 0, group[0][1].dtype, group[0][1].device) for group in groups if group]
    if not groups[-1]:
        return [*plans, Plan([], extra, torch.float32, device)]
    return [*plans[:-1], replace(plans[-1], extra=extra)]


def _split_last(group: list[tuple[str, Parameter]]) -> list[list[tuple[str, Parameter]]]:
    """The last bucket in two, so that what leaves when backward is over is small."""
    left, cut = LAST_BYTES, len(group)
    while cut and (left := left - _bytes(group[cut - 1][1])) >= 0:
        cut -= 1
    return [part for part in (group[:cut], group[cut:]) if part]


def _bytes(parameter: Parameter) -> int:
    return parameter.numel() * parameter.element_size()
