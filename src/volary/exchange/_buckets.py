"""Buckets: parameters whose gradients travel together, leaving the moment the last of them exists."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch

from volary.errors import SettingError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter
    from torch.utils.hooks import RemovableHandle

BYTES_PER_MIB = 2**20


class Slot:
    """One parameter's place in a bucket. `left`: backward passes of this step that have not reached it yet."""

    __slots__ = ("bucket", "left", "name", "parameter", "view")

    def __init__(self, name: str, parameter: Parameter, bucket: Bucket, view: Tensor) -> None:
        self.name, self.parameter, self.bucket, self.view = name, parameter, bucket, view
        self.left = 0


class Bucket:
    """A flat tensor of the gradients of some parameters. `extra`: values at its end that are summed with them."""

    def __init__(self, index: int, parameters: list[tuple[str, Parameter]], extra: int, like: Tensor) -> None:
        self.index = index
        sizes = [parameter.numel() for _, parameter in parameters]
        self.flat = torch.zeros(sum(sizes) + extra, dtype=like.dtype, device=like.device)
        pieces = torch.split(self.flat, [*sizes, extra])
        self.slots = [
            Slot(name, parameter, self, _laid_out_as(parameter, piece))
            for (name, parameter), piece in zip(parameters, pieces, strict=False)
        ]
        self.extra = pieces[-1]
        self.unfilled = 0
        self.work: torch.distributed.Work | None = None


class Buckets:
    """Cuts parameters into buckets in the order in which backward reaches them, and tells when one is ready.

    named: the network's parameters, in its order. bucket_mb: size at which a bucket is closed, in MiB.
    extra: values that travel with the last bucket. passes: backward passes a step (gradient accumulation).
    ready: called with each bucket when its gradients exist, in the same order on every rank.
    weight: the factor of gradients as they enter: this rank's share of the batch, if the loss has it not.
    """

    def __init__(
        self,
        named: Iterable[tuple[str, Parameter]],
        *,
        bucket_mb: float,
        extra: int,
        passes: int,
        ready: Callable[[Bucket], None],
        weight: Callable[[], float],
    ) -> None:
        self._passes, self._ready, self._weight = passes, ready, weight
        everyone = list(named)
        self._frozen = [(name, parameter) for name, parameter in everyone if not parameter.requires_grad]
        trained = [(name, parameter) for name, parameter in everyone if parameter.requires_grad]
        self.all = _plan(trained, bucket_mb * BYTES_PER_MIB, extra)
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
                    continue
                self._take(slot)
            slot.parameter.grad = slot.view
        return missing

    def depart(self) -> None:
        """Push the buckets that are still here, in order; after `close` and once `extra` is set."""
        for bucket in self.all[self._next :]:
            self._ready(bucket)
        self._next = len(self.all)

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


def _plan(named: list[tuple[str, Parameter]], bucket_bytes: float, extra: int) -> list[Bucket]:
    groups: list[list[tuple[str, Parameter]]] = []
    filled = 0.0
    for name, parameter in reversed(named):
        like = groups[-1][-1][1] if groups else None
        alike = like is not None and like.dtype == parameter.dtype and like.device == parameter.device
        if not alike or filled >= bucket_bytes:
            groups.append([])
            filled = 0
        groups[-1].append((name, parameter))
        filled += parameter.numel() * parameter.element_size()
    if not groups or groups[-1][-1][1].dtype != torch.float32:
        # the extra values are read as float32: they need a bucket of their own
        groups.append([])
    device = named[0][1].device if named else torch.device("cpu")
    nothing = torch.zeros(0, device=device)
    last = len(groups) - 1
    return [
        Bucket(index, group, extra if index == last else 0, group[0][1] if group else nothing)
        for index, group in enumerate(groups)
    ]
