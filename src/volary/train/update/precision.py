"""Mixed precision: which operations run in fewer bits, and the loss scale that fp16 needs."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import torch

from volary.errors import SettingError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

_SIDES = {"cpu": 512, "cuda": 4096}  # of matrices: large enough to be as quick as any, small enough to be soon done
_PRODUCTS = 4  # the first of which warms up


def check_precision(kind: str, device: torch.device) -> None:
    """Raise SettingError if `device` does not compute in train.precision `kind`; what `volary doctor` says of it."""
    if kind == "fp16" and device.type != "cuda":
        raise SettingError("train.precision is 'fp16', and fp16 needs a CUDA device; accepted: fp32 or bf16")
    if kind == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise SettingError("train.precision is 'bf16', and this device has no bf16; accepted: fp32 or fp16")


class Precision:
    """`fp32` as computed; `bf16` and `fp16` under autocast, fp16 with a loss scale (Micikevicius et al. 2018)."""

    def __init__(self, kind: Literal["fp32", "bf16", "fp16"], device: torch.device) -> None:
        self._dtype = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[kind]
        self._device = device.type
        self._scaler = torch.amp.GradScaler(self._device) if kind == "fp16" else None

    @property
    def scales(self) -> bool:
        """Whether losses, and so gradients, are multiplied by a scale that keeps fp16 from underflow."""
        return self._scaler is not None

    def casting(self) -> AbstractContextManager[Any]:
        """The context that forward runs in."""
        if self._dtype is None:
            return nullcontext()
        return torch.autocast(self._device, dtype=self._dtype)

    @torch.no_grad()
    def product_per_s(self, device: torch.device) -> float:
        """Operations a second, two for each product of numbers, that a matrix product reaches in this precision.

        Of the quickest of a few products of square matrices, with all threads of this process; it takes some 20 ms.
        """
        side = _SIDES.get(device.type, _SIDES["cpu"])
        factor, quickest_s = torch.full((side, side), 1 / side, device=device), float("inf")
        with self.casting():
            for _ in range(_PRODUCTS):
                _settle(device)
                begun_s = time.perf_counter()
                factor @ factor
                _settle(device)
                quickest_s = min(quickest_s, time.perf_counter() - begun_s)
        return float(2 * side**3 / quickest_s)

    def backward(self, loss: Tensor, weight: float) -> None:
        """Add the gradients of `loss * weight`, a scalar, scaled where the precision needs it, to the parameters'."""
        # not handed in as the first gradient: for that torch imports sympy, which takes a worker 0.8 s
        self.scaled(loss, weight).backward()

    def scaled(self, loss: Tensor, weight: float) -> Tensor:
        """Return `loss * weight`, a scalar, scaled where the precision needs it: what is passed backward."""
        start = loss if self._scaler is None else self._scaler.scale(loss)
        return start * weight

    def unscale(self, optimizer: Optimizer) -> None:
        """Bring gradients back to their true size, before they are clipped."""
        if self._scaler is not None:
            self._scaler.unscale_(optimizer)

    def step(self, optimizer: Optimizer) -> None:
        """Update, unless fp16 overflowed: then this update is skipped and the scale shrinks."""
        if self._scaler is None:
            optimizer.step()
        else:
            self._scaler.step(optimizer)
            self._scaler.update()

    def state(self) -> dict[str, Any]:
        """The loss scale, for a checkpoint."""
        return {} if self._scaler is None else self._scaler.state_dict()

    def restore(self, state: dict[str, Any]) -> None:
        """Go on with the loss scale of a checkpoint."""
        if self._scaler is not None and state:
            self._scaler.load_state_dict(state)


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
